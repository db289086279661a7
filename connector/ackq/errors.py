"""Errors of ackq: a small tree, each with a code, a message and plain fields.

A message states what happened, to which object, and what the reader can do. Errors pickle (they
cross Spark's worker boundary) and travel over gRPC as an `ErrorDetail` in the trailing metadata key
`ackq-error-bin`; `STATUS` is the one table from code to gRPC status name. A broken invariant is not
one of these errors but an `AssertionError`.
"""

from __future__ import annotations

from typing import ClassVar, Final


class AckqError(Exception):
    """Root of the errors: `code` names the kind, `message` is for people.

    `fields` holds the named objects as strings.

    Args:
        message: What happened, to which object, and the remedy.
        **fields: The objects the message names; values are turned into strings.
    """

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields: dict[str, str] = {name: str(value) for name, value in fields.items()}

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.code, self.message, self.fields))

    def __str__(self) -> str:
        return self.message


class InvalidArgumentError(AckqError):
    """An argument is out of its range."""

    code = "invalid_argument"


class UnknownOptionError(InvalidArgumentError):
    """A connector option that does not exist; names the nearest that does."""

    code = "unknown_option"


class SchemaError(InvalidArgumentError):
    """A column is missing, unknown or of the wrong type."""

    code = "wrong_schema"


class MalformedBlockError(InvalidArgumentError):
    """A data frame differs from its header, or its Arrow bytes are not valid."""

    code = "malformed_block"


class MessageTooLargeError(InvalidArgumentError):
    """A message or frame is over the size limit."""

    code = "message_too_large"


class OffsetVersionError(InvalidArgumentError):
    """A checkpoint holds an offset of a version this software does not know."""

    code = "offset_version"


class NotFoundError(AckqError):
    """A named object does not exist."""

    code = "not_found"


class QueueNotFoundError(NotFoundError):
    """No such queue."""

    code = "queue_not_found"


class ExchangeNotFoundError(NotFoundError):
    """No such exchange."""

    code = "exchange_not_found"


class SessionNotFoundError(NotFoundError):
    """No such session or incarnation: the broker lost it, or it was released or replaced."""

    code = "session_not_found"


class LinkNotFoundError(NotFoundError):
    """No such link: none of that name was opened, or it was removed (L25)."""

    code = "link_not_found"


class BatchNotFoundError(NotFoundError):
    """No stage of such a batch: it was committed, aborted, dropped, or never staged (K3)."""

    code = "batch_not_found"


class WriterNotFoundError(NotFoundError):
    """No such writer: it never wrote, or its retention is over (K3)."""

    code = "writer_not_found"


class BlockNotFoundError(NotFoundError):
    """A block of the broker's journal was freed while it was being read."""

    code = "block_not_found"


class PreconditionFailedError(AckqError):
    """The object exists, but not in the state the call needs."""

    code = "precondition_failed"


class PropertiesDifferError(PreconditionFailedError):
    """A declared object exists already, with other properties (Q1)."""

    code = "properties_differ"


class InUseError(PreconditionFailedError):
    """An object to be deleted is in use (Q4)."""

    code = "in_use"


class WrongModeError(PreconditionFailedError):
    """A publisher opened in one mode was used in the other (P1)."""

    code = "wrong_mode"


class WindowFullError(PreconditionFailedError):
    """A publish that does not wait found the publisher's window full (P14)."""

    code = "window_full"


class TransactionRolledBackError(PreconditionFailedError):
    """A transaction was rolled back: none of its messages is in a queue; repeat it (P13)."""

    code = "transaction_rolled_back"


class UnknownDeliveryTagError(PreconditionFailedError):
    """A settlement of a tag that is not outstanding on its channel; the channel is closed (C2)."""

    code = "unknown_delivery_tag"


class StaleDeliveryTagError(PreconditionFailedError):
    """A settlement of a message received before the channel was renewed: redelivered (C17)."""

    code = "stale_delivery_tag"


class OutcomeNotSupportedError(PreconditionFailedError):
    """A settlement with an outcome that its consumer did not declare (C5).

    The client refuses it at the call, and its channel goes on. The broker, asked by any other
    client, closes the channel.
    """

    code = "outcome_not_supported"


class InvalidOperationError(PreconditionFailedError):
    """A consumer declared an outcome that the broker does not announce (C5)."""

    code = "invalid_operation"


class CheckpointMismatchError(PreconditionFailedError):
    """A checkpoint does not fit the session, the queues or the broker it is used with (S4, S10)."""

    code = "checkpoint_mismatch"


class LeaseHeldError(PreconditionFailedError):
    """An opening would abandon messages that are leased under this session name (S9)."""

    code = "lease_held"


class BatchOrderError(PreconditionFailedError):
    """A writer's batch id or version went backwards, or was used twice in one run (K3, K12)."""

    code = "batch_order"


class BatchChangedError(PreconditionFailedError):
    """A batch id was used again for other rows, or for another target (S11, K3)."""

    code = "batch_changed"


class UnreadLeaseError(PreconditionFailedError):
    """An accept of messages that no task has read (S11)."""

    code = "unread_lease"


class StageMismatchError(PreconditionFailedError):
    """A commit named a stage that is missing or incomplete; nothing became visible (K3)."""

    code = "stage_mismatch"


class WriterForgottenError(PreconditionFailedError):
    """An operator made the broker forget this writer: it cannot know what was committed (K3)."""

    code = "writer_forgotten"


class PublisherForgottenError(PreconditionFailedError):
    """The broker forgot this publisher: the outcome of its pending publishes is unknown (P10)."""

    code = "publisher_forgotten"


class HistoryChangedError(PreconditionFailedError):
    """The broker's journal has another history than the one this client knew (Q8)."""

    code = "history_changed"


class AlreadyHeldError(AckqError):
    """Another live reader holds the session; `fields` name its host, pid and since when (S3).

    `broker_started_us` distinguishes the broker's starts: each counts every holder as just heard.
    """

    code = "already_held"


class FencedError(AckqError):
    """This holder, publisher or stage was replaced by a newer one, named in `fields` (S3, P10)."""

    code = "fenced"


class UnroutableError(AckqError):
    """A mandatory message was routed to no queue (P7)."""

    code = "unroutable"


class NackError(AckqError):
    """The broker nacked a publish; it is in no queue (P8)."""

    code = "nacked"


class QueueFullError(NackError):
    """A queue with `overflow=reject-publish` is at its bound (P8, Q3)."""

    code = "queue_full"


class DiskFullError(NackError):
    """The broker's free disk space is down to its reserve (P8, P14)."""

    code = "disk_full"


class LimitError(NackError):
    """A configured bound of the broker was reached (`ackq.limits`)."""

    code = "limit"


class BrokerUnavailableError(AckqError):
    """No broker answered at the endpoint in time; `fields` name the endpoint and the cause."""

    code = "unavailable"


class UnauthenticatedError(AckqError):
    """A call without a token, or with one that belongs to no user of the broker."""

    code = "unauthenticated"


class PermissionDeniedError(AckqError):
    """A user lacks a permission; names the missing permission and nothing else."""

    code = "permission_denied"


class OutcomeUnknownError(AckqError):
    """A request was sent, and whether it took effect is unknown (P10, C15)."""

    code = "outcome_unknown"


class TlsError(AckqError):
    """Client and broker cannot agree on a connection: certificate, name, or TLS on one side."""

    code = "tls"


class ClosedError(AckqError):
    """The object was closed, or its stream had ended, before the call."""

    code = "closed"


class UnsupportedError(AckqError):
    """A feature that this combination does not support; the message names an alternative."""

    code = "unsupported"


class DamagedError(AckqError):
    """Bytes on the broker's disk are corrupt; `fields` name the file and the byte."""

    code = "damaged"


class InternalError(AckqError):
    """An unexpected failure: a bug."""

    code = "internal"


def _tree(root: type[AckqError]) -> dict[str, type[AckqError]]:
    found: dict[str, type[AckqError]] = {}
    for cls in root.__subclasses__():
        found[cls.code] = cls
        found.update(_tree(cls))
    return found


BY_CODE: Final = _tree(AckqError)

# The first match along the class's ancestors wins.
STATUS: Final[dict[type[AckqError], str]] = {
    InvalidArgumentError: "INVALID_ARGUMENT",
    NotFoundError: "NOT_FOUND",
    PreconditionFailedError: "FAILED_PRECONDITION",
    AlreadyHeldError: "ALREADY_EXISTS",
    FencedError: "ABORTED",
    UnroutableError: "FAILED_PRECONDITION",
    NackError: "RESOURCE_EXHAUSTED",
    BrokerUnavailableError: "UNAVAILABLE",
    UnauthenticatedError: "UNAUTHENTICATED",
    PermissionDeniedError: "PERMISSION_DENIED",
    OutcomeUnknownError: "UNKNOWN",
    TlsError: "UNAVAILABLE",
    ClosedError: "CANCELLED",
    UnsupportedError: "UNIMPLEMENTED",
    DamagedError: "DATA_LOSS",
    AckqError: "INTERNAL",
}


def status_of(error: AckqError) -> str:
    """The gRPC status name of an error, from `STATUS`."""
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def from_code(code: str, message: str, fields: dict[str, str]) -> AckqError:
    """The error of a code, with its message and fields.

    An unknown code (from a newer broker) gives an `InternalError` that keeps it in its fields.
    """
    return _rebuild(code, message, fields)


def _rebuild(code: str, message: str, fields: dict[str, str]) -> AckqError:
    error = BY_CODE.get(code, InternalError)(message)
    error.fields = dict(fields)
    if error.code != code:
        error.fields["code"] = code
    return error
