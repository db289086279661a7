"""Errors as they travel: `ErrorDetail` messages, in answers and in trailing metadata."""

from __future__ import annotations

from typing import Final

from ackq.errors import AckqError
from ackq.v1 import messages_pb2 as pb
from ackq_broker.service.transport.texts import shorten

# gRPC drops a call with more than 8 KiB of metadata, and the error with it. The message is in there
# twice, once with up to three bytes for each of its own.
MESSAGE_BYTES: Final = 1024
_FIELD_BYTES: Final = 256


def detail(error: AckqError) -> pb.ErrorDetail:
    """The wire form of an error; `ackq.errors.from_code` is the way back."""
    return pb.ErrorDetail(
        code=error.code,
        message=shorten(error.message, MESSAGE_BYTES),
        fields={name: shorten(value, _FIELD_BYTES) for name, value in error.fields.items()},
    )
