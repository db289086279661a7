"""Formats numbers for people: counts with their noun, sizes, durations and times."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import Final

_DURATIONS: Final = (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_SIZES: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def count(number: int, noun: str) -> str:
    """A count with its noun: `1 message`, `12,000 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def are(number: int, noun: str) -> str:
    """A count with its noun and verb: `1 message is`, `12,000 messages are`."""
    return f"{count(number, noun)} {'is' if number == 1 else 'are'}"


def size(number: int) -> str:
    """A size: `515 bytes`, `1.5 MiB`."""
    for unit, factor in _SIZES:
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return count(number, "byte")


def duration(milliseconds: int) -> str:
    """A duration: `250 ms`, `12 s`, `3.5 min`, `2.0 days`."""
    for unit, factor in _DURATIONS:
        if milliseconds >= factor:
            value = milliseconds / factor
            return f"{value:.0f} s" if unit == "s" else f"{value:.1f} {unit}"
    return f"{milliseconds} ms"


def since(age_ms: int, now_us: int) -> str:
    """A duration and its start: `for 3.5 min (since 2013-01-01 10:00:00 UTC)`.

    The start is left out when the broker's time is not known.
    """
    if not now_us:
        return f"for {duration(age_ms)}"
    return f"for {duration(age_ms)} (since {instant(now_us - age_ms * 1000)})"


def instant(at_us: int) -> str:
    """A time, `2013-01-01 10:00:00 UTC`, from microseconds since the epoch."""
    at = datetime.fromtimestamp(at_us // 1_000_000, UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def positions(first: int, last: int) -> str:
    """One position or a range of them: `position 7`, `positions 7 to 12`."""
    return f"position {first}" if first == last else f"positions {first} to {last}"


def argument(name: str) -> str:
    """A name quoted for a shell, as remedies are copied into one."""
    return shlex.quote(name)
