"""Acknowledge modes (C10), and validation of an application's outcomes (C4, C5)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, Literal, TypeVar

from ackq import limits
from ackq.client.blocks import encoding
from ackq.errors import InvalidArgumentError
from ackq.outcomes import Disposition, Outcome, OutcomeName

E = TypeVar("E", bound=Enum)
ModeName = Literal["auto", "client", "dups_ok", "pre", "none"]


class AcknowledgeMode(Enum):
    """Who accepts a consumer's messages, and when (C10).

    The examples run against a broker at `endpoint` with a queue `orders` that holds the messages
    `a`, `b` and `c`.

    AUTO: a message is accepted after the callback returned without raising. An exception of a
    callback is logged, and the message is settled FAILED if the consumer declared that outcome,
    else RELEASED. Without a callback it is PRE: `receive`, iteration and `receive_batch` accept
    before they return.

        >>> with Channel(endpoint) as channel:
        ...     consumer = channel.consume("orders", mode=AcknowledgeMode.AUTO)
        ...     consumer.receive(timeout_s=10).body
        b'a'

    CLIENT: the application settles, each message with its own outcome or, with `acknowledge`, all
    messages delivered so far. Unsettled messages are redelivered when the channel ends.

        >>> with Channel(endpoint) as channel:
        ...     consumer = channel.consume(
        ...         "orders", mode=AcknowledgeMode.CLIENT, outcomes=[Outcome.REJECTED]
        ...     )
        ...     first, second, third = (consumer.receive(timeout_s=10) for _ in range(3))
        ...     channel.acknowledge(second).result()  # takes effect for `first` as well
        ...     third.reject("no such customer").result()
        2
        1

    DUPS_OK: like AUTO, but lazily and in bulk, within 1 s or 1,000 messages. Faster; after a crash
    more messages are redelivered. Without a callback a message may be accepted before it is
    processed.

        >>> seen = queue.Queue()
        >>> with Channel(endpoint) as channel:
        ...     consumer = channel.consume("orders", seen.put, mode=AcknowledgeMode.DUPS_OK)
        ...     [seen.get(timeout=10).body for _ in range(3)]
        [b'a', b'b', b'c']

    PRE: a message is accepted before the callback or `receive` gets it, whatever the callback does:
    never delivered twice, but lost if the application crashes while processing it; of
    `receive_batch` the whole batch.

        >>> with Channel(endpoint) as channel:
        ...     consumer = channel.consume("orders", mode=AcknowledgeMode.PRE)
        ...     [message.body for message in itertools.islice(consumer, 3)]
        [b'a', b'b', b'c']

    NONE: no acks at all; the broker removes a message when it sends it. The fastest mode, but a
    crash loses all messages in flight.

        >>> with Channel(endpoint) as channel:
        ...     consumer = channel.consume("orders", mode=AcknowledgeMode.NONE, columns=["body"])
        ...     consumer.receive_batch(timeout_s=10).to_pylist()
        [{'body': b'a'}, {'body': b'b'}, {'body': b'c'}]
    """

    AUTO = "auto"
    CLIENT = "client"
    DUPS_OK = "dups_ok"
    PRE = "pre"
    NONE = "none"


class When(Enum):
    """When the client accepts messages automatically."""

    NOT = 0
    LAZILY = 1
    NOW = 2


# When each mode accepts automatically. An outcome that a callback chose is not changed.
AT_RECEIVE: Final = {
    AcknowledgeMode.AUTO: When.NOW,
    AcknowledgeMode.CLIENT: When.NOT,
    AcknowledgeMode.DUPS_OK: When.LAZILY,
    AcknowledgeMode.PRE: When.NOW,
    AcknowledgeMode.NONE: When.NOT,
}
BEFORE_CALLBACK: Final = dict.fromkeys(AcknowledgeMode, When.NOT) | {AcknowledgeMode.PRE: When.NOW}
AFTER_CALLBACK: Final = dict.fromkeys(AcknowledgeMode, When.NOT) | {
    AcknowledgeMode.AUTO: When.NOW,
    AcknowledgeMode.DUPS_OK: When.LAZILY,
}


def outcome_of(value: Outcome | str) -> Outcome:
    """The outcome with a value or name; raises InvalidArgumentError if none has it."""
    return _member(Outcome, "outcome", value)


def mode_of(value: AcknowledgeMode | str) -> AcknowledgeMode:
    """The acknowledge mode with a value or name; raises InvalidArgumentError if none has it."""
    return _member(AcknowledgeMode, "mode", value)


def declared(outcomes: Iterable[Outcome | OutcomeName] | OutcomeName) -> frozenset[Outcome]:
    """Outcomes with which a consumer may settle: the declared ones and ACCEPTED (C5)."""
    if isinstance(outcomes, str):
        outcomes = (outcomes,)
    return frozenset((Outcome.ACCEPTED, *map(outcome_of, outcomes)))


def disposition(outcome: Outcome, reason: str = "", delay_ms: int = 0) -> Disposition:
    """A validated disposition of an outcome, a reason and a redelivery delay.

    Raises:
        InvalidArgumentError: The reason is not text or too long, or the delay is out of its range.
    """
    if encoding.text_bytes("reason", reason) > limits.MAX_HEADER_BYTES:
        raise InvalidArgumentError(
            f"The reason is longer than {limits.MAX_HEADER_BYTES} bytes.", argument="reason"
        )
    if not isinstance(delay_ms, int) or not 0 <= delay_ms <= limits.MAX_TTL_MS:
        raise InvalidArgumentError(
            f"'delay_ms' is {delay_ms!r}; it must be an int from 0 to {limits.MAX_TTL_MS}.",
            argument="delay_ms",
        )
    return Disposition(outcome, reason, delay_ms)


def _member(kind: type[E], name: str, value: object) -> E:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(each.value for each in kind)
        raise InvalidArgumentError(
            f"'{name}' is {value!r}; it must be one of {known}.", argument=name
        ) from None
