"""One publisher's stream in confirm mode: frames in, confirms, nacks and returns out (P2-P11, P14).

Invariant: every publish that arrives is answered exactly once while the stream lives (P3), and only
from behind the synced gate (I1).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ackq import limits
from ackq.errors import (
    AckqError,
    BrokerUnavailableError,
    DiskFullError,
    FencedError,
    InvalidArgumentError,
    PublisherForgottenError,
    UnroutableError,
    UnsupportedError,
    WrongModeError,
)
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame
from ackq_broker.core import commands
from ackq_broker.service import admission, folding, ingest
from ackq_broker.service.answers import Unanswered, ranges
from ackq_broker.service.details import detail
from ackq_broker.service.engine import Engine
from ackq_broker.service.rpc import Read, Write
from ackq_broker.service.streams import Inbox, Outbox, alongside
from ackq_broker.service.texts import shorten

Request = frame.Frame[pb.PublishHeader]
Response = frame.Frame[pb.PublishAnswer]

_ID_BYTES: Final = 16
_INBOX_BYTES: Final = 4 * limits.FRAME_TARGET_BYTES
# Above this, validating a frame takes longer than handing it to a thread (about 0.1 ms).
_THREAD_BYTES: Final = 64 * limits.KIB
# As the core has it: above any count of publishes, apart from the edge of a signed 64-bit integer.
_LARGEST_NUMBER: Final = 1 << 62
# What one probe may ask about: far over any window, and a bitmap of it still takes 100 KB.
_PROBE_NUMBERS: Final = 1 << 28
# Returns, which hold messages, and answers that a client may leave unread.
_RETURNED_BYTES: Final = 4 * limits.FRAME_TARGET_BYTES
_UNREAD_ANSWERS: Final = 10_000


class _Answer(NamedTuple):
    """What goes out once its sequence is synced: nacks, frames, then confirms, folded together."""

    nacks: tuple[commands.Nack, ...] = ()
    frames: tuple[Response, ...] = ()
    confirmed: BitMap64 | None = None


class PublishStream:
    """A publisher's stream from its open to its end.

    Args:
        engine: Decides and journals.
        live: The live stream of each publisher id, shared by all streams: a newer stream fences the
            older (P10).
        read: The next request.
        write: Sends an answer.
    """

    def __init__(
        self,
        engine: Engine,
        live: dict[bytes, PublishStream],
        read: Read[Request],
        write: Write[Response],
    ) -> None:
        self._engine = engine
        self._live = live
        self._read = read
        self._write = write
        self._publisher_id = b""
        self._inbox = Inbox[Request](_INBOX_BYTES)
        self._outbox = Outbox[_Answer](engine.gate)
        self._unanswered = Unanswered()
        self._returned_bytes = 0
        self._blocked = False
        self._fenced = False

    async def run(self) -> None:
        """Serve the stream until the client half-closes; everything is answered then.

        Raises:
            AckqError: The stream ends with this status.
        """
        opening = await self._opening()
        self._publisher_id = opening.publisher_id
        older = self._live.get(self._publisher_id)
        if older is not None:
            older.fence()
        self._live[self._publisher_id] = self
        try:
            await self._engine.call(
                commands.OpenPublisher(opening.publisher_id, opening.resume, shorten(opening.label))
            )
            await self._write(_opened(self._engine))
            with self._engine.listening(self._alarm, self._inbox.close):
                await alongside(self._handle_all(), self._receive(), self._send())
        finally:
            if self._live.get(self._publisher_id) is self:
                del self._live[self._publisher_id]
                self._engine.decide(commands.ClosePublisherStream(self._publisher_id))
        if self._engine.stopping:
            raise BrokerUnavailableError(
                "The broker is shutting down; publish what has no answer again when it is back."
            )

    def fence(self) -> None:
        """A newer stream of this publisher came: this one handles nothing more (P10)."""
        self._fenced = True
        self._inbox.fail(
            FencedError(
                f"A newer stream of publisher {self._publisher_id.hex()} replaced this one; publish"
                " there.",
                publisher=self._publisher_id.hex(),
            )
        )

    async def _opening(self) -> pb.PublishOpen:
        request = await self._read()
        if request is None or request.header.WhichOneof("kind") != "open":
            raise InvalidArgumentError("The first request on a publish stream must be an open.")
        opening = request.header.open
        if opening.mode == pb.PUBLISH_MODE_TRANSACTION:
            raise UnsupportedError(
                "This broker does not serve transaction mode; open the publisher in confirm mode."
            )
        if opening.mode != pb.PUBLISH_MODE_CONFIRM:
            raise InvalidArgumentError("A publish stream must be opened in confirm mode.")
        if len(opening.publisher_id) != _ID_BYTES:
            raise InvalidArgumentError(
                f"A publisher id has {_ID_BYTES} random bytes, not {len(opening.publisher_id)}."
            )
        return opening

    # --- requests ---

    async def _receive(self) -> None:
        """Moves requests into the inbox, so that those that come together are handled together."""
        while (request := await self._read()) is not None:
            size = len(request.block) + request.header.ByteSize()
            await self._inbox.put(request, size)
        self._inbox.close()

    async def _handle_all(self) -> None:
        """Handles requests in their order until there are no more, and everything is answered."""
        while requests := await self._inbox.take():
            for group in folding.groups(requests):
                await self._handle(group)
        await self._outbox.drained()

    async def _handle(self, group: list[Request]) -> None:
        kind = group[0].header.WhichOneof("kind")
        if kind == "data":
            await self._publish(group)
        elif kind == "probe":
            self._probe(group[0].header.probe)
        elif kind in ("commit", "rollback"):
            raise WrongModeError(
                f"A publisher in confirm mode was asked for a {kind}; open another publisher in"
                " transaction mode."
            )
        else:
            raise InvalidArgumentError("A publish stream is opened once and then carries data.")

    async def _publish(self, group: list[Request]) -> None:
        """Publishes the rows of frames that came together as one block."""
        for request in group:
            first = request.header.data.first_number
            last = first + folding.rows_of(request) - 1
            _check_numbers(first, last)
            self._unanswered.received(first, last, request.header.lowest_unanswered)
        too_many = admission.too_many_rows(sum(map(folding.rows_of, group)))
        if too_many is not None:
            for request in group:
                first = request.header.data.first_number
                self._refuse(_span(first, first + folding.rows_of(request) - 1), too_many)
            return
        await self._read_answers()
        await self._backpressure()
        work = partial(_prepare, group, self._engine.clock.now_us())
        large = sum(len(request.block) for request in group) > _THREAD_BYTES
        prepared = await self._engine.run(work) if large else work()
        if self._fenced:
            # The next take raises; the newer stream gets these numbers again.
            return
        numbers = folding.numbers_of(group)
        for part in prepared.parts:
            self._decide(group[-1].header, numbers, part)
        for refusal in prepared.refusals:
            self._refuse(_bitmap(numbers[refusal.rows]), refusal.reason)

    def _decide(
        self, header: pb.PublishHeader, numbers: npt.NDArray[np.uint64], part: ingest.Part
    ) -> None:
        """Publishes one part and puts its answer behind the gate."""
        if part.rows is not None:
            numbers = numbers[part.rows]
        command = commands.Publish(
            publisher_id=self._publisher_id,
            numbers=_bitmap(numbers),
            lowest_unanswered=header.lowest_unanswered,
            exchange=header.data.exchange,
            mandatory=header.data.mandatory,
            routes=part.routes,
            rows=part.row_count,
            payload_bytes=part.payload_bytes,
            persistent=part.persistent,
        )
        try:
            reply, sequence = self._engine.decide(command, part.block)
        except PublisherForgottenError:
            raise
        except DiskFullError as refusal:
            self._refuse_new(command.numbers, refusal)
            return
        except AckqError as refusal:
            self._refuse(command.numbers, refusal)
            return
        frames = (_returned(numbers, reply.returned, part, command),) if reply.returned else ()
        self._returned_bytes += sum(len(response.block) for response in frames)
        self._outbox.put(_Answer(reply.nacks, frames, reply.confirmed), sequence)
        self._engine.counters["published"] += len(reply.confirmed)

    def _refuse(self, numbers: BitMap64, reason: AckqError) -> None:
        self._outbox.put(_Answer((commands.Nack(numbers, reason),)), self._engine.core.sequence)

    def _refuse_new(self, numbers: BitMap64, reason: AckqError) -> None:
        """Nacks what was not accepted before: a nacked message is in no queue (P8, P10)."""
        new = BitMap64()
        for first, last in ranges(numbers):
            for missing in self._engine.core.missing(self._publisher_id, first, last):
                new |= _span(*missing)
        self._refuse(new, reason)
        self._outbox.put(_Answer(confirmed=numbers - new), self._engine.core.sequence)

    def _probe(self, probe: pb.PublishProbe) -> None:
        """Says which numbers never came; those that are known are answered again (P10)."""
        _check_numbers(probe.first_number, probe.last_number)
        if probe.last_number - probe.first_number >= _PROBE_NUMBERS:
            raise InvalidArgumentError(
                f"A probe asks about {_PROBE_NUMBERS} numbers at most; send several."
            )
        missing = self._engine.core.missing(
            self._publisher_id, probe.first_number, probe.last_number
        )
        known = _span(probe.first_number, probe.last_number)
        for first, last in missing:
            known.remove_range(first, last + 1)
        for first, last in ranges(known):
            self._unanswered.received(first, last, 0)
        answer = pb.PublishAnswer(
            probed=pb.PublishProbed(
                missing_first=[first for first, _ in missing],
                missing_last=[last for _, last in missing],
            )
        )
        self._outbox.put(_Answer((), (frame.Frame(answer),), known), self._engine.core.sequence)

    # --- answers ---

    async def _send(self) -> None:
        """Writes what the gate released: one turn per sync, however many publishes it covered."""
        while True:
            answers = await self._outbox.take()
            confirmed = BitMap64()
            for answer in answers:
                for response in self._nacks(answer.nacks):
                    await self._write(response)
                for response in answer.frames:
                    await self._write(response)
                if answer.confirmed is not None:
                    confirmed |= answer.confirmed
            for confirm in self._unanswered.confirms(confirmed):
                await self._write(frame.Frame(pb.PublishAnswer(confirm=confirm)))
            self._outbox.written(len(answers))

    def _nacks(self, nacks: Iterable[commands.Nack]) -> Iterator[Response]:
        for numbers, reason in nacks:
            self._unanswered.refused(numbers)
            self._engine.counters["nacked"] += len(numbers)
            for first, last in ranges(numbers):
                nack = pb.PublishNack(first_number=first, last_number=last, reason=detail(reason))
                yield frame.Frame(pb.PublishAnswer(nack=nack))

    # --- flow control (P14) ---

    async def _read_answers(self) -> None:
        """Takes no more publishes from a client that does not read what it is answered (I6)."""
        if self._returned_bytes > _RETURNED_BYTES or len(self._outbox) > _UNREAD_ANSWERS:
            await self._outbox.drained()
            self._returned_bytes = 0

    async def _backpressure(self) -> None:
        """Takes no more publishes while too many bytes wait for the disk."""
        journal = self._engine.journal
        if journal.unsynced_bytes <= limits.MAX_UNSYNCED_BYTES:
            return
        self._alarm(
            f"{journal.unsynced_bytes} bytes wait for the broker's disk;"
            f" the bound is {limits.MAX_UNSYNCED_BYTES}."
        )
        await self._engine.writable()
        self._alarm(self._engine.disk.alarm)

    def _alarm(self, reason: str) -> None:
        """Tells the publisher why the broker is blocked; an empty reason: not any more."""
        if bool(reason) == self._blocked:
            return
        self._blocked = bool(reason)
        answer = pb.PublishAnswer(unblocked=pb.PublishUnblocked())
        if reason:
            answer = pb.PublishAnswer(blocked=pb.PublishBlocked(reason=reason))
        self._outbox.put(_Answer((), (frame.Frame(answer),)))


def _prepare(group: list[Request], now_us: int) -> ingest.Prepared:
    return ingest.prepare(folding.fold(group, now_us), now_us)


def _bitmap(numbers: npt.NDArray[np.uint64]) -> BitMap64:
    """Ascending numbers as a bitmap."""
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first + 1 == len(numbers):
        return _span(first, last)
    return BitMap64(array("Q", numbers.tobytes()))


def _span(first: int, last: int) -> BitMap64:
    """The numbers first..last."""
    numbers = BitMap64()
    numbers.add_range(first, last + 1)
    return numbers


def _check_numbers(first: int, last: int) -> None:
    """Refuses numbers that no count of publishes reaches."""
    if not 1 <= first <= _LARGEST_NUMBER or last > _LARGEST_NUMBER:
        raise InvalidArgumentError(
            f"Publish numbers start at 1 and end at 2^62; this request names {first} to {last}."
        )


def _opened(engine: Engine) -> Response:
    opened = pb.PublishOpened(
        history_id=engine.history_id,
        max_frame_bytes=limits.MAX_FRAME_BYTES,
        max_message_bytes=limits.MAX_MESSAGE_BYTES,
    )
    return frame.Frame(pb.PublishAnswer(opened=opened))


def _returned(
    numbers: npt.NDArray[np.uint64],
    returned: BitMap64,
    part: ingest.Part,
    command: commands.Publish,
) -> Response:
    """The return of a part's unroutable rows, with the messages (P7)."""
    wanted = np.array(returned.to_array())
    block = ingest.take(part.block, np.searchsorted(numbers, wanted))
    exchange = command.exchange or "the default exchange"
    reason = UnroutableError(
        f"No queue is bound to {exchange} for the routing key of {len(wanted)} messages;"
        " declare the queue or the binding first.",
        exchange=command.exchange,
    )
    answer = pb.PublishReturn(numbers=wanted.tolist(), reason=detail(reason))
    return frame.Frame(pb.PublishAnswer(returned=answer), block)
