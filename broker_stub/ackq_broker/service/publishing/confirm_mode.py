"""A publisher's stream in confirm mode: frames in, confirms, nacks and returns out (P2-P11).

Invariant: every publish that arrives is answered exactly once while the stream lives (P3), and only
after the sync gate (I1).
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from pyroaring import BitMap64

from ackq.errors import (
    AckqError,
    DiskFullError,
    InvalidArgumentError,
    MalformedBlockError,
    PermissionDeniedError,
    PublisherForgottenError,
    WrongModeError,
)
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame
from ackq_broker.core import commands, views
from ackq_broker.security.callers import current
from ackq_broker.service.blocks import coalescing, ingest
from ackq_broker.service.publishing.pending_confirms import PendingConfirms, ranges
from ackq_broker.service.publishing.stream import (
    Numbers,
    PublisherStream,
    Request,
    Response,
    check_numbers,
    numbers_of,
    too_many_rows,
)
from ackq_broker.service.publishing.together import Single, Together
from ackq_broker.service.transport.fields import error_detail
from ackq_broker.service.transport.rpc import Denied

# Maximum numbers of a probe: far above any window, while a bitmap of them takes only 100 KB.
_PROBE_NUMBERS: Final = 1 << 28


class _Answer(NamedTuple):
    """Answers to send once their sequence is synced: nacks, frames, then merged confirms."""

    nacks: tuple[commands.Nack, ...] = ()
    frames: tuple[Response, ...] = ()
    confirmed: BitMap64 | None = None


class ConfirmModeStream(PublisherStream[_Answer]):
    """A publisher's stream whose publishes are confirmed or nacked one by one."""

    TRANSACTIONAL: ClassVar[bool] = False

    def __init__(self, together: Together, *args: Any) -> None:
        super().__init__(*args)
        self._together = together
        self._pending = PendingConfirms(self._opening.window_messages)
        # The sequence that the last return waits for.
        self._returned_sequence = 0

    # --- requests ---

    async def _handle_group(self, group: list[Request]) -> None:
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
        """Publishes the rows of frames that arrived together as one block."""
        if group[0].header.data.transaction_id:
            raise WrongModeError(
                "A publisher in confirm mode sent publishes of a transaction; open another"
                " publisher in transaction mode."
            )
        too_many = too_many_rows(group)
        if too_many is not None:
            for request in group:
                first = request.header.data.first_number
                last = first + coalescing.rows_of(request) - 1
                check_numbers(first, last)
                self._pend(request, last)
                self._refuse(_span(first, last), too_many)
            return
        numbers = numbers_of(group)
        in_progress = BitMap64()
        for request in group:
            last = request.header.data.first_number + coalescing.rows_of(request) - 1
            in_progress |= self._pend(request, last)
        await self._place(group, numbers, in_progress)

    async def _place(self, group: list[Request], numbers: Numbers, in_progress: BitMap64) -> None:
        """Publishes the rows of frames.

        A frame that the caller may not publish (A3), or with text that is not UTF-8 (P8), is
        nacked.
        """
        try:
            _check_denied(group)
            prepared = await self._prepare(group)
        except (PermissionDeniedError, MalformedBlockError) as error:
            if isinstance(error, MalformedBlockError) and "column" not in error.fields:
                raise  # not a frame of the protocol
            await self._refuse_alone(group, in_progress, error)
            return
        if prepared is None:
            return
        for part in prepared.parts:
            if not await self._ready(group[0].header.data.exchange, part):
                return
            header = group[-1].header
            if part.row is not None and len(self._live) > 1 and not in_progress:
                self._put_off(header, numbers, part)
            else:
                self._publish_part(header, numbers, part, in_progress)
        for refusal in prepared.refusals:
            self._refuse(_bitmap(numbers[refusal.rows]), refusal.reason)

    async def _refuse_alone(
        self, group: list[Request], in_progress: BitMap64, error: AckqError
    ) -> None:
        """Refuses a frame; several frames are retried one by one, to refuse only the bad ones."""
        if len(group) > 1:
            for request in group:
                await self._place([request], numbers_of([request]), in_progress)
            return
        if isinstance(error, PermissionDeniedError):
            current.get().denied(error)
        self._refuse_new(_bitmap(numbers_of(group)) - in_progress, error)

    def _pend(self, request: Request, last: int) -> BitMap64:
        """Adds the numbers of a request to the pending numbers; returns the repeated ones.

        Raises:
            InvalidArgumentError: It declares numbers answered that this stream has not shown (P10).
        """
        header = request.header
        if header.lowest_unanswered > self._shown:
            raise InvalidArgumentError(
                f"The publisher reports its numbers below {header.lowest_unanswered} as answered, "
                f"but this stream has carried only numbers below {self._shown}."
            )
        self._shown = max(self._shown, last + 1)
        return self._pending.received(
            header.data.first_number,
            last,
            header.lowest_unanswered,
            urgent=header.data.ack_immediately,
        )

    def _put_off(
        self, header: pb.PublishHeader, numbers: Numbers, part: ingest.PreparedPart
    ) -> None:
        """Publishes a part of one row a little later, with those of other publishers, if any."""

        def alone() -> None:
            try:
                self._publish_part(header, numbers, part, BitMap64())
            except PublisherForgottenError as error:
                self.fence(error)

        def placed(sequence: int) -> None:
            self._responses.put(_Answer(confirmed=_bitmap(numbers)), sequence)
            self._engine.counters["published"] += 1

        self._together.add(Single(self._publisher_id, header, part, alone, placed))

    def _publish_part(
        self,
        header: pb.PublishHeader,
        numbers: Numbers,
        part: ingest.PreparedPart,
        in_progress: BitMap64,
    ) -> None:
        """Publishes one part; its answer waits for the sync."""
        if part.rows is not None:
            numbers = numbers[part.rows]
        of_rows = _bitmap(numbers)
        command = commands.Publish(
            publisher_id=self._publisher_id,
            numbers=of_rows,
            lowest_unanswered=header.lowest_unanswered,
            exchange=header.data.exchange,
            mandatory=header.data.mandatory,
            routes=part.routes,
            rows=part.row_count,
            payload_bytes=part.payload_bytes,
            persistent=part.persistent,
            expiries=part.expiries,
            in_progress=in_progress & of_rows,
            transient=part.transient,
            sizes=part.sizes,
        )
        try:
            reply, sequence = self._engine.decide(command, part.block, lone=self._lone(of_rows))
        except PublisherForgottenError:
            raise
        except DiskFullError as refusal:
            self._refuse_new(of_rows - in_progress, refusal)
            return
        except AckqError as refusal:
            self._refuse(of_rows - in_progress, refusal)
            return
        frames: tuple[Response, ...] = ()
        if reply.returned:
            self._engine.counters["returned"] += len(reply.returned)
            named = np.array(reply.returned.to_array())
            rows = np.searchsorted(numbers, named)
            frames = (self._return(named, rows, part, header.data.exchange),)
            # A return overtakes no earlier return, whatever sequence each waits for.
            sequence = self._returned_sequence = max(sequence, self._returned_sequence)
        if reply.sooner is not None:
            transient, after = reply.sooner
            self._responses.put(_Answer(confirmed=transient), after)
        self._responses.put(_Answer(reply.nacks, frames, reply.confirmed), sequence)
        self._engine.counters["published"] += len(reply.confirmed)

    def _lone(self, numbers: BitMap64) -> bool:
        """Whether no other publish waits for its answer, or is about to come."""
        return len(self._live) == 1 and len(self._pending) == len(numbers)

    def _refuse(self, numbers: BitMap64, reason: AckqError) -> None:
        self._responses.put(_Answer((commands.Nack(numbers, reason),)), self._engine.core.sequence)

    def _refuse_new(self, numbers: BitMap64, reason: AckqError) -> None:
        """Nacks the numbers not published before and confirms the others (P8, P10).

        A nacked message is in no queue.
        """
        new = BitMap64()
        for first, last in ranges(numbers):
            for missing in views.missing(self._engine.core.state, self._publisher_id, first, last):
                new |= _span(*missing)
        self._refuse(new, reason)
        self._responses.put(_Answer(confirmed=numbers - new), self._engine.core.sequence)

    def _probe(self, probe: pb.PublishProbe) -> None:
        """Reports a probe's numbers that never arrived; confirms the known ones again (P10).

        A number in progress is neither: it arrived, and its answer is due. If it were reported
        missing, the client would send it again, and an unroutable message might be routed by then.
        """
        first, last = probe.first_number, probe.last_number
        check_numbers(first, last)
        if last - first >= _PROBE_NUMBERS:
            raise InvalidArgumentError(
                f"A probe asks about {_PROBE_NUMBERS} numbers at most; send several."
            )
        new = BitMap64()
        for each in views.missing(self._engine.core.state, self._publisher_id, first, last):
            new |= _span(*each)
        known = _span(first, last) - new
        named = ranges(new - self._pending.in_progress(first, last))
        for each in ranges(known):
            self._pending.received(*each, 0)
        answer = pb.PublishAnswer(
            probed=pb.PublishProbed(
                missing_first=[first for first, _ in named],
                missing_last=[last for _, last in named],
            )
        )
        self._responses.put(_Answer((), (frame.Frame(answer),), known), self._engine.core.sequence)

    # --- answers ---

    def _wait_s(self) -> float | None:
        return self._pending.wait_s(_now_s())

    async def _answer(self, answers: list[_Answer]) -> None:
        handled = BitMap64()
        for answer in answers:
            for response in self._nacks(answer.nacks):
                await self._write(response)
            for response in answer.frames:
                await self._write(response)
            if answer.confirmed is not None:
                handled |= answer.confirmed
        self._engine.counters["confirmed"] += len(handled)
        for confirm in self._pending.confirms(handled, _now_s()):
            await self._write(frame.Frame(pb.PublishAnswer(confirm=confirm)))

    def _notify(self, answer: Response) -> None:
        self._responses.put(_Answer((), (answer,)))

    def _nacks(self, nacks: Iterable[commands.Nack]) -> Iterator[Response]:
        for numbers, reason in nacks:
            due = self._pending.nacked(numbers)
            self._engine.counters["nacked"] += len(due)
            for first, last in ranges(due):
                nack = pb.PublishNack(
                    first_number=first, last_number=last, reason=error_detail(reason)
                )
                yield frame.Frame(pb.PublishAnswer(nack=nack))


def _check_denied(group: list[Request]) -> None:
    """Raises the refusal of a frame that was denied when it was read."""
    for request in group:
        if isinstance(request, Denied):
            raise request.error


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _bitmap(numbers: Numbers) -> BitMap64:
    """Converts ascending numbers to a bitmap."""
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first + 1 == len(numbers):
        return _span(first, last)
    return BitMap64(array("Q", numbers.tobytes()))


def _span(first: int, last: int) -> BitMap64:
    """The numbers first..last as a bitmap."""
    numbers = BitMap64()
    numbers.add_range(first, last + 1)
    return numbers
