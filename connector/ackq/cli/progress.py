"""How far a long command is: a bar on a terminal, and the pace that it was asked to keep."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

T = TypeVar("T")

# A pace that fell behind, by a sleep that took longer, may be caught up by so much.
_CATCH_UP_S: Final = 0.1
# A bar is drawn so often.
_EVERY_S: Final = 0.1


def paced(
    items: Iterable[T],
    per_second: float,
    *,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[T]:
    """The items, at most so many in a second, evenly."""
    due_s = now_s()
    for item in items:
        at_s = now_s()
        if due_s > at_s:
            sleep(due_s - at_s)
        yield item
        due_s = max(due_s, at_s - _CATCH_UP_S) + 1 / per_second


@contextmanager
def bar(total_bytes: int | None, confirmed: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """Draws on stderr, a terminal, how much was read and confirmed while the block runs.

    Args:
        total_bytes: What there is to read; None when nobody knows.
        confirmed: Gives the messages that are confirmed so far.

    Yields:
        Is told the bytes of each message that was read.
    """
    from rich.console import Console  # noqa: PLC0415 - takes 0.1 s, for a terminal alone
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    drawn = Progress(
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        refresh_per_second=1 / _EVERY_S,
        transient=True,
    )
    task = drawn.add_task("", total=total_bytes)
    began_s = time.monotonic()
    read_bytes = 0
    drawn_s = 0.0

    def read(size: int) -> None:
        nonlocal read_bytes, drawn_s
        read_bytes += size
        now_s = time.monotonic()
        if now_s - drawn_s >= _EVERY_S:
            drawn_s = now_s
            count = confirmed()
            rate = count / max(now_s - began_s, _EVERY_S)
            described = f"{count:,} confirmed, {rate:,.0f}/s"
            drawn.update(task, completed=read_bytes, description=described)

    with drawn:
        yield read
