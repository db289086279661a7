"""Commands on queues, exchanges and bindings (Q1, Q2, Q4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ackq_broker.core.commands.decision import Command
from ackq_broker.core.records import QueueProperties


@dataclass(frozen=True, slots=True)
class DeclareQueue(Command):
    """Reply: `DeclaredQueue`.

    Errors: PropertiesDifferError, QueueNotFoundError (passive), LimitError, UnsupportedError.
    """

    queue: str
    properties: QueueProperties = field(default_factory=QueueProperties)
    passive: bool = False


class DeclaredQueue(NamedTuple):
    """Reply to `DeclareQueue`; `warnings` are sentences for who declared it."""

    queue_id: int
    created: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteQueue(Command):
    """Reply: `DeletedQueue`. Errors: QueueNotFoundError, InUseError."""

    queue: str
    force: bool = False
    if_empty: bool = False


class DeletedQueue(NamedTuple):
    """Reply to `DeleteQueue`: messages that went with it (`ready`, delayed ones included)."""

    ready: int
    unacked: int


@dataclass(frozen=True, slots=True)
class PurgeQueue(Command):
    """Reply: int, the ready messages removed. Errors: QueueNotFoundError."""

    queue: str


@dataclass(frozen=True, slots=True)
class DeclareExchange(Command):
    """Reply: bool, created. `kind` is "direct", "fanout" or "topic".

    Errors: PropertiesDifferError, LimitError.
    """

    exchange: str
    kind: str
    durable: bool = True


@dataclass(frozen=True, slots=True)
class DeleteExchange(Command):
    """Reply: int, bindings removed.

    Errors: ExchangeNotFoundError, InvalidArgumentError (the default exchange).
    """

    exchange: str


@dataclass(frozen=True, slots=True)
class Bind(Command):
    """Reply: bool, created. Errors: ExchangeNotFoundError, QueueNotFoundError, LimitError."""

    exchange: str
    queue: str
    binding_key: str


@dataclass(frozen=True, slots=True)
class Unbind(Command):
    """Reply: bool, removed. Errors: ExchangeNotFoundError, QueueNotFoundError."""

    exchange: str
    queue: str
    binding_key: str
