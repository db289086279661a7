"""What came over a stream, in its order; every wait for it ends at a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

TIMEOUT_S = 20.0
_POLL_S = 0.01


def until(ready: Callable[[], T], timeout_s: float = TIMEOUT_S, poll_s: float = _POLL_S) -> T:
    """Asks again and again until the answer is true, and returns it.

    For what a broker tells only when asked, such as its counts.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = ready()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(poll_s)


class EventLog(Generic[T]):
    """Events in the order they came. Filled by the thread that reads, waited for by the test."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._end: BaseException | None = None
        self.seen: list[T] = []

    def add(self, event: T) -> None:
        """One more event."""
        with self._changed:
            self.seen.append(event)
            self._changed.notify_all()

    def wake(self) -> None:
        """Something that is waited for changed beside the log."""
        with self._changed:
            self._changed.notify_all()

    def end(self, error: BaseException) -> None:
        """Nothing comes any more; the first reason stands."""
        with self._changed:
            self._end = self._end or error
            self._changed.notify_all()

    def wait(
        self, found: Callable[[], T | None], timeout_s: float = TIMEOUT_S, what: str = "the event"
    ) -> T:
        """What `found` returns once it is not None; it is asked after every event.

        Raises:
            BaseException: Why the stream ended, when it did before.
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

    def wait_end(self, timeout_s: float = TIMEOUT_S) -> BaseException:
        """Why the stream ended, once it did."""
        with self._changed:
            ended = self._changed.wait_for(lambda: self._end is not None, timeout_s)
            assert ended, f"the stream did not end within {timeout_s} s: {self.seen}"
            return self._end


@dataclass(frozen=True)
class Confirm:
    """Numbers first..last are handled; `multiple`: all up to last that have no answer yet (P2)."""

    first: int
    last: int
    multiple: bool


@dataclass(frozen=True)
class Nack:
    """Numbers first..last were refused (P8)."""

    first: int
    last: int
    multiple: bool
    # The broker's code for why, where it tells.
    reason: str | None


@dataclass(frozen=True)
class Return:
    """A mandatory message that no queue wanted (P7)."""

    number: int
    body: bytes
    reason: str


@dataclass(frozen=True)
class Blocked:
    """The broker takes no publishes (P14)."""

    reason: str


@dataclass(frozen=True)
class Unblocked:
    """It does again (P14)."""


@dataclass(frozen=True)
class Finished:
    """The answer to a commit or rollback (P13)."""

    # Why a commit was refused; None: it took effect.
    refused: Exception | None = None
    # It took effect before, on an earlier stream.
    repeated: bool = False


Answer = Confirm | Nack | Return | Blocked | Unblocked | Finished


class Answers(EventLog[Answer]):
    """A publisher's answers, kept as P2 and P3 say: one for each number, confirm or nack.

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
        """One more answer; a second one for a number breaks the log (P3)."""
        with self._changed:
            try:
                self._note(event)
            except AssertionError as broken:
                self.end(broken)
            super().add(event)

    @property
    def lowest_unanswered(self) -> int:
        """The lowest number that has no answer."""
        with self._changed:
            while self._lowest in self.confirmed or self._lowest in self.nacked:
                self._lowest += 1
            return self._lowest

    def ask_again(self, first: int, last: int) -> None:
        """The numbers first..last will be answered once more: a probe asked for it (P10)."""
        with self._changed:
            self.confirmed -= set(range(first, last + 1))
            self._lowest = min(self._lowest, first)

    def all(self, timeout_s: float = TIMEOUT_S) -> Answers:
        """Waits until every number that was published has its answer."""
        self.wait(
            lambda: True if len(self.confirmed) + len(self.nacked) == len(self.sent) else None,
            timeout_s,
            "the last answer",
        )
        return self

    def next(self, kind: type[T], timeout_s: float = TIMEOUT_S, *, after: int = 0) -> T:
        """The first answer of a kind, among those from index `after` on."""
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
        """The numbers that an answer newly answers."""
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
