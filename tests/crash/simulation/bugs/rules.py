"""Bugs in the rules themselves: in decisions, in the state, in a snapshot and at a restart."""

from ackq_broker.core import holders, lifecycle, views
from ackq_broker.core.consuming import channels
from ackq_broker.core.publishing import confirm_mode, publishers, transactions, writer_batches
from ackq_broker.core.queues import dead_letters, topology
from ackq_broker.core.sessions import (
    accept,
    advance,
    checkpoint,
    holder,
    operator,
    planned,
    retention,
    rewind,
    timeout,
)
from ackq_broker.core.snapshot import image
from ackq_broker.core.state.block_references import BlockReferences
from ackq_broker.core.state.queue import Queue
from ackq_broker.service.blocks import ingest
from tests.crash.simulation.bugs.patching import Bug, Line, never

RULES = {
    "batch_without_rows_not_known": Bug(
        "S11: a batch that the reader reports without rows is not remembered",
        Line(planned.count_empty, "if known is None or more <= 0:", "if True:"),
    ),
    "accepted_numbers_not_in_snapshot": Bug(
        "P10: a snapshot does not have the numbers that a publisher's answers may be missing for",
        Line(
            image.publisher_image,
            "return encoded(publisher)",
            "return encoded(replace(publisher, accepted=type(publisher.accepted)()))",
        ),
    ),
    "accepted_numbers_lost_at_restart": Bug(
        "P10: a restart forgets which numbers were accepted",
        Line(
            lifecycle.apply_started,
            "publisher.transient.clear()",
            "publisher.transient.clear(), publisher.accepted.clear()",
        ),
    ),
    "repeated_in_a_shared_block": Bug(
        "P10: a retransmission is placed again if it shares a block with other publishers' rows",
        Line(confirm_mode._is_new, "and number not in publisher.accepted", ""),
        Line(confirm_mode.apply_published_together, "assert number not in publisher.accepted"),
    ),
    "copy_of_publisher_goes_on": Bug(
        "P10: a process publishes under the id and the numbers of another one, "
        "of which it is a copy",
        Line(publishers._check_copy, "if not command.attempt:", "if True:"),
    ),
    "publisher_forgotten_too_early": Bug(
        "P10: a publisher is forgotten as soon as its stream is cut",
        Line(publishers.close_stream, ", now_us, command.finished)", ", now_us, True)"),
    ),
    "answered_numbers_placed_again": Bug(
        "P10: a number below the lowest unanswered one is placed when it comes again",
        Line(confirm_mode.publish, "command.numbers.min() < command.lowest_unanswered:", "False:"),
        Line(
            confirm_mode._forget_answered,
            "accepted.remove_range(0, lowest_unanswered)",
            "accepted.clear()",
        ),
    ),
    "transaction_in_part": Bug(
        "P13: a commit places the rows for the first queue of a block alone",
        Line(transactions.apply_transaction_committed, "in block.parts:", "in block.parts[:1]:"),
    ),
    "commit_not_remembered": Bug(
        "P13: a commit that is repeated is not answered from the record",
        Line(
            transactions.apply_transaction_committed,
            "publisher.committed_id = record.transaction_id",
        ),
    ),
    "commit_count_ignored": Bug(
        "P13: a commit is a success though the broker does not hold its messages",
        Line(transactions.commit, "if held != command.messages:", "if False:"),
    ),
    "batch_written_again": Bug(
        "K3: a batch that was committed is taken for a new one",
        never(writer_batches.commit_batch, "writer is not None and command.batch_id == last"),
        Line(writer_batches.apply_batch_committed, "assert record.batch_id > writer.batch_id"),
        Line(writer_batches._is_replay, "return stage.batch_id == writer.batch_id", "return False"),
    ),
    "last_batch_forgotten": Bug(
        "K3: a restart forgets which batch a writer committed last",
        Line(
            lifecycle.apply_started,
            "unsealed = {",
            "for writer in state.writers.values():\n        writer.batch_id = -1\n    unsealed = {",
        ),
    ),
    "batch_without_all_stages": Bug(
        "K3: a commit leaves a stage out that is not there any more",
        Line(
            writer_batches._named_stages,
            "if stage is None or (stage.writer, stage.batch_id) != "
            "(command.writer, command.batch_id):",
            "if stage is None:\n            continue\n        elif False:",
        ),
    ),
    "epoch_not_raised": Bug(
        "S3: another reader attaches in the epoch of the one before",
        Line(
            holders.claim,
            "return new_holder(caller, now_us), held.epoch + 1",
            "return held.holder, held.epoch",
        ),
    ),
    "fencing_not_checked": Bug(
        "S3: a call of an older epoch is served",
        Line(holder.check_epoch, "if epoch < session.epoch:", "if False:"),
    ),
    "accept_before_proof": Bug(
        "S4: a step from the lease's begin accepts it",
        Line(checkpoint.accepts, "return False", "return session.lease is not None"),
    ),
    "holes_not_kept": Bug(
        "S5: a lease that timed out has messages that others took meanwhile",
        Line(timeout.apply_resumed, "session.lease.add_holes(hole.tags, hole.reason)"),
    ),
    "settled_tags_stay": Bug(
        "S8: what an operator settled of a lease is read and accepted all the same",
        Line(operator.apply_settled, "lease.add_holes(record.tags, Gone.SETTLED)"),
    ),
    "settled_under_its_reader": Bug(
        "S8: an operator's settlement does not end the epoch",
        Line(operator.apply_settled, "holder.end_epoch(state, session)"),
    ),
    "kept_lease_dropped": Bug(
        "K2: the lease accepted last cannot be read again",
        Line(retention.keep, "session.kept.append(lease)"),
    ),
    "retained_released": Bug(
        "S13: an accept ends the retention of all earlier batches",
        Line(accept.apply_accept, "len(session.kept) - record.keeps", "len(session.kept)"),
    ),
    "retained_block_reclaimed": Bug(
        "S13: the oldest retained batch loses its blocks at an accept, and is still listed",
        Line(
            retention.end_replay,
            "readers.unindex(state, session)",
            "readers.unindex(state, session); state.blocks._dead.update("
            "b for s in last.segments for b in state.queues[s.queue_id]"
            ".placements.blocks_of(s.present(last.holes)).tolist())",
        ),
    ),
    "retained_after_purge": Bug(
        "S13: a purge leaves the messages of retained batches readable",
        Line(topology.apply_queue_purged, "_end_retention(state, queue)"),
    ),
    "queue_retains_after_purge": Bug(
        "S13: a purge leaves what a queue retains",
        Line(
            topology._end_retention,
            "state.blocks.release(queue.release_kept(queue.retained.end()))",
        ),
    ),
    "queue_retention_not_in_snapshot": Bug(
        "S13: a snapshot does not have what a queue retains, which cannot be rewound then",
        Line(image._columns, '"retained": queue.retained.dump()', '"retained": ()'),
    ),
    "rewound_twice": Bug(
        "S14: a rewind makes messages ready that are ready by the one before",
        Line(rewind._messages, "left_out) & queue.kept", "left_out) & (queue.kept | queue.ready)"),
        Line(Queue.rewind, "assert positions.issubset(self.kept)"),
    ),
    "rewound_past_retention": Bug(
        "S14: a rewind to what is no longer retained begins with what is, and says nothing",
        Line(rewind._from, "if before and (kept[0].floor if kept else session.floor)", "if False"),
    ),
    "leased_not_read_again": Bug(
        "S14: an opening with a rewind leases newer messages before those of the lease "
        "that it replaces",
        Line(advance._open, "queue_id, positions in requeued.items()", "queue_id, positions in ()"),
    ),
    "opening_rewinds_in_part": Bug(
        "S14: an opening with a rewind leaves the oldest retained batch out",
        Line(rewind.at_opening, "_from(old, wish)", "_from(old, wish)[1:]"),
    ),
    "rewinds_not_in_snapshot": Bug(
        "S14: a snapshot does not have which batch rewound messages are from",
        Line(image._columns, '"rewound": queue.rewound.dump()', '"rewound": ()'),
    ),
    "fetch_off_by_one": Bug(
        "S2: a fetch leaves its last row out",
        Line(
            views.fetch,
            "rows_of(state, lease, lease.holes, after_tag, last_tag)",
            "rows_of(state, lease, lease.holes, after_tag, max(after_tag, last_tag - 1))",
        ),
    ),
    "tags_begin_anew": Bug(
        "S1: a lease begins at the tag where the one before ended",
        Line(advance._lease, ".leased, session.floor)", ".leased, max(0, session.floor - 1))"),
    ),
    "unacked_not_given_back": Bug(
        "Q7: a restart leaves messages with channels that are gone",
        Line(lifecycle.apply_started, "channels.end_channel(state, channel_id, sequence)"),
    ),
    "newest_first": Bug(
        "P12: a consumer gets the newest message first",
        Line(
            channels._choose,
            "return bitmaps.lowest(available, count)",
            "return available - bitmaps.lowest(available, len(available) - count)",
        ),
    ),
    "deliveries_not_counted": Bug(
        "C7: a requeued message forgets that it was delivered",
        Line(Queue._return, "self.deliveries.add(positions)"),
    ),
    "deliveries_not_in_snapshot": Bug(
        "C7: a snapshot does not have how often messages were delivered",
        Line(image._columns, '"deliveries": queue.deliveries.dump()', '"deliveries": ()'),
    ),
    "delays_not_in_snapshot": Bug(
        "C14: a snapshot does not have when delayed messages are ready",
        Line(image._columns, '"delays": queue.delays.dump(queue.delayed)', '"delays": ()'),
    ),
    "dead_letter_without_origin": Bug(
        "C13: a dead letter does not say where it came from",
        Line(
            dead_letters._dead_letter,
            "target.origins.add(first + begin, values[part], counts[part], origin, arrival.at_us)",
        ),
    ),
    "dead_letter_copied": Bug(
        "C13: a dead letter stays in its queue as well",
        Line(
            dead_letters.apply_moves,
            "    _leave(state, source, move.positions, reason)",
            "    if move.cause != 'redriven':\n"
            "            _leave(state, source, move.positions, reason)",
        ),
    ),
    "expired_too_early": Bug(
        "Q3: a time to live counts as microseconds",
        Line(ingest._expiring, "ttls, 0, limits.MAX_TTL_MS) * 1000", "ttls, 0, limits.MAX_TTL_MS)"),
    ),
    "shared_block_counted_once": Bug(
        "I4: a block that two queues have is freed by the first of them",
        Line(
            BlockReferences.add,
            "self._single.discard(block_id)\n        self._shared[block_id] = 2",
        ),
    ),
}
