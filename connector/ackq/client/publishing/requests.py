"""The actions of a publisher, and the frames they are serialised to.

Every frame carries the lowest unanswered number: the broker forgets accepted numbers below it
(P10).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ackq.client.connection.duplex import Finish, Wait
from ackq.client.publishing.unconfirmed import Destination, Part
from ackq.client.ranges import Range
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame


class SendRows(NamedTuple):
    """Send these rows (confirm mode)."""

    part: Part
    lowest_unanswered: int


class Probe(NamedTuple):
    """Ask whether the broker has received these numbers (confirm mode, P10)."""

    numbers: Range
    lowest_unanswered: int


class AddRows(NamedTuple):
    """Add these rows to a transaction; `content` makes their block.

    With `commit_messages`, the transaction's message count, they are its last rows and commit it.
    """

    transaction_id: bytes
    destination: Destination
    first_number: int
    rows: int
    content: Callable[[], bytes]
    commit_messages: int = 0


class Commit(NamedTuple):
    """Commit a transaction."""

    transaction_id: bytes
    messages: int


class Rollback(NamedTuple):
    """Roll a transaction back."""

    transaction_id: bytes


class Close(NamedTuple):
    """Report that all answers are read and nothing follows: the publisher is forgotten (P10)."""

    lowest_unanswered: int


Action = SendRows | Probe | AddRows | Commit | Rollback | Close | Wait | Finish


def opening(
    publisher_id: bytes,
    *,
    mode: pb.PublishMode,
    resume: bool,
    attempt: bytes,
    attempts_before: Sequence[bytes],
    next_number: int,
    lowest_unanswered: int,
    window_messages: int,
    label: str,
) -> bytes:
    """The first frame of a stream: identifies the publisher and its mode (P1, P10)."""
    header = pb.PublishHeader(
        lowest_unanswered=lowest_unanswered,
        open=pb.PublishOpen(
            publisher_id=publisher_id,
            mode=mode,
            resume=resume,
            window_messages=window_messages,
            label=label,
            attempt=attempt,
            attempts_before=attempts_before,
            next_number=next_number,
        ),
    )
    return frame.encode(header.SerializeToString())


def encoded(action: Action) -> bytes:
    """The frame of an action; empty if the action sends none."""
    content = b""
    if isinstance(action, SendRows):
        content = action.part.frame.block(action.part.numbers)
        if not content:
            return b""  # its rows were all answered meanwhile
        header = _data(action)
    elif isinstance(action, AddRows):
        content = action.content()
        header = _rows(action)
    elif isinstance(action, Probe):
        first, last = action.numbers
        probe = pb.PublishProbe(first_number=first, last_number=last)
        header = pb.PublishHeader(lowest_unanswered=action.lowest_unanswered, probe=probe)
    elif isinstance(action, Commit):
        header = pb.PublishHeader(commit=pb.PublishTransaction(**action._asdict()))
    elif isinstance(action, Rollback):
        header = pb.PublishHeader(rollback=pb.PublishTransaction(**action._asdict()))
    elif isinstance(action, Close):
        header = pb.PublishHeader(
            lowest_unanswered=action.lowest_unanswered, close=pb.PublishClose()
        )
    else:
        return b""
    return frame.encode(header.SerializeToString(), content)


def _data(send: SendRows) -> pb.PublishHeader:
    destination = send.part.frame.destination
    return pb.PublishHeader(
        lowest_unanswered=send.lowest_unanswered,
        data=pb.PublishData(
            first_number=send.part.numbers.first,
            rows=send.part.numbers.last - send.part.numbers.first + 1,
            exchange=destination.exchange,
            mandatory=destination.mandatory,
            ack_immediately=destination.ack_immediately,
        ),
    )


def _rows(added: AddRows) -> pb.PublishHeader:
    return pb.PublishHeader(
        data=pb.PublishData(
            first_number=added.first_number,
            rows=added.rows,
            exchange=added.destination.exchange,
            mandatory=added.destination.mandatory,
            transaction_id=added.transaction_id,
            commit_messages=added.commit_messages,
        )
    )
