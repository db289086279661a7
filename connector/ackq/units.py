"""Parses durations, sizes and times such as `30s` and `64m`, for every setting that takes text.

Options of Spark, arguments of the commands, a broker's configuration and programs all use it, so
that a text means the same everywhere. Case does not matter, and a space before the unit is allowed.
The letter `m` is minutes in a duration and MiB in a size; no letter means months, or bits.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

from ackq.errors import InvalidArgumentError

# Maximum of a signed 64-bit number, which the protocol's fields and Spark's columns hold.
MOST: Final = (1 << 63) - 1

DURATIONS: Final = "500ms, 30s, 5m (minutes), 2h or 1d"
SIZES: Final = "64k, 256m (MiB), 1g or 512MiB"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
_DURATION: Final = re.compile(rf"{_NUMBER}\s*(ms|s|m|min|h|d|)")
_SIZE: Final = re.compile(rf"{_NUMBER}\s*(?:([kmgt])i?b?|b|)")
_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES: Final = {None: 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# The unit of a number without one, as an error names it.
_BARE: Final = {"ms": "milliseconds"}


def milliseconds(
    text: str, *, option: str, bare: str = "", least_ms: int = 0, most_ms: int = MOST
) -> int:
    """The milliseconds of a duration: a number and its unit, `ms`, `s`, `m` or `min`, `h`, `d`.

    Args:
        text: For instance `250ms`, `30s`, `5m` (five minutes), `1.5h`, `2d`.
        option: The option that has this text, as its user knows it; the error names it.
        bare: The unit of a number without one, `ms`; "" refuses it as ambiguous.
        least_ms: The shortest duration allowed.
        most_ms: The longest duration allowed.

    Raises:
        InvalidArgumentError: The text is not a duration, not a whole number of milliseconds, or out
            of range; the message has examples. `fields` are `option` and `value`.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    unit = (found[2] or bare) if found else ""
    if found and unit:
        exact = Fraction(found[1]) * _MS[unit]
        if exact.denominator == 1 and least_ms <= exact <= most_ms:
            return int(exact)
    plain = f"a number of {_BARE[bare]}, or " if bare else ""
    ends = _range(least_ms, most_ms, "ms")
    raise refusal(option, text, f"{plain}a time with its unit, for instance {DURATIONS}{ends}")


def instant_us(text: str, *, option: str) -> int:
    """The microseconds since the epoch of a time in ISO 8601; one without a zone is ambiguous.

    Raises:
        InvalidArgumentError: As `milliseconds`.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or found.timestamp() <= 0:
        raise refusal(option, text, "a time with its zone, for instance 2026-11-24T18:00Z")
    return (found - _EPOCH) // timedelta(microseconds=1)


def byte_count(text: str, *, option: str, least_bytes: int = 1, most_bytes: int = MOST) -> int:
    """The bytes of a size: a number, alone or with `k`, `m`, `g` or `t`, which are powers of 1024.

    Args:
        text: For instance `65536`, `64k`, `64m`, `64MB`, `64Mi`, `64MiB` (all four are 64 MiB).
        option: The option that has this text, as its user knows it; the error names it.
        least_bytes: The smallest size allowed.
        most_bytes: The largest size allowed.

    Raises:
        InvalidArgumentError: The text is not a size, not a whole number of bytes, or out of range;
            the message has examples. `fields` are `option` and `value`.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found:
        exact = Fraction(found[1]) * _BYTES[found[2]]
        if exact.denominator == 1 and least_bytes <= exact <= most_bytes:
            return int(exact)
    ends = _range(least_bytes, most_bytes, "bytes")
    raise refusal(option, text, f"a size in bytes or with its unit, for instance {SIZES}{ends}")


def refusal(option: str, value: str, expected: str) -> InvalidArgumentError:
    """The error for a text that an option does not take; `expected` completes "it takes ..."."""
    return InvalidArgumentError(
        f"Option '{option}' is '{value}'; it takes {expected}.", option=option, value=value
    )


def _range(least: int, most: int, unit: str) -> str:
    """The limits of a range as text, without trivial ones."""
    above = f"; {least} {unit} at least" if least > (unit == "bytes") else ""
    return above + (f"; {most} {unit} at most" if most < MOST else "")
