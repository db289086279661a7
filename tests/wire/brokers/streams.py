"""The events received over a stream, in order; every wait for them ends at a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

TIMEOUT_S = 60.0


class EventLog(Generic[T]):
    """Events in the order received, added by the reading thread, and awaited by the test."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._end: BaseException | None = None
        self.seen: list[T] = []

    def add(self, event: T) -> None:
        """Adds an event."""
        with self._changed:
            self.seen.append(event)
            self._changed.notify_all()

    def wake(self) -> None:
        """Wakes waiting tests after a change outside the log."""
        with self._changed:
            self._changed.notify_all()

    def end(self, error: BaseException) -> None:
        """Ends the log; the first reason is kept."""
        with self._changed:
            self._end = self._end or error
            self._changed.notify_all()

    def wait(self, found: Callable[[], T | None], timeout_s=TIMEOUT_S, what="the event") -> T:
        """Waits until `found` returns something other than None; it is called after every event.

        Raises:
            BaseException: Why the stream ended, if it did before.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                answer = found()
                if answer is not None:
                    return answer
                if self._end is not None:
                    raise self._end
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{what} did not come within {timeout_s} s: {self.seen}")
                self._changed.wait(left)

    @property
    def reason(self) -> BaseException | None:
        """Why the stream ended; None while it has not."""
        return self._end

    def wait_end(self, timeout_s: float = TIMEOUT_S) -> BaseException:
        """Waits until the stream has ended; returns the reason."""
        with self._changed:
            ended = self._changed.wait_for(lambda: self._end is not None, timeout_s)
            assert ended, f"the stream did not end within {timeout_s} s: {self.seen}"
            return self._end


@dataclass(frozen=True)
class Confirm:
    """A confirm of numbers first..last; `multiple`: of all unanswered ones up to last (P2)."""

    first: int
    last: int
    multiple: bool


@dataclass(frozen=True)
class Nack:
    """A nack of numbers first..last (P8)."""

    first: int
    last: int
    multiple: bool
    # The broker's code for the reason, if it reports one.
    reason: str | None


@dataclass(frozen=True)
class Return:
    """A returned mandatory message that no queue took (P7)."""

    number: int
    body: bytes
    reason: str


@dataclass(frozen=True)
class Blocked:
    """The broker blocks publishers (P14)."""

    reason: str


@dataclass(frozen=True)
class Unblocked:
    """The broker accepts publishes again (P14)."""


@dataclass(frozen=True)
class Finished:
    """The answer to a commit or rollback (P13)."""

    # Why a commit was refused; None: it took effect.
    refused: Exception | None = None
    # It took effect earlier, on a previous stream.
    repeated: bool = False


Answer = Confirm | Nack | Return | Blocked | Unblocked | Finished


class Answers(EventLog[Answer]):
    """A publisher's answers, checked against P2 and P3: one per number, confirm or nack.

    Attributes:
        sent: Numbers that were published.
        confirmed: Numbers that were confirmed.
        nacked: Numbers that were refused, each with the reason.
        returned: Returned messages by number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent: set[int] = set()
        self.confirmed: set[int] = set()
        self.nacked: dict[int, str | None] = {}
        self.returned: dict[int, Return] = {}
        self._lowest = 1

    def add(self, event: Answer) -> None:
        """Adds an answer; a second answer for a number ends the log with an error (P3)."""
        with self._changed:
            try:
                self._note(event)
            except AssertionError as broken:
                self.end(broken)
            super().add(event)

    @property
    def lowest_unanswered(self) -> int:
        """The lowest publish number without an answer."""
        with self._changed:
            while self._lowest in self.confirmed or self._lowest in self.nacked:
                self._lowest += 1
            return self._lowest

    def ask_again(self, first: int, last: int) -> None:
        """Expects one more answer for the numbers first..last, as a probe asked for it (P10)."""
        with self._changed:
            self.confirmed -= set(range(first, last + 1))
            self._lowest = min(self._lowest, first)

    def all(self, timeout_s: float = TIMEOUT_S) -> Answers:
        """Waits until every published number has its answer."""
        self.wait(
            lambda: True if len(self.confirmed) + len(self.nacked) == len(self.sent) else None,
            timeout_s,
            "the last answer",
        )
        return self

    def next(self, kind: type[T], timeout_s: float = TIMEOUT_S, *, after: int = 0) -> T:
        """Waits for the first answer of a kind, from index `after` on."""
        return self.wait(
            lambda: next((event for event in self.seen[after:] if isinstance(event, kind)), None),
            timeout_s,
            kind.__name__,
        )

    def _note(self, event: Answer) -> None:
        match event:
            case Confirm():
                self.confirmed.update(self._answered(event))
            case Nack():
                self.nacked.update(dict.fromkeys(self._answered(event), event.reason))
            case Return():
                assert event.number not in self.confirmed, f"{event} after its confirm (P7)"
                self.returned[event.number] = event

    def _answered(self, event: Confirm | Nack) -> set[int]:
        """The publish numbers that an answer newly answers."""
        first = self.lowest_unanswered if event.multiple else event.first
        numbers = set(range(first, event.last + 1))
        before = {n for n in numbers if n in self.confirmed or n in self.nacked}
        if event.multiple:
            numbers -= before
            assert numbers, f"{event} answers nothing (P3)"
        else:
            assert not before, f"{event} answers {sorted(before)} again (P3)"
        unsent = numbers - self.sent
        assert not unsent, f"{event} answers {sorted(unsent)}, which were not published (P3)"
        return numbers
