"""Ticks at due times, in virtual time."""

import asyncio

from ackq_broker.core import commands
from ackq_broker.engine import timer
from ackq_broker.engine.clock import BrokerClock
from ackq_broker.engine.timer import TickTimer
from tests.fakes.clock import run
from tests.unit.service.channel_streams import Broker

RUN = run
START_NS = 1_700_000_000_000_000_000


class Ticking(Broker):
    """A broker whose clock is the loop's, with queue `t` where messages live for ten seconds."""

    def __init__(self):
        super().__init__()
        loop = asyncio.get_running_loop()
        self.engine.clock = BrokerClock(
            0,
            lambda: START_NS + round(loop.time() * 1e9),
            lambda: round(loop.time() * 1e9),
        )
        self.ticker = TickTimer(self.engine)
        properties = commands.QueueProperties(message_ttl_ms=10_000)
        self.engine.decide(commands.DeclareQueue("t", properties))


async def test_what_is_due_one_by_one_shares_ticks():
    """Q3: messages that are due each millisecond do not make a record each millisecond."""
    broker = Ticking()
    for _ in range(1000):
        broker.publish(b"a", queue="t")
        await asyncio.sleep(0.001)
    before = broker.engine.core.sequence
    await asyncio.sleep(11)
    assert broker.queue("t").expired == 1000
    assert broker.engine.core.sequence - before <= 1 / timer._LEAST_S + 1


async def test_something_sooner_moves_the_timer(caplog):
    """Q3, Q7: the timer follows the earliest deadline, of a message or of an unused queue.

    At a shutdown nothing is decided once the journal closes.
    """
    caplog.set_level("INFO")
    broker = Ticking()
    broker.publish(b"a", queue="t")
    await asyncio.sleep(5)
    broker.engine.decide(commands.DeclareQueue("u", commands.QueueProperties(message_ttl_ms=1000)))
    broker.engine.decide(commands.DeclareQueue("e", commands.QueueProperties(expires_ms=1000)))
    broker.publish(b"b", queue="u")
    await asyncio.sleep(1.1)
    assert (broker.queue("u").ready, broker.queue("t").ready) == (0, 1)
    assert "queue 'e' was deleted" in caplog.text
    broker.ticker.stop()
    before = broker.engine.core.sequence
    await asyncio.sleep(20)
    assert broker.engine.core.sequence == before
