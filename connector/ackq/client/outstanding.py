"""What a publisher has no answer for yet.

Frames by publish number, and which of their rows must go on the wire.

Invariant: every number leaves the set exactly once (P3), and only numbers in the set are ever sent
again (P10): a number below the lowest unanswered one is forgotten by the broker and would be
published twice. No I/O, no clock, no lock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ackq.client.ranges import Range, Ranges
from ackq.client.receipts import Receipt
from ackq.errors import InternalError
from ackq.wire import block

# Answered frames at the head are cut off the list in blocks of at least so many, which makes the
# cut O(1) amortised.
_TRIM = 64


class Destination(NamedTuple):
    """What all rows of a frame share."""

    exchange: str
    mandatory: bool
    ack_immediately: bool = False


@dataclass(slots=True, eq=False)
class Frame:
    """Rows that travel together.

    Attributes:
        content: The serialised block, or what makes it on first use.
        rows: Rows in the block.
        payload_bytes: What the frame takes of the window.
        receipt: Told the fate of each row.
        first: Publish number of the first row (P2), given by `Outstanding.add`.
        unanswered: Rows without an answer.
        sent_at: When it went on the present stream; None: it has yet to go.
        ever_sent: Whether a broker may have seen any of it.
    """

    destination: Destination
    content: bytes | Callable[[], bytes]
    rows: int
    payload_bytes: int
    receipt: Receipt
    first: int = 0
    unanswered: int = field(init=False)
    sent_at: float | None = None
    ever_sent: bool = False

    def __post_init__(self) -> None:
        assert self.rows > 0, "a frame has rows"
        self.unanswered = self.rows

    @property
    def last(self) -> int:
        """Publish number of the last row."""
        return self.first + self.rows - 1

    def block(self, numbers: Range) -> bytes:
        """The block with the rows of these numbers, which are consecutive and in the frame.

        Runs without the lock: empty when the frame's last answer came meanwhile and freed it.
        """
        assert self.first <= numbers.first <= numbers.last <= self.last, "the numbers are in it"
        content = self.content
        if not isinstance(content, bytes):
            content = self.content = content()
            if not self.unanswered:
                self.content = b""
        if not content or numbers == (self.first, self.last):
            return content
        header, batch = block.decode(content)
        return block.encode(
            batch.slice(numbers.first - self.first, numbers.last - numbers.first + 1),
            routing_key=header.routing_key,
            published_at_us=header.published_at_us,
            delivery_mode=header.delivery_mode,
        )


class Part(NamedTuple):
    """Consecutive rows of a frame, by publish number."""

    frame: Frame
    numbers: Range


class Settled(NamedTuple):
    """Rows of a frame that have their answer; `frame_done` with the frame's last ones."""

    frame: Frame
    numbers: Range
    frame_done: bool


class Outstanding:
    """The unanswered publishes of one publisher."""

    def __init__(self) -> None:
        self.next_number = 1
        self.highest_sent = 0
        self.in_flight = 0  # frames sent on the present stream and not fully answered
        self._unanswered = Ranges()
        self._frames: list[Frame] = []
        self._firsts: list[int] = []  # first numbers of _frames, for bisection
        self._head = 0  # frames before it are answered
        self._to_send: deque[Part] = deque()

    def __bool__(self) -> bool:
        return bool(self._unanswered)

    @property
    def lowest_unanswered(self) -> int:
        """The broker may forget every number below (P10)."""
        return self._unanswered.lowest if self._unanswered else self.next_number

    @property
    def has_more_to_send(self) -> bool:
        """Whether `next_part` may have something."""
        return bool(self._to_send)

    def add(self, frame: Frame) -> None:
        """Numbers the frame's rows and puts it last in the line to be sent."""
        frame.first = self.next_number
        self.next_number += frame.rows
        self._unanswered.extend(frame.first, frame.last)
        self._frames.append(frame)
        self._firsts.append(frame.first)
        self._to_send.append(Part(frame, Range(frame.first, frame.last)))

    def next_part(self, now: float) -> Part | None:
        """Takes the next rows to send; rows answered since they were put in line are left out."""
        while self._to_send:
            frame, numbers = self._to_send.popleft()
            still = self._unanswered.intersection(*numbers)
            if not still:
                continue
            self._to_send.extendleft(Part(frame, each) for each in reversed(still[1:]))
            self.in_flight += frame.sent_at is None
            frame.sent_at = now
            frame.ever_sent = True
            self.highest_sent = max(self.highest_sent, still[0].last)
            return Part(frame, still[0])
        return None

    def settle(self, first: int, last: int) -> list[Settled]:
        """An answer for first..last has come; those of them that had none until now, by frame (P3).

        Raises:
            InternalError: A number that was never sent.
        """
        if last > self.highest_sent:
            raise InternalError(
                f"The broker answered publish number {last}, but only {self.highest_sent} were "
                "sent. Check that client and broker are of one version.",
                number=last,
            )
        return self._settle(first, last)

    def drain(self) -> list[Settled]:
        """Everything that is unanswered, sent or not; nothing is left."""
        settled = self._settle(1, self.next_number - 1)
        self._to_send.clear()
        return settled

    def unanswered_among(self, numbers: Iterable[int]) -> list[int]:
        """Those of the numbers that have no answer."""
        return [number for number in numbers if self._unanswered.intersection(number, number)]

    def overdue(self, sent_before: float) -> Range | None:
        """The span of the numbers that went on this stream before a time and have no answer."""
        late = [
            frame
            for frame in self._live()
            if frame.sent_at is not None and frame.sent_at <= sent_before
        ]
        if not late:
            return None
        return Range(max(late[0].first, self.lowest_unanswered), late[-1].last)

    def oldest_sent_at(self) -> float | None:
        """When the frame that waits longest on the present stream was sent."""
        sent = (frame.sent_at for frame in self._live() if frame.sent_at is not None)
        return min(sent, default=None)

    def resend(self, missing: Iterable[Range]) -> None:
        """The broker never saw these numbers.

        Those without an answer go to the head of the line (P10).
        """
        parts = [
            part
            for each in missing
            for numbers in self._unanswered.intersection(*each)
            for part in self._parts(numbers)
            if part.frame.sent_at is not None
        ]
        self._to_send.extendleft(reversed(parts))
        for part in parts:
            self.in_flight -= part.frame.sent_at is not None
            part.frame.sent_at = None

    def cut(self) -> None:
        """The stream is gone: what is unanswered goes again, in order, with its numbers (P10)."""
        for frame in self._live():
            frame.sent_at = None
        self.in_flight = 0
        self._to_send = deque(part for each in self._unanswered for part in self._parts(each))

    def _settle(self, first: int, last: int) -> list[Settled]:
        settled = []
        for removed in self._unanswered.remove(first, last):
            for frame, numbers in self._parts(removed):
                frame.unanswered -= numbers.last - numbers.first + 1
                assert frame.unanswered >= 0, "a number is answered once (P3)"
                if not frame.unanswered:
                    self.in_flight -= frame.sent_at is not None
                    frame.content = b""  # frees it, also behind an older unanswered frame
                settled.append(Settled(frame, numbers, not frame.unanswered))
        self._trim()
        return settled

    def _parts(self, numbers: Range) -> list[Part]:
        """Cuts consecutive numbers along the frames that hold them."""
        parts = []
        at = bisect_right(self._firsts, numbers.first) - 1
        first = numbers.first
        while first <= numbers.last:
            frame = self._frames[at]
            last = min(numbers.last, frame.last)
            parts.append(Part(frame, Range(first, last)))
            first = last + 1
            at += 1
        return parts

    def _live(self) -> Iterable[Frame]:
        return (frame for frame in self._frames[self._head :] if frame.unanswered)

    def _trim(self) -> None:
        while self._head < len(self._frames) and not self._frames[self._head].unanswered:
            self._head += 1
        if self._head >= _TRIM and self._head * 2 >= len(self._frames):
            del self._frames[: self._head]
            del self._firsts[: self._head]
            self._head = 0
