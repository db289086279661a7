"""The cast of a world with links: the remote broker, link processes, readers of the inbox."""

import asyncio
from functools import partial

from ackq_link.hold_policy import HoldRules, OnMaxHold, OnReject
from ackq_link.inbound import InboundRules
from ackq_link.keys import KeyRule
from tests.crash.simulation.clients.cast import Cast
from tests.crash.simulation.clients.channel import Consumer
from tests.crash.simulation.clients.links import (
    ForeignPublisher,
    Hoarder,
    Lightning,
    LinkOperator,
    LinkWatcher,
    Runner,
    Standstill,
    Weather,
)
from tests.crash.simulation.clients.operator import Watcher
from tests.crash.simulation.clients.publisher import Publisher
from tests.crash.simulation.clients.session import Query
from tests.crash.simulation.clients.stranger import Stranger
from tests.crash.simulation.elsewhere import Elsewhere, ElsewhereRules
from tests.crash.simulation.link_machine import MEMORY_S, stands_still
from tests.crash.simulation.oracle.history import QueueRules
from tests.crash.simulation.oracle.ledger import Oracle
from tests.crash.simulation.oracle.link_books import INBOX, LinkBooks, TallyBooks, TallyOracle

# Delays of the remote broker are less than half of the local broker's link memory.
_LATE_S = 0.4 * MEMORY_S
# When no message was moved for this time, none ever will be.
_IDLE_S = 120.0
_LOOK_S = 0.25
_STOP_S = 20.0
_OUTCOMES = (
    {"accepted": 6, "failed": 1, "rejected": 1, "released": 2},
    {"accepted": 3, "failed": 4, "rejected": 1, "released": 2},
)
_TALLIED = {"accepted": 4, "released": 1}
# Kinds of messages: each with an id, each with a content of its own, or alike.
_KINDS = {"ids": 5, "unique": 2, "alike": 3}


class LinkCast(Cast):
    """The clients of one world with a link."""

    def _prepare(self):
        rng = self._rng
        self.standstill = None
        (self._kind,) = rng.choices(tuple(_KINDS), tuple(_KINDS.values()))
        self._removes = self._kind == "ids" and rng.random() < 0.15
        self._keyless = self._kind != "ids" and rng.random() < 0.1
        self._strict = self._kind == "ids" and not self._removes
        self._ack = rng.choice(("settled", "settled", "stored"))
        self._queues = [
            QueueRules("dead"),
            QueueRules(
                INBOX,
                dead="dead" if self._strict else "",
                limit=rng.choice((0, 1, 2)) if self._strict else 0,
                delay_ms=rng.choice((0, 0, 200)),
                max_length=rng.choice((0, 0, 0, 8)),
            ),
            QueueRules("plain"),
            *self._queues_of_stranger(),
        ]
        self.oracle = (Oracle if self._strict else TallyOracle)(self._world, self._queues)

    def _choose(self):
        rng, world, oracle = self._rng, self._world, self.oracle
        self._deaths = not self._removes and rng.random() < 0.5
        limit = rng.choice((0, 0, 0, 5))
        rules = ElsewhereRules(
            delay_s=rng.choice((0.0, 0.002, 0.05)),
            apply_s=rng.choice((0.0, 0.0, 0.1)),
            sync_s=0.0 if world.clock_jumps else rng.choice((0.0, 0.05, _LATE_S)),
            noticed_s=rng.choice((0.0, 0.05, _LATE_S)),
            overlaps=rng.random() < 0.5,
            forgets_marks=rng.random() < 0.5,
            limit=limit,
        )
        holding = HoldRules(
            max_hold_s=None if self._keyless else rng.choice((None, None, 0.4, 1.5)),
            on_max_hold=rng.choice((None, OnMaxHold.RENEW, OnMaxHold.STORE)),
        )
        if stands_still(world):
            holding = HoldRules()  # an age below that of a standstill has no effect
        early = bool(limit) or (
            holding.max_hold_s is not None and holding.on_max_hold is OnMaxHold.STORE
        )
        settled = self._ack == "settled" and not early
        on_reject = OnReject.THERE if settled and rng.random() < 0.4 else OnReject.HERE
        if self._strict:
            self.books = LinkBooks(oracle, settled=settled, rejects_there=on_reject.there)
        else:
            by_content = self._kind != "ids" and not self._keyless
            self.books = TallyBooks(
                oracle, settled=settled, by_content=by_content, keyless=self._keyless
            )
        self.elsewhere = self.books.elsewhere = Elsewhere(world, rules)
        link_rules = partial(
            InboundRules,
            ack=self._ack,
            key=KeyRule(self._key_rule()),
            holding=holding,
            on_reject=on_reject,
        )
        window = rng.choice((1, 2, 5, 12))
        if stands_still(world):
            window = 30
        there = self.elsewhere, self.books
        count = rng.choice((10, 20, 40))
        names = rng.choice((1, 2, 4)) if self._kind == "alike" else 0
        ids = self._kind == "ids"
        publisher = self._add(ForeignPublisher, "there", *there, count, names=names, ids=ids)
        self.runner = self._add(Runner, "runner", *there, link_rules, window)
        if rng.random() < 0.8:
            self._add(Weather, "weather", self.elsewhere, deaths=self._deaths)
        if stands_still(world):
            hoarder = self._add(Hoarder, "hoarder", [INBOX], {"accepted": 1})
            self.standstill = self._add(Standstill, "standstill", publisher, self.runner, hoarder)
        if rng.random() < 0.4:
            self._add(Lightning, "lightning", self.books)
        if self._removes or rng.random() < 0.3:
            self._add(LinkOperator, "link operator", self.books, self.runner, removes=self._removes)
        self.watcher = self._add(LinkWatcher, "link watcher", self.books)
        self._add(Watcher, "watcher")
        self._add_readers()

    def _key_rule(self):
        if self._keyless:
            return "none"
        return "auto" if self._kind == "ids" else self._rng.choice(("auto", "fingerprint"))

    def _add_readers(self):
        rng = self._rng
        for number in range(rng.choice((1, 1, 2))):
            outcomes = rng.choice(_OUTCOMES) if self._strict else _TALLIED
            self._add(Consumer, f"c{number}", [INBOX], outcomes)
        if self._strict and rng.random() < 0.3:
            self._add(Query, "query", "session", INBOX, "", rng.choice((1, 2, 5)))
        if rng.random() < 0.3:
            queue = rng.choice((INBOX, "plain")) if self._strict else "plain"
            routes = [("", queue, (queue,))]
            self._add(Publisher, "p0", routes, rng.choice((4, 10)), transient=0.0)

    def _add_stranger(self):
        # A link that an operator has removed has no owner.
        self._add(Stranger, "stranger", self.clients, links=not self._removes)

    # --- the end ---

    async def move_all(self):
        """Moves all messages here and has them acknowledged there; then the link ends.

        No further fault is injected, and the readers of the inbox go on meanwhile. A new process
        does it; after a standstill of the disk, the process that runs does: it never receives a
        lost permit again (L10). In another subscription the message would be delivered again, and
        have another permit.
        """
        if self.standstill in self.clients:
            await self.standstill.last()
        else:
            await self.runner.end_all()
        left, moved_s = None, self._world.now_s()
        while self.elsewhere.left() and self._world.now_s() < moved_s + _IDLE_S:
            if left != (left := len(self.elsewhere.left())):
                moved_s = self._world.now_s()
            await self.runner.running()
            await asyncio.sleep(_LOOK_S)
        self.books.close()
        process = await self.runner.running()
        process.stop()
        until_s = self._world.now_s() + _STOP_S
        while not process.ended and self._world.now_s() < until_s:  # noqa: ASYNC110 - virtual
            await asyncio.sleep(_LOOK_S)
        self.oracle.check(process.ended == "stopped", f"L9: {process.ended} at a stop")
        await self.watcher.remove()
