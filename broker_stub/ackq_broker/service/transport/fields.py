"""Fields of messages on the wire: bounded texts (I6), error details, dispositions (C4).

Invariant: an error fits the metadata of a gRPC answer, whatever names it contains.
"""

from __future__ import annotations

from typing import Final

from ackq import limits
from ackq.errors import AckqError, InvalidArgumentError
from ackq.outcomes import Disposition, Outcome
from ackq.text import printable
from ackq.v1 import consuming_pb2, messages_pb2, sessions_pb2
from ackq.wire.outcomes import FROM_WIRE

# Maximum bytes of a client's own names: its label, host, application, writer.
_LABEL_BYTES: Final = 4 * limits.MAX_NAME_BYTES
_ID_BYTES: Final = 16
_ELLIPSIS: Final = "..."
# gRPC drops a call with more than 8 KiB of metadata, and the error with it. The metadata contains
# the message twice, once encoded with up to three bytes for each byte.
_MESSAGE_BYTES: Final = 1024
_FIELD_BYTES: Final = 256
_NEEDS_REASON: Final = (Outcome.FAILED, Outcome.REJECTED)
_NEEDS_DELAY: Final = (Outcome.FAILED, Outcome.RELEASED)


def shorten(text: str, most: int = _LABEL_BYTES) -> str:
    """The text, truncated if it has more than `most` bytes."""
    data = text.encode()
    if len(data) <= most:
        return text
    return data[: most - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS


def check_attempt(attempt: bytes) -> None:
    """Checks the attempt that names an opening (P10); raises InvalidArgumentError."""
    if len(attempt) > _ID_BYTES:
        raise InvalidArgumentError(
            f"An opening has an attempt of {_ID_BYTES} bytes at most, not {len(attempt)}."
        )


def check_id(what: str, name: bytes) -> None:
    """Checks that an id or a token has 16 bytes; raises InvalidArgumentError."""
    if len(name) != _ID_BYTES:
        raise InvalidArgumentError(f"{what} has {_ID_BYTES} random bytes, not {len(name)}.")


def check_identifier(what: str, text: str, most: int = _LABEL_BYTES) -> None:
    """Checks the length of a text that must not be truncated, because it is compared.

    Raises:
        InvalidArgumentError: It has more than `most` bytes.
    """
    size = len(text.encode())
    if size > most:
        raise InvalidArgumentError(
            f"The {what} '{text[:40]}...' has {size} bytes; at most {most} are allowed. Use a"
            " shorter one.",
            limit=most,
        )


def error_detail(error: AckqError) -> messages_pb2.ErrorDetail:
    """Converts an error to its wire form; `ackq.errors.from_code` is the inverse.

    The message is one line, whatever names it contains.
    """
    return messages_pb2.ErrorDetail(
        code=error.code,
        message=shorten(printable(error.message), _MESSAGE_BYTES),
        fields={name: shorten(value, _FIELD_BYTES) for name, value in error.fields.items()},
    )


def decode_disposition(
    settlement: consuming_pb2.Settle | sessions_pb2.OutcomeGroup, delivery_tag: int = 0
) -> Disposition:
    """Decodes the disposition of a delivery tag, or of many (tag 0); drops unused fields.

    Raises:
        InvalidArgumentError: The outcome is unknown, or the delay is too long.
    """
    outcome = FROM_WIRE.get(settlement.outcome)
    if outcome is None:
        raise _refused(
            f"has outcome {settlement.outcome}, which this broker does not know; use accepted,"
            " failed, rejected or released.",
            delivery_tag,
        )
    if settlement.delay_ms > limits.MAX_TTL_MS:
        raise _refused(
            f"asks for a delay of {settlement.delay_ms} ms, which is too long; at most"
            f" {limits.MAX_TTL_MS} are allowed.",
            delivery_tag,
            limit=limits.MAX_TTL_MS,
        )
    return Disposition(
        outcome,
        shorten(settlement.reason) if outcome in _NEEDS_REASON else "",
        settlement.delay_ms if outcome in _NEEDS_DELAY else 0,
    )


def _refused(why: str, delivery_tag: int, **fields: int) -> InvalidArgumentError:
    if not delivery_tag:
        return InvalidArgumentError(f"The settlement {why}", **fields)
    return InvalidArgumentError(
        f"The settlement of delivery tag {delivery_tag} {why}", delivery_tag=delivery_tag, **fields
    )
