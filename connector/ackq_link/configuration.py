"""What links to run: a TOML file with several, or the flags of one, as checked values.

    [edge]
    endpoint = "127.0.0.1:5775"

    [[link]]
    name = "orders"
    direction = "in"
    broker = "amqp://link@rabbit.example/sales"
    password-file = "/run/secrets/rabbit"
    broker-queue = "orders"
    queue = "orders"
    ack = "settled"

Invariant: no message of an error shows a URL that was said, which may hold a password.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ackq import extras
from ackq.client import Security
from ackq.errors import InvalidArgumentError, UnknownOptionError
from ackq.limits import DEFAULT_ENDPOINT, MAX_NAME_BYTES
from ackq_link.adapter import (
    MAX_PREFETCH,
    Limits,
    PublishTarget,
    QueueLimits,
    Source,
)
from ackq_link.address import Tls
from ackq_link.amqp091.address import BrokerAddress, parse_url
from ackq_link.amqp091.management import Management
from ackq_link.amqp091.source import QueueSource
from ackq_link.amqp091.target import ExchangeTarget
from ackq_link.hold_policy import HoldRules, OnMaxHold, OnReject
from ackq_link.inbound import ACKS, Inbound, InboundRules
from ackq_link.keys import KeyRule
from ackq_link.outbound import Outbound
from ackq_link.process import Edge

if TYPE_CHECKING:
    from ackq_link.amqp1 import address as amqp1

Link = Inbound | Outbound

# The password of a broker, where no file has it.
PASSWORD: Final = "ACKQ_LINK_PASSWORD"  # noqa: S105 - the name of the variable
_GUEST: Final = "guest"
_AMQP091, _AMQP1 = "amqp091", "amqp1"


class Key(NamedTuple):
    """A key of a link: its type, its default (None: required), its help, its direction.

    An outbound link refuses a key that is `inbound`. `window-bytes` has no effect there, and is
    accepted.
    """

    kind: type
    default: Any
    help: str
    inbound: bool = False


_KINDS: Final = {str: "a text", int: "a whole number", bool: "true or false"}
LINK_KEYS: Final = {
    "name": Key(str, None, "The link's name, shown at both brokers and in the log."),
    "direction": Key(str, None, "in: from the other broker to the edge; out: to the other one."),
    "broker": Key(str, None, "amqp://[USER@]HOST[:PORT][/VHOST], or amqps:// for TLS."),
    "protocol": Key(str, _AMQP091, "What it speaks: amqp091 (RabbitMQ) or amqp1 (Artemis, Qpid)."),
    "queue": Key(str, None, "The edge's queue."),
    "broker-queue": Key(str, "", "The other broker's queue; out: behind its default exchange."),
    "exchange": Key(str, "", "Out: publish to this exchange, with each message's routing key."),
    "routing-key": Key(str, "", "Out: with an exchange, this routing key for all messages."),
    "ack": Key(
        str,
        "",
        "In: acknowledge there what is settled here, or stored here (settled).",
        inbound=True,
    ),
    "origin-key": Key(
        str, "", "In: auto, message_id, header:NAME, fingerprint or none (auto).", inbound=True
    ),
    "on-ambiguous": Key(
        str, "", "In: store or drop what came with an ack in doubt (store).", inbound=True
    ),
    "on-reject": Key(
        str,
        "",
        "In: what is rejected here is a dead letter here, or there; or discard (here).",
        inbound=True,
    ),
    "max-hold": Key(int, 0, "In: seconds; 0: 80 % of the consumer timeout, or 1200.", inbound=True),
    "on-max-hold": Key(str, "", "In: renew, store or fail.", inbound=True),
    "accept-limit": Key(
        bool, False, "In: run though the other queue drops at a limit.", inbound=True
    ),
    "management": Key(
        str, "", "In: http://HOST:15672, to learn the other queue's limits.", inbound=True
    ),
    "delivery-limit": Key(int, -1, "In: the other queue's, instead; 0: none.", inbound=True),
    "consumer-timeout": Key(
        int, -1, "In: the other broker's, in seconds, instead; 0: none.", inbound=True
    ),
    "dead-letters": Key(
        bool, False, "In: the other queue has a dead-letter exchange.", inbound=True
    ),
    "user": Key(str, "", "The user there, instead of the URL's."),
    "password-file": Key(str, "", f"A file with its password; else {PASSWORD}."),
    "prefetch": Key(int, 5_000, f"Most messages under way, 1 to {MAX_PREFETCH}."),
    "window-bytes": Key(int, 64 << 20, "In: at so many bytes under way it takes no more."),
    "heartbeat": Key(int, 10, "Seconds between heartbeats, 1 to 3600."),
    "ca": Key(str, "", "PEM file with the authority to trust, for amqps."),
    "cert": Key(
        str, "", "PEM file with a client certificate, for amqps; without a user, who it is."
    ),
    "key": Key(str, "", "PEM file with its key."),
}
_INBOUND_KEYS: Final = tuple(name for name, key in LINK_KEYS.items() if key.inbound)
EDGE_KEYS: Final = {
    "endpoint": Key(str, DEFAULT_ENDPOINT, "HOST:PORT of the ackq broker."),
    "ca": Key(str, "", "PEM file to trust; turns TLS on."),
    "cert": Key(str, "", "Client's PEM file."),
    "key": Key(str, "", "Its key's PEM file."),
    "token-file": Key(str, "", "File with the token that says who the links are."),
}


def read(path: Path, edge: Mapping[str, Any] | None = None) -> list[Link]:
    """The links of a file.

    Args:
        path: The file.
        edge: Keys of the edge, which count for more than the file's.

    Raises:
        InvalidArgumentError: Names the file, the link and the key, and what is expected.
        UnknownOptionError: There is no such key; names the nearest.
    """
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path} is no TOML: {error}") from error
    _known(written, ("edge", "link"), str(path))
    tables = written.get("link", [])
    if not isinstance(tables, list) or not tables:
        raise InvalidArgumentError(f"{path} has no link; write a table [[link]] for each.")
    own = {**_table(written.get("edge", {}), "[edge]"), **(edge or {})}
    here = _values(own, EDGE_KEYS, f"{path}, [edge]")
    links = [
        link(_table(table, "[[link]]"), here, f"{path}, link {number}")
        for number, table in enumerate(tables, 1)
    ]
    names = [each.name for each in links]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(
                f"{path} has {names.count(name)} links of the name '{name}'; give each its own."
            )
    return links


def of_flags(flags: Mapping[str, Any]) -> list[Link]:
    """The one link of the command's flags, of which those that were not given are None."""
    given = {name: value for name, value in flags.items() if value is not None}
    edge = {name.removeprefix("edge-"): given[name] for name in given if name.startswith("edge-")}
    rest = {name: value for name, value in given.items() if not name.startswith("edge-")}
    if "broker" in rest and parse_url(rest["broker"])[2] is not None:
        raise InvalidArgumentError(
            "The broker's URL has a password, which every user of this machine would see (ps). Put"
            f" it into a file and name that with --password-file, or into {PASSWORD}."
        )
    return [link(rest, _values(edge, EDGE_KEYS, "the edge"), "the link")]


def link(table: Mapping[str, Any], edge: Mapping[str, Any], where: str) -> Link:
    """A link of its keys.

    Args:
        table: Its keys as they were said.
        edge: All keys of the edge.
        where: Where it stands, for errors.
    """
    if isinstance(table.get("name"), str):
        where += f" '{table['name']}'"
    try:
        said = _values(table, LINK_KEYS, where)
        return _link(said, edge)
    except InvalidArgumentError as error:
        if error.message.startswith(where):
            raise
        raise InvalidArgumentError(f"{where}: {error.message}") from error


def _link(said: Mapping[str, Any], edge: Mapping[str, Any]) -> Link:
    name = said["name"]
    if not 0 < len(name.encode()) <= MAX_NAME_BYTES or not name.isprintable():
        raise InvalidArgumentError(f"name is {name!r}; it has 1 to {MAX_NAME_BYTES} printed bytes.")
    if not 1 <= said["heartbeat"] <= 3600:  # noqa: PLR2004 - as the key's help says
        raise InvalidArgumentError(f"heartbeat is {said['heartbeat']}; give 1 to 3600 seconds.")
    if said["window-bytes"] < 1:
        raise InvalidArgumentError(f"window-bytes is {said['window-bytes']}; give 1 or more.")
    here = Edge(edge["endpoint"], said["queue"], _security(edge))
    limits = Limits(said["prefetch"], said["window-bytes"])
    match said["direction"]:
        case "in":
            _without(said, "exchange", "routing-key")
            return Inbound(name, _source(said, limits), here, _rules(said))
        case "out":
            _without(said, *_INBOUND_KEYS)
            return Outbound(name, _target(said, limits), here)
        case other:
            raise InvalidArgumentError(f"direction is {other!r}; it is in or out.")


def _source(said: Mapping[str, Any], limits: Limits) -> Source:
    queue = _needed(said, "broker-queue", "the queue there that it consumes")
    limit, timeout_s = said["delivery-limit"], said["consumer-timeout"]
    told = QueueLimits(
        consumer_timeout_s=timeout_s if timeout_s >= 0 else None,
        delivery_limit=limit if limit >= 0 else None,
        # Who says the limit says both.
        dead_letters=True if said["dead-letters"] else False if limit >= 0 else None,
    )
    if _speaks_amqp1(said):
        from ackq_link.amqp1 import source  # noqa: PLC0415 - its library may be missing

        _without(said, "management")
        return source.Amqp1Source(_amqp1_address(said), queue, said["name"], limits, told)
    address = _address(said)
    management = Management(said["management"]) if said["management"] else None
    if management is not None and not address.user:
        raise InvalidArgumentError(
            "management needs a user with a password, and the link is who its client certificate"
            " (cert) says. Give user and password-file, or leave management out and say"
            " delivery-limit, consumer-timeout and dead-letters."
        )
    return QueueSource(address, queue, said["name"], limits, told, management)


def _rules(said: Mapping[str, Any]) -> InboundRules:
    ack = said["ack"] or ACKS[0]
    for key, value, values in (
        ("ack", ack, ACKS),
        ("on-ambiguous", said["on-ambiguous"], ("", "store", "drop")),
        ("on-max-hold", said["on-max-hold"], ("", *OnMaxHold)),
        ("on-reject", said["on-reject"], ("", *OnReject)),
    ):
        if value not in values:
            raise InvalidArgumentError(
                f"{key} is {value!r}; it is {' or '.join(filter(None, values))}."
            )
    on_reject = OnReject(said["on-reject"] or OnReject.HERE)
    if on_reject.there and ack != ACKS[0]:
        raise InvalidArgumentError(
            f"on-reject is '{on_reject}', and ack is '{ack}': what was acknowledged there cannot be"
            " rejected. Choose ack=settled, or on-reject=here."
        )
    if said["max-hold"] < 0:
        raise InvalidArgumentError(f"max-hold is {said['max-hold']}; give seconds, or 0.")
    return InboundRules(
        ack,
        KeyRule(said["origin-key"] or "auto"),
        said["on-ambiguous"] == "drop",
        on_reject,
        HoldRules(
            said["max-hold"] or None,
            OnMaxHold(said["on-max-hold"]) if said["on-max-hold"] else None,
            said["accept-limit"],
        ),
    )


def _target(said: Mapping[str, Any], limits: Limits) -> PublishTarget:
    if _speaks_amqp1(said):
        from ackq_link.amqp1 import target  # noqa: PLC0415 - its library may be missing

        _without(said, "exchange", "routing-key")
        queue = _needed(said, "broker-queue", "the queue or address there")
        return target.Amqp1Target(_amqp1_address(said), queue, said["name"], limits)
    if bool(said["broker-queue"]) == bool(said["exchange"]):
        raise InvalidArgumentError(
            "a link with direction out has either broker-queue, the queue there, or exchange."
        )
    key = said["broker-queue"] or said["routing-key"] or None
    if said["broker-queue"] and said["routing-key"]:
        raise InvalidArgumentError("routing-key goes with exchange, not with broker-queue.")
    return ExchangeTarget(_address(said), said["exchange"], key, said["name"], limits)


def _speaks_amqp1(said: Mapping[str, Any]) -> bool:
    """Whether it is AMQP 1.0, whose library is there then."""
    if said["protocol"] == _AMQP091:
        return False
    if said["protocol"] != _AMQP1:
        raise InvalidArgumentError(
            f"protocol is {said['protocol']!r}; it is {_AMQP091} or {_AMQP1}."
        )
    try:
        import proton  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(
            extras.missing(error, f"A link with protocol {_AMQP1}", _AMQP1)
        ) from None
    return True


def _address(said: Mapping[str, Any]) -> BrokerAddress:
    url, user, password, tls = _who(said)
    file, heartbeat = said["password-file"], said["heartbeat"]
    if tls.cert and not (user or password or file):
        return BrokerAddress(url, "", "", "", tls, heartbeat)
    password = _GUEST if password is None else password
    return BrokerAddress(url, user or _GUEST, password, file, tls, heartbeat)


def _amqp1_address(said: Mapping[str, Any]) -> amqp1.Amqp1Address:
    from ackq_link.amqp1 import address  # noqa: PLC0415 - its library may be missing

    url, user, password, tls = _who(said)
    file, heartbeat = said["password-file"], said["heartbeat"]
    return address.Amqp1Address(url, user, password or "", file, tls, heartbeat)


def _who(said: Mapping[str, Any]) -> tuple[str, str, str | None, Tls]:
    """The URL without a user, the user, the password, and what encrypts."""
    url, user, password = parse_url(said["broker"])
    tls = Tls(said["ca"], said["cert"], said["key"])
    if not url.startswith("amqps:") and tls != Tls():
        raise InvalidArgumentError(
            "ca, cert or key is given, but the URL is amqp://, which is not encrypted; write amqps."
        )
    if password is None:
        password = os.environ.get(PASSWORD)
    return url, said["user"] or user or "", password, tls


def _security(edge: Mapping[str, Any]) -> Security | None:
    tls = any((edge["ca"], edge["cert"], edge["key"]))
    token = "" if edge["token-file"] else os.environ.get("ACKQ_TOKEN", "")
    if not (tls or token or edge["token-file"]):
        return None
    return Security(
        tls=tls,
        ca=edge["ca"],
        cert=edge["cert"],
        key=edge["key"],
        token=token,
        token_file=edge["token-file"],
    )


def _needed(said: Mapping[str, Any], key: str, what: str) -> str:
    if not said[key]:
        raise InvalidArgumentError(f"{key} is missing; say {what}.")
    return str(said[key])


def _without(said: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if said[key] != LINK_KEYS[key].default:
            raise InvalidArgumentError(
                f"{key} means nothing to a link with direction {said['direction']}; leave it out."
            )


def _values(table: Mapping[str, Any], keys: Mapping[str, Key], where: str) -> dict[str, Any]:
    """Every key with the value said or its default."""
    _known(table, keys, where)
    values = {}
    for name, key in keys.items():
        value = table.get(name, key.default)
        if value is None:
            raise InvalidArgumentError(f"{where}: {name} is missing. {key.help}")
        if type(value) is not key.kind:
            kind = _KINDS[key.kind]
            raise InvalidArgumentError(f"{where}: {name} must be {kind}. {key.help}")
        values[name] = value
    return values


def _table(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArgumentError(f"{name} must be a table.")
    return value


def _known(table: Mapping[str, Any], keys: Mapping[str, Key] | Sequence[str], where: str) -> None:
    for name in table:
        if name not in keys:
            near = difflib.get_close_matches(name, keys, 1, 0.7)
            raise UnknownOptionError(
                f"{where}: there is no key {name!r}.{f' Is it {near[0]}?' if near else ''} All of"
                f" them: {', '.join(keys)}."
            )
