"""Log lines of a link: a sentence for people, and the event's name and fields for JSON logs."""

from __future__ import annotations

import logging

_log = logging.getLogger("ackq_link")


def log(level: int, link: str, name: str, sentence: str, **fields: object) -> None:
    """Logs an event of a link: `link_` and its name, the link and its fields."""
    _log.log(
        level,
        "link %s: %s",
        link,
        sentence,
        extra={"event": f"link_{name}", "fields": {"link": link, **fields}},
    )
