"""An inbound link's look at the limits of its remote queue, in virtual time."""

import asyncio

from ackq_link.adapter import CutError, Limits, QueueLimits
from ackq_link.hold_policy import HoldPolicy, HoldRules
from ackq_link.inbound import _LEARN_S, Inbound, InboundRules
from tests.fakes.clock import run

RUN = run


class Source:
    """A remote queue whose looks have prepared results: limits, or an error."""

    identity, limits = "amqp://h:5672/%2F, queue q", Limits(10, 1 << 20)

    def __init__(self, *looks):
        self.looks = [*looks]

    async def learn(self):
        found = self.looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


class Learning:
    """A running link's looks, of which `dead_letters` has the result of each."""

    def __init__(self, limits, *looks, **rules):
        self.source = Source(*looks)
        self.link = Inbound("link", self.source, None, InboundRules(**rules))
        self.holding = HoldPolicy(HoldRules())
        self.holding.limits = limits

    async def dead_letters(self):
        looks = len(self.source.looks)
        task = asyncio.create_task(self.link._keep_learning(self.holding))
        found = []
        await asyncio.sleep(_LEARN_S / 2)
        for _ in range(looks):
            await asyncio.sleep(_LEARN_S)
            assert not task.done(), task.exception()
            found.append(self.holding.limits.dead_letters)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found


async def test_a_look_that_does_not_say_leaves_dead_letters_lost():
    """L28: a queue known to drop dead letters does so until a look says that it keeps them."""
    kept, lost, unknown = (QueueLimits(dead_letters=each) for each in (True, False, None))
    learning = Learning(kept, lost, unknown, CutError("away"), kept, unknown)
    assert await learning.dead_letters() == [False, False, False, True, None]
