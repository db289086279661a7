"""Keys of a link and of its edge, each declared once, for TOML files and the flags of a command.

Invariant: no error message shows the value of a key that may hold a password.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ackq.errors import InvalidArgumentError, UnknownOptionError
from ackq.limits import DEFAULT_ENDPOINT
from ackq_link.adapter import MAX_PREFETCH

# The environment variable with a remote broker's password, where no file has it.
PASSWORD: Final = "ACKQ_LINK_PASSWORD"  # noqa: S105 - the name of the variable
_KINDS: Final = {str: "a text", int: "a whole number", bool: "true or false"}


class Key(NamedTuple):
    """A key: its help, the placeholder of its value (or all values, `a|b`), its default.

    A default of None makes it required.
    """

    help: str
    form: str = ""
    default: str | int | bool | None = ""

    @property
    def kind(self) -> type:
        """The type of the key's value."""
        return str if self.default is None else type(self.default)

    @property
    def choices(self) -> tuple[str, ...]:
        """All values that the key may have; empty: any value of its type."""
        return tuple(self.form.split("|")) if "|" in self.form else ()


# An outbound link refuses these keys. It accepts `window-bytes`, which bounds its prefetch.
INBOUND_KEYS: Final = {
    "ack": Key(
        "Inbound: acknowledge a message at the remote broker when it is settled, or when it is"
        " stored, at the local broker (settled).",
        "settled|stored",
    ),
    "origin-key": Key(
        "Inbound: how a redelivered message is recognised: auto, message_id, header:NAME,"
        " fingerprint, none or, with protocol nats, position (auto).",
        "RULE",
    ),
    "on-ambiguous": Key(
        "Inbound: store or drop a message without an id that may have been acknowledged (store).",
        "store|drop",
    ),
    "on-reject": Key(
        "Inbound: make a rejected message a dead letter of the local broker (here, the default), or"
        " reject it at the remote broker (there; discard: even if that loses it).",
        "here|there|discard",
    ),
    "max-hold": Key(
        "Inbound: maximum time in seconds for which a message is held; 0: 80 % of the consumer"
        " timeout, or 1200 if it is not known.",
        "SECONDS",
        0,
    ),
    "on-max-hold": Key(
        "Inbound: action when a message was held for max-hold: renew, store or fail (renew, near"
        " the delivery limit store).",
        "renew|store|fail",
    ),
    "accept-limit": Key(
        "Inbound: run although the remote queue drops messages at its delivery limit.",
        default=False,
    ),
    "management": Key(
        "Inbound: RabbitMQ's management API, http://HOST:15672, to read the remote queue's limits.",
        "URL",
    ),
    "delivery-limit": Key(
        "Inbound: delivery limit of the remote queue, in place of the one that is read; 0: none.",
        "COUNT",
        -1,
    ),
    "consumer-timeout": Key(
        "Inbound: consumer timeout of the remote broker in seconds, in place of the one that is"
        " read; 0: none.",
        "SECONDS",
        -1,
    ),
    "dead-letters": Key(
        "Inbound: the remote queue has a dead-letter exchange; a delivery-limit without this key"
        " says that it has none.",
        default=False,
    ),
}
OUTBOUND_KEYS: Final = {
    "exchange": Key(
        "Outbound: exchange to publish to, with the routing key of each message.", "NAME"
    ),
    "routing-key": Key(
        "Outbound: routing key (subject) of all messages that go to the exchange or stream, in"
        " place of their own.",
        "KEY",
    ),
}
LINK_KEYS: Final = {
    "name": Key("The link's name, shown at both brokers and in the log.", "NAME", None),
    "direction": Key(
        "in: from the remote broker to the local broker; out: from the local to the remote one.",
        "in|out",
        None,
    ),
    "broker": Key(
        "URL of the remote broker: amqp://[USER@]HOST[:PORT][/VHOST], or amqps:// for TLS; nats://"
        " or tls:// with protocol nats.",
        "URL",
        None,
    ),
    "protocol": Key(
        "Protocol of the remote broker: amqp091 (RabbitMQ), amqp1 (Artemis, Qpid) or nats"
        " (JetStream).",
        "amqp091|amqp1|nats",
        "amqp091",
    ),
    "queue": Key("Queue of the local broker.", "QUEUE", None),
    "broker-queue": Key(
        "Queue of the remote broker; an outbound link reaches it by the default exchange. With"
        " protocol nats STREAM/CONSUMER, outbound STREAM.",
        "QUEUE",
    ),
    **OUTBOUND_KEYS,
    **INBOUND_KEYS,
    "user": Key("User at the remote broker, in place of the URL's.", "NAME"),
    "password-file": Key(
        f"File with the user's password at the remote broker; else {PASSWORD}, but for a link"
        " with cert and no user.",
        "FILE",
    ),
    "prefetch": Key(
        f"Maximum number of messages in flight, 1 to {MAX_PREFETCH}.", "MESSAGES", 5_000
    ),
    "window-bytes": Key(
        "Maximum number of bytes in flight, at which an inbound link takes no more messages.",
        "BYTES",
        64 << 20,
    ),
    "heartbeat": Key(
        "Seconds between heartbeats with the remote broker, 1 to 3600.", "SECONDS", 10
    ),
    "ca": Key("PEM file with the authority of the remote broker's certificate, for amqps.", "FILE"),
    "cert": Key(
        "PEM file with the link's client certificate, for amqps; without a user it is the login.",
        "FILE",
    ),
    "key": Key("PEM file with the key of the link's client certificate.", "FILE"),
}
EDGE_KEYS: Final = {
    "endpoint": Key("HOST:PORT of the local broker.", "HOST:PORT", DEFAULT_ENDPOINT),
    "ca": Key(
        "PEM file with the authority of the local broker's certificate; turns TLS on.", "FILE"
    ),
    "cert": Key("PEM file with the client certificate for the local broker.", "FILE"),
    "key": Key("PEM file with the key of the client certificate for the local broker.", "FILE"),
    "token-file": Key(
        "File with the token of the links' user at the local broker; else ACKQ_TOKEN.", "FILE"
    ),
}


def values(table: Mapping[str, Any], keys: Mapping[str, Key], where: str) -> dict[str, Any]:
    """The value of every key: the given one, or its default.

    Raises:
        InvalidArgumentError: Names the place, the key and the expected value.
        UnknownOptionError: An unknown key; names the nearest.
    """
    check_known(table, keys, where)
    found = {}
    for name, key in keys.items():
        value = table.get(name, key.default)
        if value is None:
            raise InvalidArgumentError(f"{where}: {name} is missing. {key.help}")
        if type(value) is not key.kind:
            kind = _KINDS[key.kind]
            raise InvalidArgumentError(f"{where}: {name} must be {kind}. {key.help}")
        if key.choices and value not in (key.default, *key.choices):
            raise InvalidArgumentError(
                f"{where}: {name} is {value!r}; it is {' or '.join(key.choices)}."
            )
        found[name] = value
    return found


def check_known(table: Iterable[str], keys: Iterable[str], where: str) -> None:
    """Raises UnknownOptionError, which names the nearest key, for a name that is no key."""
    for name in table:
        if name not in keys:
            near = difflib.get_close_matches(name, keys, 1, 0.7)
            raise UnknownOptionError(
                f"{where}: there is no key {name!r}.{f' Did you mean {near[0]}?' if near else ''}"
                f" The keys are {', '.join(keys)}."
            )
