"""Events that an operator should know about, one log line each (M3).

A line is a sentence for people; a log in JSON has the event's name and fields next to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from ackq_broker.core.checks import plural

# The most queues that a summary names.
_MOST_NAMED: Final = 10


def event(name: str, **fields: object) -> dict[str, object]:
    """The `extra` of a log call: the event's name, and its fields as JSON can hold them."""
    return {"event": name, "fields": fields}


def dead_letters_line(counts: Mapping[tuple[str, str], int]) -> str:
    """Log line with the numbers of new dead letters by queue and cause, the largest first.

    Args:
        counts: Numbers of messages by queue and cause.
    """
    named = Counter(counts).most_common(_MOST_NAMED)
    said = ", ".join(f"'{queue}' {count} {cause}" for (queue, cause), count in named)
    more = f" and {len(counts) - len(named)} more" if len(counts) > len(named) else ""
    return f"{plural(sum(counts.values()), 'message')} became dead letters: {said}{more}"
