"""Transactions of publishers (P13): rows are staged, and become visible together at the commit.

Invariant: a transaction becomes visible once, with all of its rows, or never with any; room for
staged rows is reserved, so a commit never fails for room. A repeated commit gets the same answer as
the first.
"""

from __future__ import annotations

from pyroaring import BitMap, BitMap64

from ackq import limits
from ackq.errors import InvalidArgumentError, LimitError, TransactionRolledBackError
from ackq_broker.core import commands, records
from ackq_broker.core.checks import plural
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import CommittedTransaction, Decision, TransactedBlock
from ackq_broker.core.fields import Unroutable
from ackq_broker.core.publishing import publishers, writer_batches
from ackq_broker.core.queues import enqueue
from ackq_broker.core.queues.bounds import BlockSize, overflowing, queue_full
from ackq_broker.core.queues.routing import route, router_of
from ackq_broker.core.queues.topology import exchange_not_found
from ackq_broker.core.state.state import Publisher, StagedRows, State, Transaction


def stage_block(state: State, command: commands.TransactionBlock, _now_us: int) -> Decision:
    """P13: adds a block to a transaction: routes it and reserves its room, all of it or nothing."""
    assert len(command.numbers) == command.rows > 0
    publisher = publishers.find(state, command.publisher_id, transactional=True)
    _check_room(publisher, command)
    router = router_of(state, command.exchange)
    if router is None:
        raise exchange_not_found(command.exchange)
    routed = route(state, router, command.routes, bitmaps.row_range(0, command.rows - 1))
    if routed.refused:
        raise routed.refused[0].reason
    size = BlockSize(command.rows, command.payload_bytes, command.sizes)
    for queue_id, rows in routed.rows.items():
        if overflowing(state.queues[queue_id], rows, size):
            raise queue_full(state.queues[queue_id], rows, size)
    made = enqueue.make_parts(routed.rows, size, command.expiries, command.transient)
    parts = tuple(made.values())
    durable = command.persistent and bool(routed.durable - (command.transient or BitMap()))
    block_id = state.next_block_id if parts else 0
    returned = routed.unroutable if command.mandatory else BitMap()
    numbers = bitmaps.numbers_of(command.numbers, returned)
    record = records.TransactionStaged(
        command.publisher_id,
        command.transaction_id,
        block_id,
        durable,
        command.rows,
        parts,
        Unroutable(command.exchange, numbers) if returned else None,
        size.column() if parts else b"",
    )
    return Decision((record,), TransactedBlock(returned, block_id or None, durable))


def apply_transaction_staged(
    state: State, _sequence: int, record: records.TransactionStaged
) -> None:
    """Adds a block to its transaction."""
    publisher = state.publishers[record.publisher_id]
    if publisher.transaction is None:
        publisher.transaction = Transaction(record.transaction_id)
    assert publisher.transaction.transaction_id == record.transaction_id
    publisher.transaction.rows += record.rows
    if record.returned is not None:
        # A new bitmap, since the bitmap of a record is never changed.
        returned = publisher.transaction.returned.setdefault(record.returned.exchange, BitMap64())
        returned |= record.returned.numbers
    if record.parts:
        assert record.block_id == state.next_block_id
        state.next_block_id += 1
        state.blocks.add(record.block_id)
        state.blocks.sizes.add(record.block_id, record.sizes)
        publisher.transaction.blocks.append(
            StagedRows(record.block_id, record.parts, record.durable)
        )
        writer_batches.reserve(state, record.parts, 1)


def commit(state: State, command: commands.CommitTransaction, now_us: int) -> Decision:
    """P13: makes all of the transaction visible in one record; idempotent."""
    publisher = publishers.find(state, command.publisher_id, transactional=True)
    if command.transaction_id == publisher.committed_id:
        reply = CommittedTransaction(
            publisher.committed_messages, True, _unroutable(publisher.committed_returned)
        )
        return Decision(reply=reply)
    transaction = publisher.transaction
    if transaction is not None and transaction.transaction_id != command.transaction_id:
        transaction = None
    held = 0 if transaction is None else transaction.rows
    if held != command.messages:
        raise _rolled_back(command, held)
    if transaction is None:
        return Decision(reply=CommittedTransaction(0, False))
    drops = enqueue.drops_of_staged(state, transaction.blocks)
    record = records.TransactionCommitted(
        command.publisher_id, command.transaction_id, held, now_us, drops
    )
    reply = CommittedTransaction(held, False, _unroutable(transaction.returned))
    return Decision((record,), reply)


def apply_transaction_committed(
    state: State, sequence: int, record: records.TransactionCommitted
) -> None:
    """Places the rows of a committed transaction in the order of their publishes."""
    publisher = state.publishers[record.publisher_id]
    transaction = publisher.transaction
    assert transaction is not None
    assert (transaction.transaction_id, transaction.rows) == (
        record.transaction_id,
        record.messages,
    )
    publisher.committed_id = record.transaction_id
    publisher.committed_messages = record.messages
    publisher.committed_returned = transaction.returned
    for block in transaction.blocks:
        visible = enqueue.Visible(record.at_us, sequence, block.durable)
        for part in block.parts:
            if enqueue.takes_rows(state, part.queue_id):
                enqueue.place(state, block.block_id, part, visible)
    # The transaction's own references are released last, so that no block is dead in between.
    publishers.drop_transaction(state, publisher)
    enqueue.drop_heads(state, record.drops)


def roll_back(state: State, command: commands.RollbackTransaction, _now_us: int) -> Decision:
    """P13: drops the open transaction of a publisher, if it has one."""
    publisher = publishers.find(state, command.publisher_id, transactional=True)
    if publisher.transaction is None:
        return Decision(reply=0)
    record = records.TransactionRolledBack(command.publisher_id)
    return Decision((record,), publisher.transaction.rows)


def apply_transaction_rolled_back(
    state: State, _sequence: int, record: records.TransactionRolledBack
) -> None:
    """Drops the staged rows of a transaction."""
    publishers.drop_transaction(state, state.publishers[record.publisher_id])


def _unroutable(returned: dict[str, BitMap64]) -> tuple[Unroutable, ...]:
    return tuple(Unroutable(exchange, numbers) for exchange, numbers in returned.items())


def _check_room(publisher: Publisher, command: commands.TransactionBlock) -> None:
    """Refuses rows of a transaction other than the open one, or too many rows for one."""
    transaction = publisher.transaction or Transaction(command.transaction_id)
    if transaction.transaction_id != command.transaction_id:
        raise InvalidArgumentError(
            f"The transaction {command.transaction_id.hex()} cannot begin: the publisher has not "
            f"ended transaction {transaction.transaction_id.hex()}. Commit or roll back that one "
            "first.",
            transaction=command.transaction_id.hex(),
        )
    if transaction.rows + command.rows > limits.MAX_TRANSACTION_MESSAGES:
        raise LimitError(
            f"The transaction would hold {transaction.rows + command.rows} messages; the limit is "
            f"{limits.MAX_TRANSACTION_MESSAGES}. Commit more often.",
            limit=limits.MAX_TRANSACTION_MESSAGES,
        )


def _rolled_back(command: commands.CommitTransaction, held: int) -> TransactionRolledBackError:
    return TransactionRolledBackError(
        f"The transaction {command.transaction_id.hex()} was not committed, and nothing of it is "
        f"visible: the broker holds {held} of its {plural(command.messages, 'message')}. The "
        "messages of an open transaction are dropped when its stream ends. Publish the "
        "transaction again.",
        transaction=command.transaction_id.hex(),
        messages=command.messages,
        held=held,
    )
