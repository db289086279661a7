"""Messages as lines of JSON, the format of `ackq consume --jsonl` and `ackq publish --jsonl`.

Invariant: a line that a consumer printed can be published again, with the same properties but for
exchange and time to live, which a delivery does not have.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from ackq.errors import InvalidArgumentError

_TEXTS: Final = (
    "routing_key",
    "exchange",
    "message_id",
    "correlation_id",
    "reply_to",
    "content_type",
)
# Fields that a delivery adds to its message; they are not published.
_OF_A_DELIVERY: Final = frozenset(
    (
        "version",
        "queue",
        "delivery_tag",
        "position",
        "redelivered",
        "delivery_count",
        "deliveries",
        "leased",
        "expires_at",
        "dead_letter",
    )
)
_REMEDY: Final = 'write {"body": "...", "message_id": "..."}.'
_TIME_REMEDY: Final = "write 2013-01-01T05:15:00+00:00"
_BODIES: Final = frozenset(("body", "body_base64", "body_encoding"))


def properties(line: bytes) -> dict[str, Any]:
    """The arguments of `Publisher.publish` that a line of JSON describes.

    Args:
        line: An object with `body`, or `body_base64` for bytes that are no text, and any of
            `message_id`, `correlation_id`, `reply_to`, `content_type`, `headers`, `routing_key`,
            `exchange`, `ttl_ms`, `persistent` and `published_at`. A null counts as absent, but in
            `headers` it is a value, which a write of Spark can make.

    Raises:
        InvalidArgumentError: The line is no such object; the message names the field.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        flaw = json_flaw(error).replace("line 1, ", "")
        raise InvalidArgumentError(f"The line is {flaw}; {_REMEDY}") from error
    if not isinstance(fields, dict):
        raise InvalidArgumentError(f"The line is not a JSON object; {_REMEDY}", field="")
    found: dict[str, Any] = {"body": _body(fields)}
    for name, value in fields.items():
        if value is None or name in _BODIES or name in _OF_A_DELIVERY:
            continue
        if name not in _READERS:
            raise _wrong(name, f"is unknown; a line may have {', '.join(('body', *_READERS))}")
        found[name] = _READERS[name](name, value)
    return found


def json_flaw(error: ValueError | RecursionError) -> str:
    """Why a text cannot be read as JSON, and where: `not JSON at line 1, column 2`."""
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start + 1}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return "not JSON, as a number has too many digits"


def _body(fields: Mapping[str, Any]) -> bytes:
    text, encoded = fields.get("body"), fields.get("body_base64")
    if text is not None and encoded is not None:
        raise _wrong("body_base64", "was given together with 'body'; give one of the two")
    if fields.get("body_encoding") == "base64":
        text, encoded = None, text
    if encoded is not None:
        try:
            return base64.b64decode(_text("body_base64", encoded), validate=True)
        except binascii.Error as error:
            raise _wrong("body_base64", "is not base64; give text as 'body'") from error
    if text is None:
        raise _wrong("body", "is missing; give it, or 'body_base64' for bytes")
    try:
        return _text("body", text).encode()
    except UnicodeEncodeError as error:
        raise _wrong("body", f"is not text: {error.reason}; give bytes as 'body_base64'") from error


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(name, f"is {json.dumps(value)}; it must be a string")
    return value


def _headers(name: str, value: object) -> dict[str, str | None]:
    if not isinstance(value, dict):
        raise _wrong(name, f"is {json.dumps(value)}; it must be an object of strings")
    return {
        key: None if each is None else _text(f"{name}.{key}", each) for key, each in value.items()
    }


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, f"is {json.dumps(value)}; it must be true or false")
    return value


def _number(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, f"is {json.dumps(value)}; it must be a whole number")
    return value


def _time(name: str, value: object) -> datetime:
    try:
        found = datetime.fromisoformat(_text(name, value))
    except ValueError as error:
        raise _wrong(name, f"is not a time; {_TIME_REMEDY}") from error
    if found.tzinfo is None:
        raise _wrong(name, f"has no time zone; {_TIME_REMEDY}")
    return found


def _wrong(field: str, problem: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"The field '{field}' {problem}.", field=field)


_READERS: Final[dict[str, Callable[[str, object], object]]] = {
    **dict.fromkeys(_TEXTS, _text),
    "headers": _headers,
    "ttl_ms": _number,
    "persistent": _flag,
    "published_at": _time,
}
