"""Messages of a queue for the dashboard: a browse (Q5), bounded in rows and bytes, as plain values.

Invariant: no state changes, and only a few frames are read, however large messages are.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ackq import limits
from ackq.v1 import admin_pb2
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, frame

MOST_MESSAGES: Final = 100
# The most bytes sent of a body, and the bytes at which reading ends.
_BODY_BYTES: Final = 16 * limits.KIB
_READ_BYTES: Final = 2 * limits.MAX_FRAME_BYTES
_MOST_HEADERS: Final = 100
_TEXT_CHARACTERS: Final = 1024
_TEXTS: Final = ("routing_key", "message_id", "correlation_id", "reply_to", "content_type")

_Frame = frame.Frame[pb.DeliveryRuns]
_Write = Callable[[_Frame], Awaitable[None]]
_Browse = Callable[[admin_pb2.BrowseRequest, _Write], Awaitable[None]]
_Run = Callable[[Callable[[], list[dict[str, Any]]]], Awaitable[list[dict[str, Any]]]]


class _EnoughError(Exception):
    """Ends a browse whose frames were large."""


class Peeked(NamedTuple):
    """Messages as values for JSON, and whether the queue has more after them."""

    rows: list[dict[str, Any]]
    more: bool


async def peek(
    browse: _Browse, run: _Run, queue: str, first_position: int, messages: int
) -> Peeked:
    """The messages of a queue from a position on, fewer when they are large.

    Args:
        browse: The browse call of the servicer.
        run: Runs work in a thread.
        queue: Name of the queue.
        first_position: First position; 0 is the head.
        messages: The most messages, at most `MOST_MESSAGES`.

    Raises:
        QueueNotFoundError: No such queue.
    """
    found: list[dict[str, Any]] = []
    read = 0

    async def write(sent: _Frame) -> None:
        nonlocal read
        found.extend(await run(lambda: rows_of(sent)))
        read += len(sent.block)
        if read >= _READ_BYTES:
            raise _EnoughError

    most = min(max(1, messages), MOST_MESSAGES)
    request = admin_pb2.BrowseRequest(
        queue=queue, first_position=first_position, max_messages=most + 1
    )
    try:
        await browse(request, write)
    except _EnoughError:
        return Peeked(found[:most], more=True)
    return Peeked(found[:most], more=len(found) > most)


def rows_of(sent: _Frame) -> list[dict[str, Any]]:
    """The messages of a frame as values for JSON: bodies in base64, long texts cut."""
    runs, held = sent.header, block.decode(sent.block)
    tags = [
        (first + at, count, bool(leased))
        for first, rows, count, leased in zip(
            runs.first_tag, runs.rows, runs.delivery_count, runs.leased, strict=True
        )
        for at in range(rows)
    ]
    return [
        {"position": position, "delivery_count": count, "leased": leased, **_message(held, at)}
        for at, (position, count, leased) in enumerate(tags)
    ]


def _message(held: block.Block, at: int) -> dict[str, Any]:
    """The message at row `at` of a block, as values for JSON."""
    header, batch = held
    here = {name: batch.column(name)[at] for name in batch.schema.names}
    texts = {name: here[name].as_py() for name in _TEXTS if name in here}
    if not texts.get("routing_key"):
        texts["routing_key"] = header.routing_key
    body = here["body"].as_buffer() if "body" in here and here["body"].is_valid else None
    persistent = here["persistent"].as_py() if "persistent" in here else None
    if persistent is None:
        persistent = header.delivery_mode != pb.DELIVERY_MODE_NON_PERSISTENT
    headers = (here["headers"].as_py() if "headers" in here else None) or []
    return {
        **{name: _cut(text) for name, text in texts.items() if text},
        "body": base64.b64encode(memoryview(body)[:_BODY_BYTES]).decode() if body else "",
        "body_bytes": body.size if body is not None else 0,
        "headers": [[_cut(name), _cut(text or "")] for name, text in headers[:_MOST_HEADERS]],
        "header_count": len(headers),
        "persistent": persistent,
        "published_at_us": _microseconds(here.get("published_at")) or header.published_at_us,
        "expires_at_us": _microseconds(here.get("expires_at")),
    }


def _microseconds(value: pa.Scalar | None) -> int:
    """Microseconds since the Unix epoch; 0 for none."""
    return value.value if value is not None and value.is_valid else 0


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_CHARACTERS else f"{text[:_TEXT_CHARACTERS]}…"
