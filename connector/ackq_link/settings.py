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
        "In: acknowledge there what is settled here, or stored here (settled).", "settled|stored"
    ),
    "origin-key": Key("In: auto, message_id, header:NAME, fingerprint or none (auto).", "RULE"),
    "on-ambiguous": Key("In: store or drop what came with an ack in doubt (store).", "store|drop"),
    "on-reject": Key(
        "In: what is rejected here is a dead letter here, or there; or discard (here).",
        "here|there|discard",
    ),
    "max-hold": Key("In: seconds; 0: 80 % of the consumer timeout, or 1200.", "SECONDS", 0),
    "on-max-hold": Key("In: renew, store or fail.", "renew|store|fail"),
    "accept-limit": Key("In: run though the other queue drops at a limit.", default=False),
    "management": Key("In: http://HOST:15672, to learn the other queue's limits.", "URL"),
    "delivery-limit": Key("In: the other queue's, instead; 0: none.", "COUNT", -1),
    "consumer-timeout": Key("In: the other broker's, in seconds, instead; 0: none.", "SECONDS", -1),
    "dead-letters": Key("In: the other queue has a dead-letter exchange.", default=False),
}
OUTBOUND_KEYS: Final = {
    "exchange": Key("Out: publish to this exchange, with each message's routing key.", "NAME"),
    "routing-key": Key("Out: with an exchange, this routing key for all messages.", "KEY"),
}
LINK_KEYS: Final = {
    "name": Key("The link's name, shown at both brokers and in the log.", "NAME", None),
    "direction": Key(
        "in: from the other broker to the edge; out: to the other one.", "in|out", None
    ),
    "broker": Key("amqp://[USER@]HOST[:PORT][/VHOST], or amqps:// for TLS.", "URL", None),
    "protocol": Key(
        "What it speaks: amqp091 (RabbitMQ) or amqp1 (Artemis, Qpid).", "amqp091|amqp1", "amqp091"
    ),
    "queue": Key("The edge's queue.", "QUEUE", None),
    "broker-queue": Key("The other broker's queue; out: behind its default exchange.", "QUEUE"),
    **OUTBOUND_KEYS,
    **INBOUND_KEYS,
    "user": Key("The user there, instead of the URL's.", "NAME"),
    "password-file": Key(f"A file with its password; else {PASSWORD}.", "FILE"),
    "prefetch": Key(f"Most messages under way, 1 to {MAX_PREFETCH}.", "MESSAGES", 5_000),
    "window-bytes": Key("In: at so many bytes under way it takes no more.", "BYTES", 64 << 20),
    "heartbeat": Key("Seconds between heartbeats, 1 to 3600.", "SECONDS", 10),
    "ca": Key("PEM file with the authority to trust, for amqps.", "FILE"),
    "cert": Key(
        "PEM file with a client certificate, for amqps; without a user, who it is.", "FILE"
    ),
    "key": Key("PEM file with its key.", "FILE"),
}
EDGE_KEYS: Final = {
    "endpoint": Key("HOST:PORT of the ackq broker.", "HOST:PORT", DEFAULT_ENDPOINT),
    "ca": Key("PEM file to trust; turns TLS on.", "FILE"),
    "cert": Key("Client's PEM file.", "FILE"),
    "key": Key("Its key's PEM file.", "FILE"),
    "token-file": Key("File with the token that says who the links are; else ACKQ_TOKEN.", "FILE"),
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
                f"{where}: there is no key {name!r}.{f' Is it {near[0]}?' if near else ''} All of"
                f" them: {', '.join(keys)}."
            )
