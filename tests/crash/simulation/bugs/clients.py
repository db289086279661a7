"""Bugs of the client's state machines, which the virtual publishers and consumers run."""

from ackq.client.consuming.state import ChannelState
from ackq.client.consuming.unsettled import Unsettled
from ackq.client.publishing.transaction_state import TransactionState
from ackq.client.publishing.unconfirmed import Unconfirmed
from tests.crash.simulation.bugs.patching import Bug, Line, never

CLIENTS = {
    "answer_forgotten": Bug(
        "P3: the client forgets the last number of an answer for several publishes",
        Line(Unconfirmed.answer, "._answer(first, last)", "._answer(first, last - (last > first))"),
    ),
    "number_used_twice": Bug(
        "P2: two frames of a publisher share a number",
        Line(Unconfirmed.add, "next_number += frame.rows", "next_number += max(frame.rows - 1, 1)"),
    ),
    "answered_sent_again": Bug(
        "P10: the client sends rows again that were answered while they were queued",
        Line(Unconfirmed.next_part, "still = frame.open_among(*numbers)", "still = [numbers]"),
        Line(
            Unconfirmed.on_disconnect,
            "deque(self._open_parts(1, self.next_number - 1))",
            "deque(Part(f, Range(f.first, f.last)) for f in self._frames[self._head :])",
        ),
    ),
    "answer_of_another_transaction": Bug(
        "P13: the answer to a rollback counts as that to the next commit",
        never(TransactionState.on_transaction, "transaction_id != transaction.transaction_id"),
    ),
    "settled_on_another_channel": Bug(
        "C17: the client sends settlements of a channel that has ended to the one after it",
        Line(ChannelState.on_opened, "if self.ever_opened and not same:", "if False:"),
    ),
    "unread_settled": Bug(
        "C3: a settlement up to a tag takes messages that the application has not taken",
        Line(Unsettled._prepare_drafts, "limit = min(outstanding, default=None)", "limit = None"),
    ),
}
