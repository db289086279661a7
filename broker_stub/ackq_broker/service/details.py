"""Errors as they travel: `ErrorDetail` messages, in answers and in trailing metadata."""

from __future__ import annotations

from ackq.errors import AckqError
from ackq.v1 import messages_pb2 as pb


def detail(error: AckqError) -> pb.ErrorDetail:
    """The wire form of an error; `ackq.errors.from_code` is the way back."""
    return pb.ErrorDetail(code=error.code, message=error.message, fields=error.fields)
