"""Queue limits from RabbitMQ's HTTP API, as AMQP 0-9-1 does not report them. Rules L14, L17.

Invariant: it only reads, with the credentials of the link, which no other server gets.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from yarl import URL

from ackq.errors import (
    AckqError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
    UnauthenticatedError,
)
from ackq.text import printable
from ackq_link.adapter import CutError, QueueLimits
from ackq_link.amqp091.address import BrokerAddress

_CALL_S: Final = 10.0
_SCHEMES: Final = ("http", "https")
_REDIRECTS: Final = range(300, 400)
_REFUSALS: Final[Mapping[int, tuple[type[AckqError], str]]] = {
    401: (
        UnauthenticatedError,
        "refuses the link's user: rabbitmqctl set_user_tags {user} management",
    ),
    403: (
        UnauthenticatedError,
        "refuses the link's user: rabbitmqctl set_user_tags {user} management",
    ),
    404: (NotFoundError, "has no such queue. Check the URL and the name"),
}

_AUTO_DELETE: Final = (
    "'{queue}' is an auto-delete queue: RabbitMQ deletes it, with its messages, when its last"
    " consumer ends, as a link's does at a cut, and whenever its window is full or grows. Declare"
    " a queue without auto-delete, bind it to the same exchange, and link that."
)
_EXPIRES: Final = (
    "RabbitMQ deletes the queue, with its messages, when it has had no consumer for {:g} s"
    " (expires): a link is none while it is stopped or cut, nor while its window is full. Take the"
    " limit off, or make it longer than any of these"
)
_BY_KEY: Final = (
    "the queue dead-letters by the default exchange, without a dead-letter-routing-key: RabbitMQ"
    " drops each message whose own routing key names no other queue. Whether it keeps them is not"
    " known. Give it a dead-letter-routing-key, the name of a queue for dead letters"
)
_NO_POLICY: Final = (
    "the management API tells no policy of the queue, as it has no statistics of it: a delivery"
    " limit, consumer timeout or dead-letter exchange by a policy is not known. Give them to the"
    " link (delivery-limit, consumer-timeout, dead-letters), or let RabbitMQ collect statistics"
    " (management_agent.disable_metrics_collector, management.disable_stats). Of a queue that was"
    " just declared, or has a new leader, they come within seconds"
)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error: the library would take the credentials along."""

    def redirect_request(self, *_: object) -> None:
        """Follows none."""


@dataclass(frozen=True, slots=True)
class Management:
    """RabbitMQ's management API at a URL such as `http://HOST:15672`."""

    url: str

    def __post_init__(self) -> None:
        url = URL(self.url)
        if url.scheme not in _SCHEMES or not url.host or url.user or url.query_string:
            raise InvalidArgumentError(
                "management is not of the form http://HOST[:PORT], or https:// for TLS, without a"
                " user: it gets that of the link."
            )

    async def queue_limits(self, address: BrokerAddress, queue: str) -> QueueLimits:
        """The limits of a queue; only a warning if the link's user may not use the API.

        Raises:
            CutError: The API failed; with a refusal if a retry cannot mend it.
        """
        try:
            found = await asyncio.to_thread(self._get, address, "queues", queue)
        except CutError as cut:
            if not isinstance(cut.refusal, UnauthenticatedError):
                raise
            warning = (
                f"{cut.refusal.message} Until then the link uses the limits that its"
                " configuration gives, or assumes those of the broker's version"
            )
            return QueueLimits(warnings=(warning,), partial=True)
        if found.get("auto_delete") is True:
            error = PreconditionFailedError(_AUTO_DELETE.format(queue=queue))
            raise CutError(error.message, error)
        limits = limits_of(found)
        if _dead_letters_to(found) == ("", None):
            return replace(limits, dead_letters=None, warnings=(*limits.warnings, _BY_KEY))
        try:
            flaw = await self._flaw(address, queue, found)
        except CutError as cut:
            if not isinstance(cut.refusal, UnauthenticatedError):
                raise
            return replace(limits, dead_letters=None, partial=True)
        if not flaw:
            return limits
        warning = (
            f"{flaw}: RabbitMQ drops the queue's dead letters. Declare it, or name another one"
        )
        return replace(limits, dead_letters=False, warnings=(*limits.warnings, warning))

    async def _flaw(self, address: BrokerAddress, queue: str, found: Mapping[str, Any]) -> str:
        """Why a described queue's dead letters are dropped; empty: none is. Raises CutError."""
        exchange, key = _dead_letters_to(found)
        if (exchange, key) == ("", queue):
            return "the queue dead-letters into itself (what is rejected comes back)"
        if exchange is None or _keeps_unrouted(found):
            return ""
        try:
            if exchange and not await self._is_bound(address, exchange, queue):
                return f"the dead-letter exchange '{exchange}' of the queue is bound to no other"
            if not exchange:
                await asyncio.to_thread(self._get, address, "queues", str(key))
        except CutError as cut:
            if not isinstance(cut.refusal, NotFoundError):
                raise
            what = f"exchange '{exchange}'" if exchange else f"queue '{key}'"
            return f"the dead-letter {what} of the queue does not exist"
        return ""

    async def _is_bound(self, address: BrokerAddress, exchange: str, queue: str) -> bool:
        """Whether an exchange has a binding to more than this queue, or an alternate exchange.

        A policy of it may give that.
        """
        there = await asyncio.to_thread(self._get, address, "exchanges", exchange)
        if there.get("policy") or "alternate-exchange" in _table(there.get("arguments")):
            return True
        bindings = await asyncio.to_thread(
            self._get, address, "exchanges", exchange, "/bindings/source", list
        )
        own = {"destination": queue, "destination_type": "queue"}
        return any(not own.items() <= _table(each).items() for each in bindings)

    def _get(
        self, address: BrokerAddress, kinds: str, name: str, of_it: str = "", shape: type = dict
    ) -> Any:
        vhost = URL(address.url).path.removeprefix("/") or "/"
        place = "/".join(urllib.parse.quote(part, safe="") for part in (vhost, name))
        login = address.connect_url()
        basic = base64.b64encode(f"{login.user}:{login.password}".encode()).decode("ascii")
        path = f"/api/{kinds}/{place}{of_it}"
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
            f"{self.url.rstrip('/')}{path}",
            headers={"Authorization": f"Basic {basic}"},
        )
        secure = self.url.startswith("https:")
        opener = urllib.request.build_opener(
            _NoRedirects,
            *([urllib.request.HTTPSHandler(context=address.tls.context())] if secure else ()),
        )
        try:
            with opener.open(request, timeout=_CALL_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            error.close()
            to = error.headers.get("Location")
            if to is not None and error.code in _REDIRECTS:
                named = urllib.parse.urljoin(request.full_url, to).removesuffix(path)
                told = f"management ({self.url}) redirects to {printable(named)}: name that"
                raise CutError(told, InvalidArgumentError(f"{told}.")) from None
            kind, sentence = _REFUSALS.get(error.code, (None, ""))
            said = f"{self.url}: {sentence.format(user=login.user)}."
            refusal = kind(said) if kind is not None else None
            raise CutError(f"{self.url}: HTTP status {error.code}", refusal) from None
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            cause = str(getattr(error, "reason", error)) or type(error).__name__
            raise CutError(f"{self.url}: {printable(cause)}") from None
        if not isinstance(found, shape):
            raise CutError(f"{self.url}: the answer does not describe a queue")
        return found


def limits_of(found: Mapping[str, Any]) -> QueueLimits:
    """The limits in the API's description of a queue; a missing limit is not known.

    The policy comes with the statistics of the queue, and is missing without them.
    """
    arguments = _table(found.get("arguments"))
    policy = _table(found.get("effective_policy_definition"))
    told = found.get("effective_policy_definition") is not None

    def smallest(name: str) -> int | None:
        """The smaller of argument and policy, which applies; negative values mean no limit (0)."""
        said = [
            value
            for value in (arguments.get(f"x-{name}"), policy.get(name))
            if isinstance(value, int)
        ]
        finite = [value for value in said if value >= 0]
        return min(finite) if finite else 0 if said else None

    timeout_ms, expires_ms = smallest("consumer-timeout"), smallest("expires")
    return QueueLimits(
        kind=_kind(found),
        consumer_timeout_s=timeout_ms / 1000 if timeout_ms is not None else None,
        delivery_limit=smallest("delivery-limit"),
        dead_letters=_said(found, "dead-letter-exchange") is not None or (False if told else None),
        single_active=arguments.get("x-single-active-consumer") is True,
        warnings=(
            *((_EXPIRES.format(expires_ms / 1000),) if expires_ms else ()),
            *(() if told else (_NO_POLICY,)),
        ),
        partial=not told,
    )


def _keeps_unrouted(found: Mapping[str, Any]) -> bool:
    """Whether dead letters that no exchange takes stay in a described queue.

    With another type or overflow RabbitMQ goes back to the strategy at-most-once. For some settings
    the policy goes before the argument, so where both are given both must be right.
    """
    strategy, overflow = _settings(found, "dead-letter-strategy"), _settings(found, "overflow")
    return _kind(found) == "quorum" and (
        {*strategy} == {"at-least-once"} and {*overflow} == {"reject-publish"}
    )


def _kind(found: Mapping[str, Any]) -> str:
    return str(found.get("type") or _table(found.get("arguments")).get("x-queue-type") or "")


def _dead_letters_to(found: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The exchange for a described queue's dead letters, and their routing key, as far as given."""
    return _said(found, "dead-letter-exchange"), _said(found, "dead-letter-routing-key") or None


def _said(found: Mapping[str, Any], name: str) -> str | None:
    """A setting of a described queue, of which the argument goes before the policy."""
    return next(iter(_settings(found, name)), None)


def _settings(found: Mapping[str, Any], name: str) -> list[str]:
    """The values of a setting in a described queue's arguments and policy, as far as given."""
    own = _table(found.get("arguments")).get(f"x-{name}")
    policy = _table(found.get("effective_policy_definition")).get(name)
    return [str(each) for each in (own, policy) if each is not None]


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
