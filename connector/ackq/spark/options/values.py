"""Parsers of option texts; an invalid text is refused with a description of the valid ones.

Each function takes the option's name, for the message, and its text.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from ackq import limits, units
from ackq.client.connection.security import check_token
from ackq.errors import InvalidArgumentError
from ackq.outcomes import Outcome
from ackq.units import refusal as reject


class Guarantee(Enum):
    """Delivery guarantee of the sink (K3, K4)."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class StartFrom(NamedTuple):
    """Where a new query begins in what its session retained (S14); the fields of `RewindPoint`."""

    batch_id: int | None = None
    from_us: int = 0


# Names of outcomes (C4) in options and columns.
OUTCOMES: Final = tuple(outcome.value for outcome in Outcome)
# Instead of an outcome: the column `outcome` has each row's.
BY_COLUMN: Final = "column"

# Valid texts of `delay`.
DELAYS: Final = "1 ms or more, as milliseconds or with a unit like 30s, 100 years at most"


def text(name: str, value: str) -> str:
    """Text, not empty."""
    if not value.strip():
        raise reject(name, value, "a value that is not empty")
    return value.strip()


def any_text(_name: str, value: str) -> str:
    """Text, possibly empty."""
    return value


def token(name: str, value: str) -> str:
    """A secret, which no message shows."""
    check_token(value.strip(), f"Option '{name}'")
    return text(name, value)


def endpoint(name: str, value: str) -> str:
    """Address of a broker, without scheme, path or user."""
    if re.fullmatch(r"unix:.+", value.strip()):
        return value.strip()
    found = re.fullmatch(r"[^\s/@,]+:([0-9]{1,5})", value.strip())
    if not found or not 0 < int(found[1]) < 1 << 16:
        # The part before an @ may be a password.
        shown = re.sub(r".*@", "***@", value, flags=re.DOTALL)
        raise reject(name, shown, "the broker's host:port, for instance localhost:5775")
    return value.strip()


def endpoints(name: str, value: str) -> tuple[str, ...]:
    """Addresses of one broker or several, separated by commas (S12)."""
    found = tuple(endpoint(name, part) for part in value.split(","))
    if len(set(found)) != len(found):
        raise reject(name, value, "distinct endpoints, separated by commas")
    return found


def names(name: str, value: str) -> tuple[str, ...]:
    """Distinct names, separated by commas."""
    names = tuple(part.strip() for part in value.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise reject(name, value, "distinct names, separated by commas")
    return names


def flag(name: str, value: str) -> bool:
    """True or false."""
    if value.strip().lower() not in {"true", "false"}:
        raise reject(name, value, "true or false")
    return value.strip().lower() == "true"


def whole(name: str, value: str) -> int:
    """Whole number, 0 or more."""
    if not re.fullmatch(r"[0-9]{1,18}", value.strip()):
        raise reject(name, value, "a whole number, 0 or more")
    return int(value)


def count(name: str, value: str) -> int:
    """Whole number, 1 or more."""
    if not re.fullmatch(r"[0-9]{1,18}", value.strip()) or not int(value):
        raise reject(name, value, "a whole number, 1 or more")
    return int(value)


def size(name: str, value: str) -> int:
    """Bytes; units are powers of 1024, as everywhere in Spark."""
    return units.byte_count(value, option=name)


def duration(name: str, value: str) -> int:
    """Milliseconds; a number without a unit is refused as ambiguous."""
    return units.milliseconds(value, option=name)


def duration_or_never(name: str, value: str) -> int:
    """Milliseconds, 0 for "never"; a time of 0 is refused as ambiguous."""
    if value.strip().lower() == "never":
        return 0
    found_ms = duration(name, value)
    if not found_ms:
        raise reject(name, value, "never, or a time above 0 with its unit, for instance 10m")
    return found_ms


def instant(name: str, value: str) -> int:
    """Microseconds since the epoch, of a time in ISO 8601; one without a zone is ambiguous."""
    return units.instant_us(value, option=name)


def start_from(name: str, value: str) -> StartFrom:
    """`earliest`, the number of a batch, or a time (S14)."""
    text = value.strip().lower()
    if text == "earliest":
        return StartFrom()
    if re.fullmatch(r"[0-9]{1,18}", text):
        return StartFrom(batch_id=int(text))
    try:
        return StartFrom(from_us=units.instant_us(value, option=name))
    except InvalidArgumentError:
        wanted = "earliest, the number of a batch, or a time such as 2026-11-24T18:00Z"
        raise reject(name, value, wanted) from None


def longest_wait(name: str, value: str) -> int:
    """Milliseconds; 0 is refused: in the protocol it means a time without end (L21, S13)."""
    found_ms = duration(name, value)
    if not found_ms:
        raise reject(name, value, "a time above 0 with its unit, for instance 15m")
    return found_ms


def delay(name: str, value: str) -> int:
    """Milliseconds, from a number or a time with its unit; 0 is refused: the protocol's "none"."""
    try:
        return units.milliseconds(
            value, option=name, bare="ms", least_ms=1, most_ms=limits.MAX_TTL_MS
        )
    except InvalidArgumentError:
        raise reject(name, value, f"{DELAYS}; leave it out for the delay of the queue") from None


def outcome(name: str, value: str) -> str | None:
    """Name of an outcome; None for "column"."""
    text = value.strip().lower()
    if text not in (*OUTCOMES, BY_COLUMN):
        raise reject(
            name,
            value,
            f"{', '.join(OUTCOMES)}, or {BY_COLUMN}: each row has it in column 'outcome'",
        )
    return None if text == BY_COLUMN else text


def guarantee(name: str, value: str) -> Guarantee:
    """A delivery guarantee."""
    try:
        return Guarantee(value.strip().lower())
    except ValueError:
        raise reject(name, value, "exactly-once or at-least-once") from None


def fail_or_keep(name: str, value: str) -> bool:
    """Whether to keep a batch that was committed before instead of failing."""
    return _instead_of_failing(name, value, "keep", "the batch that was committed before stays")


def hold_or_skip(name: str, value: str) -> bool:
    """Whether to go on without an edge that does not answer."""
    text = value.strip().lower()
    if text not in {"hold", "skip"}:
        raise reject(name, value, "hold, or skip: the other edges are read")
    return text == "skip"


def fail_or_accept(name: str, value: str) -> bool:
    """Whether to accept an unread batch instead of failing."""
    return _instead_of_failing(name, value, "accept", "the rows are not needed")


def _instead_of_failing(name: str, value: str, word: str, meaning: str) -> bool:
    text = value.strip().lower()
    if text not in {"fail", word}:
        raise reject(name, value, f"fail, or {word}: {meaning}")
    return text == word
