"""The holders of a queue's messages, and the storage they pin, for an operator (Q9).

Invariant: the event loop serves others between two holdings, each of which is a bounded piece of
work (I6); so a list of many holdings does not show one instant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import numpy as np

from ackq.v1 import admin_pb2 as pb
from ackq.wire.answers import copied
from ackq_broker.core import commands, views
from ackq_broker.engine.clock import age_ms
from ackq_broker.engine.engine import Engine
from ackq_broker.service.consuming.channel import BrokerChannel
from ackq_broker.service.consuming.consumer import BrokerConsumer
from ackq_broker.service.consuming.service import ConsumingService
from ackq_broker.service.sessions.service import SessionsService

_MOST: Final = 1_000


class Holdings:
    """Lists the messages held by sessions and channels.

    Args:
        engine: Reads core and journal.
        consuming: Knows channels and their clients.
        sessions: Knows which holders are live.
    """

    def __init__(
        self, engine: Engine, consuming: ConsumingService, sessions: SessionsService
    ) -> None:
        self._engine = engine
        self._consuming = consuming
        self._sessions = sessions

    async def list(self, queue: str, position: int = 0) -> pb.ListHoldingsResponse:
        """The holders of a queue's messages, or of one position; raises QueueNotFoundError."""
        core, clock = self._engine.core, self._engine.clock
        keepers = views.keepers(core.state, queue, position)
        found: list[pb.Holding] = []
        nothing = 0  # a lease consists of holes only, or the holding ended in the meantime
        for keeper in keepers[:_MOST]:
            holding = views.holding(core.state, queue, keeper, position)
            if holding is not None:
                found.append(self._holding(holding, tagged=bool(position)))
            else:
                nothing += 1
            await asyncio.sleep(0)
        found.sort(key=_age_ms, reverse=True)
        waiting = views.waiting_messages(core.state, queue)
        await self._engine.wait_synced()
        now_us = clock.now_us()
        return copied(
            pb.ListHoldingsResponse,
            waiting,
            holdings=found,
            holding_count=len(keepers) - nothing,
            consumers=_consumers(self._consuming.consumers(queue)),
            next_ready_ms=_until_ms(waiting.next_ready_us, now_us),
            next_expiry_ms=_until_ms(waiting.next_expiry_us, now_us),
        )

    def _holding(self, holding: commands.HoldingInfo, *, tagged: bool) -> pb.Holding:
        now_us = self._engine.clock.now_us()
        found = copied(
            pb.Holding,
            holding,
            stored_bytes=int(
                self._engine.journal.block_lengths(holding.blocks.astype(np.uint64)).sum()
            ),
            age_ms=age_ms(holding.since_us, now_us),
            oldest_age_ms=age_ms(holding.oldest_us, now_us),
            delivery_tag=holding.first_tag if tagged else 0,
        )
        if holding.session:
            found.connected = self._sessions.holder_live(holding.session)
            return found
        channel = self._consuming.channel(holding.channel_id)
        if channel is not None:
            found.channel = channel.label
            found.connected = channel.stream is not None
            found.age_ms = age_ms(channel.delivery_times.since_us(holding.first_tag), now_us)
            found.quiet_ms = age_ms(channel.settled_us, now_us)
        return found


def _age_ms(holding: pb.Holding) -> int:
    return holding.age_ms


def _consumers(found: Iterable[tuple[BrokerChannel, BrokerConsumer]]) -> list[pb.ConsumerInfo]:
    listed = [
        pb.ConsumerInfo(
            consumer=consumer.config.name,
            channel=channel.label,
            prefetch=consumer.prefetch,
            unacked=consumer.owner.unacked,
            no_ack=consumer.no_ack,
            has_room=consumer.room() > 0,
            connected=channel.stream is not None,
        )
        for channel, consumer in found
    ]
    return listed[:_MOST]


def _until_ms(at_us: int, now_us: int) -> int:
    """Milliseconds until a time; 0 if there is no time or it has passed."""
    return max(0, at_us - now_us) // 1000
