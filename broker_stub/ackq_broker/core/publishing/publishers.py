"""Publishers (P1, P10): opened in one mode, closed, kept for their retention unless finished.

Invariant: a publisher without a stream has no open transaction (P13).
"""

from __future__ import annotations

from ackq import limits
from ackq.errors import (
    FencedError,
    LimitError,
    PublisherForgottenError,
    WrongModeError,
)
from ackq_broker.core import commands, history, records
from ackq_broker.core.checks import check_owner, check_share, foreign, utc
from ackq_broker.core.commands import Decision
from ackq_broker.core.publishing import writer_batches
from ackq_broker.core.state.state import Publisher, State


def open_publisher(state: State, command: commands.OpenPublisher, _now_us: int) -> Decision:
    """P1, P10, Q8: creates a publisher, or reopens a known one in the mode that it has."""
    known = state.publishers.get(command.publisher_id)
    if known is None and command.resume:
        raise _forgotten(state, command.publisher_id)
    if known is not None:
        history.check(
            state,
            known.history,
            f"The publisher {command.publisher_id.hex()}",
            "Or open a new publisher; the outcome of this publisher's unconfirmed publishes is "
            "unknown.",
        )
        check_mode(known, transactional=command.transactional)
        what = f"the publisher {known.publisher_id.hex()}"
        check_owner(what, known.user, command.user, "Open a new publisher.")
        _check_copy(known, command)
        changed = command.attempt != known.attempt or (command.user and not known.user)
        if not known.closed_us and not changed:
            # A newer stream: the open transaction of the older one is dropped.
            left = (records.TransactionRolledBack(known.publisher_id),) if known.transaction else ()
            return Decision(left, known.shown)
    elif len(state.publishers) >= limits.MAX_PUBLISHERS:
        raise LimitError(
            f"The publisher was not opened: the broker remembers {limits.MAX_PUBLISHERS} "
            "publishers, its limit. A closed publisher is forgotten at once, and one whose stream "
            "was cut after 7 days: close publishers, and use fewer, longer-lived ones.",
            limit=limits.MAX_PUBLISHERS,
        )
    else:
        own = state.publishers_of[command.user]
        check_share("publishers", command.user, limits.MAX_PUBLISHERS, own)
    record = records.PublisherOpened(
        command.publisher_id,
        command.label,
        command.transactional,
        command.user,
        command.attempt,
    )
    return Decision((record,), known.shown if known is not None else 1)


def apply_publisher_opened(state: State, _sequence: int, record: records.PublisherOpened) -> None:
    """Adds a publisher, or reopens a known one."""
    known = state.publishers.get(record.publisher_id)
    if known is None:
        state.publishers[record.publisher_id] = Publisher(
            record.publisher_id,
            record.label,
            transactional=record.transactional,
            history=state.history,
            user=record.user,
            attempt=record.attempt,
        )
        state.publishers_of[record.user] += 1
    else:
        assert known.transactional == record.transactional
        assert not foreign(known.user, record.user)
        drop_transaction(state, known)
        if record.user and not known.user:
            state.publishers_of[""] -= 1
            state.publishers_of[record.user] += 1
            known.user = record.user
        known.closed_us = 0
        known.label = record.label
        known.attempt = record.attempt


def close_stream(state: State, command: commands.ClosePublisherStream, now_us: int) -> Decision:
    """P10, P13: starts the retention of 7 days, or forgets; drops the open transaction."""
    known = state.publishers.get(command.publisher_id)
    if known is None or known.closed_us:
        return Decision()
    return Decision((records.PublisherClosed(command.publisher_id, now_us, command.finished),))


def apply_publisher_closed(state: State, _sequence: int, record: records.PublisherClosed) -> None:
    """Starts the retention of a publisher, or forgets it."""
    end_stream(state, state.publishers[record.publisher_id], record.at_us)
    if record.finished:
        forget(state, record.publisher_id)


def forget(state: State, publisher_id: bytes) -> None:
    """Removes a publisher and all of its state."""
    state.publishers_of[state.publishers[publisher_id].user] -= 1
    del state.publishers[publisher_id]


def end_stream(state: State, publisher: Publisher, at_us: int) -> None:
    """Ends the stream of a publisher: drops its transaction and starts its retention."""
    drop_transaction(state, publisher)
    publisher.closed_us = publisher.closed_us or at_us


def drop_transaction(state: State, publisher: Publisher) -> None:
    """Drops the rows that a publisher has staged, and their reservations."""
    transaction, publisher.transaction = publisher.transaction, None
    if transaction is not None:
        for block in transaction.blocks:
            writer_batches.reserve(state, block.parts, -1)
            state.blocks.release([block.block_id])


def find(state: State, publisher_id: bytes, *, transactional: bool = False) -> Publisher:
    """The publisher, in this mode; raises PublisherForgottenError or WrongModeError."""
    publisher = state.publishers.get(publisher_id)
    if publisher is None:
        raise _forgotten(state, publisher_id)
    check_mode(publisher, transactional=transactional)
    return publisher


def check_mode(publisher: Publisher, *, transactional: bool) -> None:
    """P1: refuses a publisher of the other mode: WrongModeError."""
    if publisher.transactional != transactional:
        modes = ("confirm", "transaction")
        raise WrongModeError(
            f"The publisher {publisher.publisher_id.hex()} was opened in "
            f"{modes[publisher.transactional]} mode and keeps it; it was asked for "
            f"{modes[transactional]} mode. Open another publisher for that mode.",
            publisher=publisher.publisher_id.hex(),
            mode=modes[publisher.transactional],
        )


def _check_copy(publisher: Publisher, command: commands.OpenPublisher) -> None:
    """P10: refuses a copy of a publisher, which knows less than the broker has recorded of it.

    Two processes that count from one number take each other's publishes for their own, and messages
    of one of them would be confirmed without being in any queue.
    """
    if not command.attempt:
        return
    other = publisher.attempt and publisher.attempt not in command.attempts_before
    behind = command.next_number and (
        publisher.lowest_unanswered > command.lowest_unanswered
        or publisher.highest >= command.next_number
    )
    if other or behind or (publisher.used and not command.resume):
        raise FencedError(
            f"Another process has published under the id {publisher.publisher_id.hex()}, with an "
            "opening or numbers that this process did not send: one of the two is a copy of the "
            "other, for instance of a restored machine. Open a new publisher in each; the outcome "
            "of this publisher's unconfirmed publishes is unknown.",
            publisher=publisher.publisher_id.hex(),
        )


def _forgotten(state: State, publisher_id: bytes) -> PublisherForgottenError:
    lost = ""
    if state.history:
        lost = f", or its record was lost when the history changed at {utc(state.began_us)}"
    return PublisherForgottenError(
        f"The broker does not know the publisher {publisher_id.hex()}: it was closed, its last "
        f"stream ended more than 7 days ago, or it belongs to another broker{lost}. The outcome of "
        "its unconfirmed publishes is unknown; open a new publisher.",
        publisher=publisher_id.hex(),
    )
