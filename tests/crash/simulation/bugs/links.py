"""Bugs of links: errors in what is remembered of a message, and when it is acknowledged."""

from functools import partial

from ackq_broker.core.links import deliveries, holder, matching, permits
from ackq_broker.core.snapshot import image
from ackq_broker.core.state.link import Link
from ackq_broker.service.links.stream import EdgeStream
from ackq_link.edge.state import LinkState
from ackq_link.transfer import Transfer
from tests.crash.simulation.bugs.patching import Bug, Line

_Bug = partial(Bug, links=True)

LINKS = {
    "stored_before_sync": _Bug(
        "L5: deliveries are answered as stored when that is decided",
        Line(EdgeStream._stored, "(stored=answer), sequence)", "(stored=answer), 0)"),
    ),
    "permit_before_sync": _Bug(
        "L10: a permit is sent before its record is synced",
        Line(EdgeStream._permit, "(permits=permits), sequence)", "(permits=permits), 0)"),
    ),
    "held_is_permitted": _Bug(
        "L9: a message that is held here may be acknowledged there",
        Line(permits.permit, "queue.gone(link.waiting)", "link.waiting"),
    ),
    "held_acknowledged_at_stop": _Bug(
        "L9: a link that stops acknowledges what it holds",
        Line(
            Transfer._finish,
            "    with suppress(TimeoutError, AckqError):",
            "    for first, last in [*self._held]:\n"
            "        self._subscription.settle(first, last)\n"
            "    with suppress(TimeoutError, AckqError):",
        ),
    ),
    "rejected_is_acknowledged": _Bug(
        "L28: what is rejected here, and is no dead letter here, is acknowledged there",
        Line(Transfer._acknowledge, "reject if rejected else self._subscription.settle", "settle"),
    ),
    "stored_without_key": _Bug(
        "L5: the record that stores a message does not have its key",
        Line(deliveries.store, "command.keys[known:][new]", "(0 * command.keys)[known:][new]"),
    ),
    "numbers_stored_again": _Bug(
        "L5: deliveries that come again after a cut are stored again",
        Line(deliveries.store, "min(link.next_number - command.first_number, command.rows)", "0"),
        Line(Link.deliver, "assert first_number == self.next_number"),
    ),
    "unanswered_not_sent_again": _Bug(
        "L20: a link does not send again after a cut what has no answer",
        Line(LinkState.on_disconnect, "([*self._refused, *unanswered])", "(self._refused)"),
    ),
    "refusal_not_kept": _Bug(
        "L5: what follows deliveries that were refused is taken before they come again",
        Line(EdgeStream._store, "    self._refusal = refusal\n", "    pass\n"),
    ),
    "entry_matched_twice": _Bug(
        "L6: equal deliveries of a frame take one entry",
        Line(
            matching._ranked,
            'np.arange(len(ordered)) - np.searchsorted(ordered, ordered, "left")',
            "np.zeros(len(ordered), np.int64)",
        ),
    ),
    "fingerprint_ignored": _Bug(
        "L4: a message with a known id and another content is taken for the one that is here",
        Line(matching._table, "breaks | (checks[order][1:] != checks[order][:-1])", "breaks"),
    ),
    "permitted_content_matched": _Bug(
        "L7: a content is taken for one whose acknowledgement may have been applied",
        Line(matching._may_take, "= content & permitted[entries]", "= content & False"),
    ),
    "doubt_forgotten_at_cut": _Bug(
        "L10: a cut forgets which messages had a permit",
        Line(Link.cut, "self.doubt |= self.permits"),
    ),
    "doubt_not_in_snapshot": _Bug(
        "L10: a snapshot does not have which messages had a permit before the last cut",
        Line(image.link_image, "link.doubt.copy()", "type(link.doubt)()"),
    ),
    "permits_not_in_snapshot": _Bug(
        "L10: a snapshot has what was permitted as what waits for it",
        Line(image.link_image, '"batches": tuple(link.batches)', '"batches": ()'),
        Line(image.link_image, "link.waiting.copy()", "link.waiting | link.permits"),
    ),
    "content_not_in_snapshot": _Bug(
        "L7: a snapshot does not have which keys are of a content",
        Line(image.link_image, "link.content.copy()", "type(link.content)()"),
    ),
    "entries_stay_bound": _Bug(
        "L6: a cut leaves entries with the deliveries of the subscription that ended",
        Line(Link.cut, "self.bound, self.waiting, ", "_, self.waiting, "),
    ),
    "forgotten_at_proof": _Bug(
        "L10: an entry is forgotten when its acknowledgement is proven",
        Line(
            Link.prove,
            "self.graces[until_us] = self.graces.get(until_us, BitMap64()) | done.positions",
            "self.forget(done.positions)",
        ),
    ),
    "forgotten_by_time": _Bug(
        "L10: what is in doubt is forgotten by time alone",
        Line(Link.forget_due, "if not self.fresh_proven:", "if False:"),
    ),
    "epoch_of_link_not_raised": _Bug(
        "L1: another process runs a link in the epoch of the one before",
        Line(holder._again, "command.holder, now_us)", "command.holder, now_us)[0], found.epoch"),
    ),
    "link_not_fenced": _Bug(
        "L1: a process goes on after another one took its link over",
        Line(holder.find, "if epoch != link.epoch:", "if False:"),
        Line(holder.find, "if stream != state.link_streams.get(name, stream):", "if False:"),
        Line(EdgeStream._open, "if older is not None:", "if False:"),
    ),
    "older_stream_permits": _Bug(
        "L10: a fenced stream goes on deciding permits, and a proof is a count alone",
        Line(holder.find, "if stream != state.link_streams.get(name, stream):", "if False:"),
        Line(EdgeStream._permit, "self._check()"),
        Line(permits.check_proof, "proven > link.proved and", "False and"),
    ),
}
