"""The configuration of links: a TOML file with several, or the flags of one, as checked values.

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

Invariant: no error message shows a configured URL, which may hold a password.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ackq import extras
from ackq.client import Security
from ackq.client.connection.broker import Broker
from ackq.errors import InvalidArgumentError
from ackq.limits import MAX_NAME_BYTES
from ackq_link.adapter import (
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
from ackq_link.settings import (
    EDGE_KEYS,
    INBOUND_KEYS,
    LINK_KEYS,
    OUTBOUND_KEYS,
    PASSWORD,
    check_known,
    values,
)

if TYPE_CHECKING:
    from ackq_link.amqp1 import address as amqp1
    from ackq_link.jetstream.address import NatsAddress

Link = Inbound | Outbound

_GUEST: Final = "guest"
_AMQP1: Final = "amqp1"
_NATS: Final = "nats"
# The library of a protocol that is an extra of its own.
_LIBRARIES: Final = {_AMQP1: "proton", _NATS: "nats"}
_SCHEMES: Final = {_NATS: ("nats", "tls")}
_AMQP: Final = ("amqp", "amqps")


def read(path: Path, edge: Mapping[str, Any] | None = None) -> list[Link]:
    """Reads the links of a TOML file.

    Args:
        path: The file.
        edge: Keys of the edge, which override the file's.

    Raises:
        InvalidArgumentError: Names the file, the link and the key, and the expected value.
        UnknownOptionError: An unknown key; names the nearest.
    """
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path} is not TOML: {error}") from error
    check_known(written, ("edge", "link"), str(path))
    tables = written.get("link", [])
    if not isinstance(tables, list) or not tables:
        raise InvalidArgumentError(f"{path} has no link; write a table [[link]] for each link.")
    own = {**_table(written.get("edge", {}), "[edge]"), **(edge or {})}
    here = values(own, EDGE_KEYS, f"{path}, [edge]")
    links = [
        link(_table(table, "[[link]]"), here, f"{path}, link {number}")
        for number, table in enumerate(tables, 1)
    ]
    names = [each.name for each in links]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(
                f"{path} has {names.count(name)} links of the name '{name}'; give each link its own"
                " name."
            )
    return links


def of_flags(flags: Mapping[str, Any]) -> list[Link]:
    """The single link that the command's flags describe; a flag that was not given is None."""
    given = {name: value for name, value in flags.items() if value is not None}
    edge = {name.removeprefix("edge-"): given[name] for name in given if name.startswith("edge-")}
    rest = {name: value for name, value in given.items() if not name.startswith("edge-")}
    if "broker" in rest and (
        parse_url(rest["broker"], _SCHEMES.get(rest.get("protocol", ""), _AMQP))[2] is not None
    ):
        raise InvalidArgumentError(
            "The broker's URL has a password, which every user of this machine would see (ps). Put"
            f" it into a file and name that with --password-file, or into {PASSWORD}."
        )
    return [link(rest, values(edge, EDGE_KEYS, "the edge"), "the link")]


def link(table: Mapping[str, Any], edge: Mapping[str, Any], where: str) -> Link:
    """Makes a link from its keys.

    Args:
        table: Its keys as they were given.
        edge: All keys of the edge.
        where: The place that defines it, for errors.
    """
    if isinstance(table.get("name"), str):
        where += f" '{table['name']}'"
    try:
        said = values(table, LINK_KEYS, where)
        return _link(said, edge)
    except InvalidArgumentError as error:
        if error.message.startswith(where):
            raise
        raise InvalidArgumentError(f"{where}: {error.message}") from error


def _link(said: Mapping[str, Any], edge: Mapping[str, Any]) -> Link:
    name = said["name"]
    if not 0 < len(name.encode()) <= MAX_NAME_BYTES or not name.isprintable():
        raise InvalidArgumentError(
            f"name is {name!r}; it must have 1 to {MAX_NAME_BYTES} printable bytes."
        )
    if not 1 <= said["heartbeat"] <= 3600:  # noqa: PLR2004 - as the key's help says
        raise InvalidArgumentError(f"heartbeat is {said['heartbeat']}; give 1 to 3600 seconds.")
    if said["window-bytes"] < 1:
        raise InvalidArgumentError(f"window-bytes is {said['window-bytes']}; give 1 or more.")
    here = Edge(_broker(edge), said["queue"])
    limits = Limits(said["prefetch"], said["window-bytes"])
    if said["direction"] == "in":
        _without(said, *OUTBOUND_KEYS)
        return Inbound(name, _source(said, limits), here, _rules(said))
    _without(said, *INBOUND_KEYS)
    return Outbound(name, _target(said, limits), here)


def _source(said: Mapping[str, Any], limits: Limits) -> Source:
    queue = _needed(said, "broker-queue", "the queue of the remote broker that the link consumes")
    limit, timeout_s = said["delivery-limit"], said["consumer-timeout"]
    told = QueueLimits(
        consumer_timeout_s=timeout_s if timeout_s >= 0 else None,
        delivery_limit=limit if limit >= 0 else None,
        # A user who sets the limit sets both: dead-letters left out means no such exchange.
        dead_letters=True if said["dead-letters"] else False if limit >= 0 else None,
    )
    if _speaks(_NATS, said):
        from ackq_link.jetstream import source as streams  # noqa: PLC0415 - its library may be missing

        _without(said, "management", "consumer-timeout")
        stream, _, consumer = queue.partition("/")
        _check_tokens(stream, consumer)
        return streams.StreamSource(
            _nats_address(said), stream, consumer, said["name"], limits, told
        )
    if said["origin-key"] == KeyRule.POSITION:
        raise InvalidArgumentError(
            f"origin-key is {KeyRule.POSITION}, and only messages of protocol {_NATS} have one."
            " Leave it out."
        )
    if _speaks(_AMQP1, said):
        from ackq_link.amqp1 import source  # noqa: PLC0415 - its library may be missing

        _without(said, "management")
        return source.Amqp1Source(_amqp1_address(said), queue, said["name"], limits, told)
    address = _address(said)
    management = Management(said["management"]) if said["management"] else None
    if management is not None and not address.user:
        raise InvalidArgumentError(
            "management needs a user with a password, and the link logs in by its client"
            " certificate (cert). Give user and password-file, or leave management out and give"
            " delivery-limit, consumer-timeout and dead-letters."
        )
    return QueueSource(address, queue, said["name"], limits, told, management)


def _rules(said: Mapping[str, Any]) -> InboundRules:
    ack = said["ack"] or ACKS[0]
    on_reject = OnReject(said["on-reject"] or OnReject.HERE)
    if on_reject.there and ack != ACKS[0]:
        raise InvalidArgumentError(
            f"on-reject is '{on_reject}', and ack is '{ack}': a message that was acknowledged at"
            " the remote broker cannot be rejected. Choose ack=settled, or on-reject=here."
        )
    if said["max-hold"] < 0:
        raise InvalidArgumentError(f"max-hold is {said['max-hold']}; give seconds, or 0.")
    return InboundRules(
        ack,
        KeyRule(_key(said)),
        said["on-ambiguous"] == "drop",
        on_reject,
        HoldRules(
            said["max-hold"] or None,
            OnMaxHold(said["on-max-hold"]) if said["on-max-hold"] else None,
            said["accept-limit"],
        ),
    )


def _key(said: Mapping[str, Any]) -> str:
    """The rule for origin keys; `auto` is a position where the broker has them (L30)."""
    key = said["origin-key"] or "auto"
    return KeyRule.POSITION if key == "auto" and said["protocol"] == _NATS else str(key)


def _target(said: Mapping[str, Any], limits: Limits) -> PublishTarget:
    if _speaks(_NATS, said):
        from ackq_link.jetstream import target as streams  # noqa: PLC0415 - its library may be missing

        _without(said, "exchange")
        stream = _needed(said, "broker-queue", "the stream of the remote broker")
        _check_tokens(stream, stream)
        return streams.StreamTarget(
            _nats_address(said), stream, said["routing-key"], said["name"], limits
        )
    if _speaks(_AMQP1, said):
        from ackq_link.amqp1 import target  # noqa: PLC0415 - its library may be missing

        _without(said, "exchange", "routing-key")
        queue = _needed(said, "broker-queue", "the queue or address of the remote broker")
        return target.Amqp1Target(_amqp1_address(said), queue, said["name"], limits)
    if bool(said["broker-queue"]) == bool(said["exchange"]):
        raise InvalidArgumentError(
            "a link with direction out has either broker-queue, the remote queue, or exchange."
        )
    key = said["broker-queue"] or said["routing-key"] or None
    if said["broker-queue"] and said["routing-key"]:
        raise InvalidArgumentError(
            "routing-key is for exchange, not for broker-queue; remove one of the two."
        )
    return ExchangeTarget(_address(said), said["exchange"], key, said["name"], limits)


def _speaks(protocol: str, said: Mapping[str, Any]) -> bool:
    """Whether this is the link's protocol; raises InvalidArgumentError without its library."""
    if said["protocol"] != protocol:
        return False
    try:
        import_module(_LIBRARIES[protocol])
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(
            extras.missing(error, f"A link with protocol {protocol}", protocol)
        ) from None
    return True


def _check_tokens(stream: str, consumer: str) -> None:
    """Raises InvalidArgumentError for names that no stream or consumer has."""
    for name in (stream, consumer):
        if not name or set(name) & set(" .*>/\\\t\r\n"):
            raise InvalidArgumentError(
                f"broker-queue has {name!r} for the name of a stream or consumer. With direction in"
                " and protocol nats it is STREAM/CONSUMER, with direction out STREAM."
            )


def _address(said: Mapping[str, Any]) -> BrokerAddress:
    url, user, password, file, tls, heartbeat = _who(said)
    if user or password or file or not tls.cert:
        user, password = user or _GUEST, _GUEST if password is None else password
    return BrokerAddress(url, user, password or "", file, tls, heartbeat)


def _amqp1_address(said: Mapping[str, Any]) -> amqp1.Amqp1Address:
    from ackq_link.amqp1 import address  # noqa: PLC0415 - its library may be missing

    url, user, password, file, tls, heartbeat = _who(said)
    return address.Amqp1Address(url, user, password or "", file, tls, heartbeat)


def _nats_address(said: Mapping[str, Any]) -> NatsAddress:
    from ackq_link.jetstream.address import NatsAddress  # noqa: PLC0415 - its library may be missing

    url, user, password, file, tls, heartbeat = _who(said)
    return NatsAddress(url, user, password or "", file, tls, heartbeat)


def _who(said: Mapping[str, Any]) -> tuple[str, str, str | None, str, Tls, int]:
    """The URL without its user, then the other fields of a `RemoteAddress`."""
    plain, secure = _SCHEMES.get(said["protocol"], _AMQP)
    url, user, password = parse_url(said["broker"], (plain, secure))
    tls = Tls(said["ca"], said["cert"], said["key"])
    if not url.startswith(f"{secure}:") and tls != Tls():
        raise InvalidArgumentError(
            f"ca, cert or key is given, but the URL is {plain}://, which is not encrypted; write"
            f" {secure}."
        )
    user = said["user"] or user or ""
    if password is None and (user or not tls.cert):
        password = os.environ.get(PASSWORD)
    return url, user, password, said["password-file"], tls, said["heartbeat"]


def _broker(edge: Mapping[str, Any]) -> Broker:
    given = {name.replace("-", "_"): value for name, value in edge.items() if name != "endpoint"}
    return Broker(edge["endpoint"], Security.of_settings(given))


def _needed(said: Mapping[str, Any], key: str, what: str) -> str:
    if not said[key]:
        raise InvalidArgumentError(f"{key} is missing; give {what}.")
    return str(said[key])


def _without(said: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if said[key] != LINK_KEYS[key].default:
            raise InvalidArgumentError(
                f"{key} has no effect on a link with direction {said['direction']} and protocol"
                f" {said['protocol']}; leave it out."
            )


def _table(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArgumentError(f"{name} must be a table.")
    return value
