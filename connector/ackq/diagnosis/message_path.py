"""Describes in sentences where a message is now, as far as the broker's state shows it (Q9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ackq.diagnosis.wording import count, duration
from ackq.info import Holding, SessionInfo

# Headers of a dead letter (C13).
_DEAD: Final = "ackq-dead-"


@dataclass(frozen=True, slots=True)
class Hit:
    """A message found in a queue by its id.

    Attributes:
        queue: The queue's name.
        row: The message's columns, as returned by a browse.
        holding: The holding that has the message; None: nobody holds it.
        session: The session that holds the message, if one does.
    """

    queue: str
    row: Mapping[str, Any]
    holding: Holding | None = None
    session: SessionInfo | None = None

    def as_dict(self) -> dict[str, Any]:
        """The facts about the message as JSON values."""
        headers = dict(self.row["headers"] or ())
        holding, session = self.holding, self.session
        return {
            "queue": self.queue,
            "position": self.row["position"],
            "state": "unacked" if self.row["leased"] else "ready",
            "deliveries": self.row["delivery_count"] - (not self.row["leased"]),
            "published_at": self.row["published_at"].isoformat(),
            "session": holding.session if holding is not None else "",
            "channel": holding.channel if holding is not None else "",
            "delivery_tag": holding.delivery_tag if holding is not None else 0,
            "query_id": session.query_id if session is not None and session.fetched else "",
            "batch_id": session.batch_id if session is not None and session.fetched else None,
            "attempts": session.attaches if session is not None else None,
            "dead_letter": {
                name.removeprefix(_DEAD): value
                for name, value in headers.items()
                if name.startswith(_DEAD)
            },
        }


def path_of(hit: Hit) -> list[str]:
    """Sentences about one message: its place and state, and if it is a dead letter, why."""
    row = hit.row
    told = [
        (
            f"In queue '{hit.queue}' at position {row['position']}, published at "
            f"{row['published_at']:%Y-%m-%d %H:%M:%S} UTC: {_state(hit)}."
        )
    ]
    headers = dict(row["headers"] or ())
    if f"{_DEAD}cause" in headers:
        told.append(_death(headers))
    return told


def not_found(message_id: str, looked_at: int, queues: Sequence[str]) -> str:
    """The sentence for an id that no queue has a message with, and the possible reasons."""
    where = f"queue '{queues[0]}'" if len(queues) == 1 else count(len(queues), "queue")
    return (
        f"No message with the id '{message_id}' is in a queue now (searched:"
        f" {count(looked_at, 'message')} in {where}). It was never published, or it has left its"
        " queue: accepted, dropped or expired."
    )


def _state(hit: Hit) -> str:
    before = hit.row["delivery_count"] - 1
    times = f"; it was delivered {count(before, 'time')} before" if before else ""
    holding, session = hit.holding, hit.session
    if not hit.row["leased"]:
        return f"it waits for delivery{times}"
    if holding is None:
        return f"unacked{times}; its holder has just released it"
    since = duration(holding.age_ms)
    if session is None:
        return f"unacked at the client '{holding.channel}' for {since}{times}"
    batch = (
        f" for batch {session.batch_id} of query {session.query_id}, attempt {session.attaches}"
        if session.fetched and session.query_id
        else f", attempt {session.attaches}; its rows were not read yet"
    )
    gone = "" if session.live else ", whose query is not connected"
    return (
        f"leased by session '{holding.session}'{gone} for {since} under tag {holding.delivery_tag}"
        f"{batch}{times}"
    )


def _death(headers: Mapping[str, str]) -> str:
    """The sentence about the cause and the origin of a dead letter."""

    def get(name: str) -> str:
        return headers.get(f"{_DEAD}{name}", "?")

    reason = f", reason '{get('reason')}'" if get("reason") != get("cause") else ""
    settled = f" by session '{get('session')}'" if f"{_DEAD}session" in headers else ""
    batch = f" in batch {get('batch')}" if f"{_DEAD}batch" in headers else ""
    return (
        f"It is a dead letter: {get('cause')}{reason}{settled}{batch}, at {get('at')}, from queue "
        f"'{get('queue')}' position {get('position')}, at delivery {get('deliveries')}. It was "
        f"dead-lettered from that queue for this cause {_times(get('count'))}; the first time was "
        f"from queue '{get('first-queue')}'."
    )


def _times(number: str) -> str:
    return "once" if number == "1" else f"{number} times"
