"""The unconfirmed publishes: frames by publish number, and which of their rows are to be sent.

Invariant: every number leaves the set exactly once (P3), and only numbers in the set are ever sent
again (P10): a number below the lowest unanswered one is forgotten by the broker and would be
published twice. The cost of an answer depends on the rows that it answers, not on the number of
unanswered ones (P9): each frame tracks its own unanswered rows, and frames are found by number. No
I/O, no clock, no lock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from ackq.client.publishing.receipts import Receipt
from ackq.client.ranges import Range, Ranges
from ackq.errors import InternalError
from ackq.wire import block

# Answered frames at the head are deleted in blocks of at least this many, which makes it O(1)
# amortised.
_TRIM = 64


class Destination(NamedTuple):
    """Exchange and flags that all rows of a frame share."""

    exchange: str
    mandatory: bool
    ack_immediately: bool = False


@dataclass(slots=True, eq=False)
class PublishFrame:
    """Rows that are sent in one block.

    Attributes:
        content: The serialised block, or a function that makes it on first use.
        rows: Rows in the block.
        payload_bytes: Its share of the window (P14).
        receipt: Takes the result of each row.
        first: Publish number of the first row (P2), given by `Unconfirmed.add`.
        unanswered: Number of rows without an answer.
        sent_at: When it was sent on the present stream; None if it was not.
        ever_sent: Whether a broker may have received any of its rows.
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
    _open: Ranges | None = field(init=False, default=None)  # None: all unanswered, or none

    def __post_init__(self) -> None:
        assert self.rows > 0, "a frame has rows"
        self.unanswered = self.rows

    @property
    def last(self) -> int:
        """Publish number of the last row."""
        return self.first + self.rows - 1

    @property
    def lowest_unanswered(self) -> int:
        """The frame's lowest number without an answer; the frame must have one."""
        assert self.unanswered
        return self.first if self._open is None else self._open.lowest

    def open_among(self, first: int, last: int) -> list[Range]:
        """The unanswered numbers of the frame in first..last."""
        if self._open is not None:
            return self._open.intersection(first, last)
        inside = Range(max(first, self.first), min(last, self.last))
        return [inside] if self.unanswered and inside.first <= inside.last else []

    def answer(self, first: int, last: int) -> list[Range]:
        """Marks first..last as answered; returns the ranges that were unanswered before."""
        answered = self.open_among(first, last)
        self.unanswered -= sum(numbers.last - numbers.first + 1 for numbers in answered)
        assert self.unanswered >= 0, "a number is answered once (P3)"
        if not self.unanswered:
            self._open = None
        elif answered:
            if self._open is None:
                self._open = Ranges()
                self._open.extend(self.first, self.last)
            self._open.remove(first, last)
        return answered

    def block(self, numbers: Range) -> bytes:
        """The block with the rows of these numbers, which are consecutive and in the frame.

        Runs without the lock; empty if the frame's last answer came meanwhile and freed the block.
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

    frame: PublishFrame
    numbers: Range


class Answered(NamedTuple):
    """Answered rows of a frame; `frame_done` is set with the last ones of the frame."""

    frame: PublishFrame
    numbers: Range
    frame_done: bool


class _Flight(NamedTuple):
    """A frame sent on the present stream; `highest` is the highest number sent by then."""

    sent_at: float
    highest: int
    frame: PublishFrame

    @property
    def waits(self) -> bool:
        """Whether the frame is unanswered, and was not sent again since."""
        return self.frame.unanswered > 0 and self.frame.sent_at == self.sent_at


class _Flights:
    """The frames on the present stream, oldest first."""

    def __init__(self) -> None:
        self._flights: list[_Flight] = []
        self._head = 0  # no earlier flight waits

    def add(self, sent_at: float, frame: PublishFrame) -> None:
        """Records that a frame is sent; drops the oldest records whose frames are answered."""
        self.oldest()
        highest = max(frame.last, self._flights[-1].highest if self._flights else 0)
        self._flights.append(_Flight(sent_at, highest, frame))

    def oldest(self) -> _Flight | None:
        """The flight of the unanswered frame that was sent first, if any."""
        while self._head < len(self._flights) and not self._flights[self._head].waits:
            self._head += 1
        if self._head >= _TRIM and self._head * 2 >= len(self._flights):
            del self._flights[: self._head]
            self._head = 0
        return self._flights[self._head] if self._head < len(self._flights) else None

    def highest_sent(self, up_to: float) -> int:
        """The highest number sent by time `up_to`; at least one flight must be as old."""
        after = bisect_right(self._flights, up_to, key=itemgetter(0))
        return self._flights[after - 1].highest


class Unconfirmed:
    """The unanswered publishes of one publisher."""

    def __init__(self) -> None:
        self.next_number = 1
        self.highest_sent = 0
        self.in_flight = 0  # frames sent on the present stream and not fully answered
        self._frames: list[PublishFrame] = []
        self._firsts: list[int] = []  # first numbers of _frames, for bisection
        self._head = 0  # index of the first unanswered frame
        self._to_send: deque[Part] = deque()
        self._flights = _Flights()

    def __bool__(self) -> bool:
        return self._head < len(self._frames)

    @property
    def lowest_unanswered(self) -> int:
        """The lowest unanswered number; the broker may forget every lower one (P10)."""
        return self._frames[self._head].lowest_unanswered if self else self.next_number

    @property
    def has_more_to_send(self) -> bool:
        """Whether `next_part` may return rows."""
        return bool(self._to_send)

    def add(self, frame: PublishFrame) -> None:
        """Numbers the frame's rows and queues it to be sent."""
        frame.first = self.next_number
        self.next_number += frame.rows
        self._frames.append(frame)
        self._firsts.append(frame.first)
        self._to_send.append(Part(frame, Range(frame.first, frame.last)))

    def next_part(self, now: float) -> Part | None:
        """Takes the next rows to send, without rows that were answered while they were queued."""
        while self._to_send:
            frame, numbers = self._to_send.popleft()
            still = frame.open_among(*numbers)
            # Its other rows may have been sent before: they, too, are in flight again.
            if frame.sent_at is None and frame.unanswered:
                self.in_flight += 1
                self._flights.add(now, frame)
                frame.sent_at = now
            if not still:
                continue
            self._to_send.extendleft(Part(frame, each) for each in reversed(still[1:]))
            frame.ever_sent = True
            self.highest_sent = max(self.highest_sent, still[0].last)
            return Part(frame, still[0])
        return None

    def answer(self, first: int, last: int) -> list[Answered]:
        """Marks first..last as answered; returns the rows that were unanswered, by frame (P3).

        Raises:
            InternalError: A number was never sent.
        """
        if last > self.highest_sent:
            raise InternalError(
                f"The broker answered publish number {last}, but only {self.highest_sent} were "
                "sent. Check that client and broker have the same version.",
                number=last,
            )
        return self._answer(first, last)

    def drain(self) -> list[Answered]:
        """Removes and returns all unanswered rows, sent or not."""
        answered = self._answer(1, self.next_number - 1)
        self._to_send.clear()
        return answered

    def unanswered_among(self, numbers: Iterable[int]) -> list[int]:
        """The given numbers that have no answer."""
        return [number for number in numbers if any(self._open_parts(number, number))]

    def overdue(self, sent_before: float) -> Range | None:
        """The range of numbers sent on this stream by `sent_before`, if one is unanswered."""
        oldest = self._flights.oldest()
        if oldest is None or oldest.sent_at > sent_before:
            return None
        return Range(self.lowest_unanswered, self._flights.highest_sent(sent_before))

    def oldest_sent_at(self) -> float | None:
        """When the oldest unanswered frame of the present stream was sent."""
        oldest = self._flights.oldest()
        return oldest.sent_at if oldest is not None else None

    def resend(self, missing: Iterable[Range]) -> None:
        """Queues the unanswered rows in `missing` first: the broker never received them (P10)."""
        parts = [
            part
            for each in missing
            for part in self._open_parts(*each)
            if part.frame.sent_at is not None
        ]
        self._to_send.extendleft(reversed(parts))
        for part in parts:
            self.in_flight -= part.frame.sent_at is not None
            part.frame.sent_at = None

    def on_disconnect(self) -> None:
        """Queues every unanswered row again, in order and with its number (P10)."""
        for frame in self._frames[self._head :]:
            frame.sent_at = None
        self.in_flight = 0
        self._flights = _Flights()
        self._to_send = deque(self._open_parts(1, self.next_number - 1))

    def _answer(self, first: int, last: int) -> list[Answered]:
        answered = []
        for frame in self._between(first, last):
            spans = frame.answer(first, last)
            done = bool(spans) and not frame.unanswered
            if done:
                self.in_flight -= frame.sent_at is not None
                frame.content = b""  # frees it, also after an older unanswered frame
            answered += [Answered(frame, each, done and each is spans[-1]) for each in spans]
        self._trim()
        return answered

    def _between(self, first: int, last: int) -> Iterator[PublishFrame]:
        """The frames with numbers in first..last, without fully answered frames."""
        at = max(self._head, bisect_right(self._firsts, first) - 1)
        while at < len(self._frames) and self._firsts[at] <= last:
            if self._frames[at].unanswered:
                yield self._frames[at]
            at += 1

    def _open_parts(self, first: int, last: int) -> Iterator[Part]:
        """The unanswered rows in first..last."""
        for frame in self._between(first, last):
            for numbers in frame.open_among(first, last):
                yield Part(frame, numbers)

    def _trim(self) -> None:
        while self._head < len(self._frames) and not self._frames[self._head].unanswered:
            self._head += 1
        if self._head >= _TRIM and self._head * 2 >= len(self._frames):
            del self._frames[: self._head]
            del self._firsts[: self._head]
            self._head = 0
