"""A queue of an AMQP 0-9-1 broker to consume: its window, its limits, its name. Rules L1, L14, L17.

Invariant: nothing is declared or changed at the remote broker.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Final

from yarl import URL

from ackq_link.adapter import CutError, Limits, QueueLimits
from ackq_link.amqp091 import stream_queue
from ackq_link.amqp091.address import BrokerAddress, connect, cut_of
from ackq_link.amqp091.management import Management
from ackq_link.amqp091.subscription import QueueSubscription, Seen

# Versions whose quorum queues no longer deliver once each consumer has met the consumer timeout
# (rabbitmq-server#17317); before 4.3 a quorum queue had none of its own.
_STOPS_FROM: Final = (4, 3, 0)
_STOPS_TO: Final = (4, 3, 5)
# The note on a single active consumer, for every version.
SINGLE_ACTIVE_NOTE: Final = (
    "the remote queue has a single active consumer: while the link is the active one, another"
    " consumer or link waits and gets nothing; while another one is active, this link waits"
)


_CALL_S: Final = 20.0
_PORTS: Final = {"amqp": 5672, "amqps": 5671}
QUORUM: Final = "quorum"
CLASSIC: Final = "classic"
# The first version in which quorum queues have a delivery limit by default, and this limit.
_LIMIT_SINCE: Final = (4, 0)
_DEFAULT_LIMIT: Final = 20
# From this version on a nack with requeue does not count as a delivery; a cut still does.
_FREE_NACK_SINCE: Final = (4, 3)


@dataclass(frozen=True, slots=True)
class QueueSource:
    """A queue of an AMQP 0-9-1 broker as the source of a link.

    Args:
        address: The broker.
        queue: The queue, which must exist.
        name: The link's name.
        limits: `window_messages` is the prefetch, from 1 to 65535: with 0 a quorum queue would
            deliver 2000.
        told: The limits that the user set; they override the learnt ones.
        management: The HTTP API of the broker, if the link may use it.
    """

    address: BrokerAddress
    queue: str
    name: str
    limits: Limits
    told: QueueLimits = field(default_factory=QueueLimits)
    management: Management | None = None
    seen: Seen = field(default_factory=Seen, compare=False)

    @property
    def identity(self) -> str:
        """The protocol, host, port, virtual host and queue, without credentials (L1)."""
        url = URL(self.address.url)
        vhost = url.raw_path.removeprefix("/") or "%2F"
        port = url.explicit_port or _PORTS[url.scheme]
        return f"amqp://{url.host}:{port}/{vhost}, queue {self.queue}"

    async def learn(self) -> QueueLimits:
        """Learns the limits of the queue (L14).

        Limits that the user set go first, then those of the management API. AMQP 0-9-1 itself does
        not report the limits of a queue; the broker's version and the headers of redelivered
        messages give hints.

        Raises:
            CutError: The broker is away; or, with a refusal, the queue does not exist, or it is a
                stream.
        """
        connection = await connect(self.address, self.name, confirms=False)
        try:
            self.seen.version = connection.version
            async with asyncio.timeout(_CALL_S):
                await connection.channel.queue_declare(self.queue, passive=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is learnt
            raise cut_of(error, self.address, self.queue) from None
        finally:
            await connection.close()
        learnt = QueueLimits()
        if self.management is not None:
            learnt = await self.management.queue_limits(self.address, self.queue)
            self.seen.kind = learnt.kind
        limits = self.limits_of(learnt)
        if limits.kind == stream_queue.STREAM:
            refusal = stream_queue.refusal(self.queue)
            raise CutError(refusal.message, refusal)
        return limits

    async def subscribe(self) -> QueueSubscription:
        """Connects and consumes. Raises CutError, with a refusal if a retry cannot mend it."""
        connection = await connect(self.address, self.name, confirms=False)
        subscription = QueueSubscription(
            connection, self.address, self.queue, self.limits, self.seen
        )
        try:
            await subscription.start()
        except BaseException as error:
            await connection.close()
            if isinstance(error, Exception):
                raise cut_of(error, self.address, self.queue) from None
            raise
        return subscription

    def limits_of(self, learnt: QueueLimits) -> QueueLimits:
        """The limits combined from the user's settings, facts seen, and the management API."""
        told = self.told.kind or learnt.kind
        kind = told or (QUORUM if self.seen.quorum else "")
        found = learnt.overridden(self.told)
        limit = found.delivery_limit
        if limit is None:
            if kind == CLASSIC:
                limit = 0
            elif kind == QUORUM and self.seen.version:
                limit = _DEFAULT_LIMIT if self.seen.version >= _LIMIT_SINCE else 0
        alone, timeout_s = found.single_active, found.consumer_timeout_s
        warning = single_active_warning(self.seen.version, kind, timeout_s) if alone else ""
        return replace(
            found,
            kind=told if learnt.partial else kind,  # without one it told nothing of the queue
            delivery_limit=limit,
            assumed=limit is not None and found.delivery_limit is None,
            requeue_counts=kind != CLASSIC and self.seen.version < _FREE_NACK_SINCE,
            remedy=self._remedy(),
            warnings=(*learnt.warnings, warning) if warning else learnt.warnings,
            notes=(SINGLE_ACTIVE_NOTE,) if alone else (),
        )

    def _remedy(self) -> str:
        """The command that gives the queue a dead-letter exchange."""
        vhost = URL(self.address.url).path.removeprefix("/") or "/"
        pattern = "^" + "".join(f"\\{c}" if c in ".+*?()[]{}|^$\\" else c for c in self.queue) + "$"
        return (
            f"rabbitmqctl set_policy -p '{vhost}' 'ackq-{self.queue}' '{pattern}'"
            ' \'{"dead-letter-exchange":"EXCHANGE"}\' --apply-to queues'
        )


def single_active_warning(version: tuple[int, ...], kind: str, timeout_s: float | None) -> str:
    """The warning that a queue with a single active consumer will stop for ever; empty: none.

    Args:
        version: RabbitMQ's version; empty: not known.
        kind: The type of the queue.
        timeout_s: The consumer timeout of the queue, where one is set or learnt.
    """
    stops = _STOPS_FROM <= version[:3] <= _STOPS_TO
    if not stops or kind not in {"quorum", ""} or timeout_s is not None:
        return ""
    return (
        f"RabbitMQ {'.'.join(map(str, version))} stops a quorum queue with a single active consumer"
        " for ever when its consumers meet the consumer timeout (rabbitmq-server#17317). Give the"
        " queue a consumer-timeout, by policy or argument, that is longer than any hold of a"
        " message, and give it to the link (consumer-timeout); or use 4.3.6 or later"
    )
