"""Commands on queues, exchanges and bindings (Q1, Q2, Q4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ackq_broker.core.commands.decision import Command
from ackq_broker.core.fields import QueueProperties


@dataclass(frozen=True, slots=True)
class DeclareQueue(Command):
    """Declares a queue (Q1). Reply: `DeclaredQueue`.

    Errors: PropertiesDifferError, QueueNotFoundError (passive), LimitError, UnsupportedError.
    """

    queue: str
    properties: QueueProperties = field(default_factory=QueueProperties)
    passive: bool = False


class DeclaredQueue(NamedTuple):
    """Reply to `DeclareQueue`; `warnings` are sentences for the caller."""

    queue_id: int
    created: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteQueue(Command):
    """Deletes a queue (Q4). Reply: `DeletedQueue`. Errors: QueueNotFoundError, InUseError."""

    queue: str
    force: bool = False
    if_empty: bool = False


class DeletedQueue(NamedTuple):
    """Reply to `DeleteQueue`: messages deleted with the queue (`ready` includes delayed ones)."""

    ready: int
    unacked: int


@dataclass(frozen=True, slots=True)
class PurgeQueue(Command):
    """Purges a queue (Q4). Reply: int, the ready messages removed. Errors: QueueNotFoundError."""

    queue: str


@dataclass(frozen=True, slots=True)
class RewindQueue(Command):
    """Makes messages ready that channels accepted, from an instant on or all (S14).

    With `dry_run` it only counts the messages. Reply: `RewoundQueue`. Errors: QueueNotFoundError,
    PreconditionFailedError (not retained).
    """

    queue: str
    from_us: int = 0
    dry_run: bool = False


class RewoundQueue(NamedTuple):
    """Reply to `RewindQueue`: the number of messages."""

    messages: int


@dataclass(frozen=True, slots=True)
class DeclareExchange(Command):
    """Declares an exchange; `kind` is "direct", "fanout" or "topic". Reply: bool, created.

    Errors: PropertiesDifferError, LimitError.
    """

    exchange: str
    kind: str
    durable: bool = True


@dataclass(frozen=True, slots=True)
class DeleteExchange(Command):
    """Deletes an exchange with its bindings. Reply: int, bindings removed.

    Errors: ExchangeNotFoundError, InvalidArgumentError (the default exchange).
    """

    exchange: str


@dataclass(frozen=True, slots=True)
class Bind(Command):
    """Creates a binding. Reply: bool, created.

    Errors: ExchangeNotFoundError, QueueNotFoundError, LimitError.
    """

    exchange: str
    queue: str
    binding_key: str


@dataclass(frozen=True, slots=True)
class Unbind(Command):
    """Removes a binding. Reply: bool, removed.

    Errors: ExchangeNotFoundError, QueueNotFoundError.
    """

    exchange: str
    queue: str
    binding_key: str
