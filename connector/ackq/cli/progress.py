"""Progress of a long command: a bar on a terminal, and pacing to a given rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

T = TypeVar("T")

# Maximum delay, such as of a sleep that took longer, that the pace catches up.
_CATCH_UP_S: Final = 0.1
# Interval at which a bar is drawn.
_EVERY_S: Final = 0.1


def paced(
    items: Iterable[T],
    per_second: float,
    *,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[T]:
    """Yields the items evenly, at most `per_second` of them in a second."""
    due_s = now_s()
    for item in items:
        at_s = now_s()
        if due_s > at_s:
            sleep(due_s - at_s)
        yield item
        due_s = max(due_s, at_s - _CATCH_UP_S) + 1 / per_second


@contextmanager
def bar(total_bytes: int | None, confirmed: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """Draws a bar of the bytes read and messages confirmed on stderr while the block runs.

    Args:
        total_bytes: Size of the input; None if it is unknown.
        confirmed: Returns the number of messages confirmed so far.

    Yields:
        A function to call with the size in bytes of each message that was read.
    """
    from rich.console import Console  # noqa: PLC0415 - takes 0.1 s, needed on a terminal only
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
