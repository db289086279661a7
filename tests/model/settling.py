"""Models a query that settles rows (S6), and an operator who settles tags of its lease (S8).

For each batch the query reads the rows, settles the bad ones, reads the rows again and writes the
good ones, as a `foreachBatch` with several actions does.
"""

from ackq.errors import AckqError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from tests.model.broker import SESSION, Group, Stage, TimePasses
from tests.model.world import TOKENS, Spark, put, roles


def fate(row):
    """The outcome that the query gives a row: m2 is bad, m3 comes too early the first time."""
    if row.name == "m2":
        return Outcome.REJECTED
    if row.name == "m3" and row.deliveries == 1:
        return Outcome.RELEASED
    return Outcome.ACCEPTED


class Settling(Spark):
    """Spark with a query that settles rows; the operator acts `operations` times at most."""

    def __init__(self, broker, *, operations=0, **faults):
        super().__init__(broker, **faults)
        self.operations = operations

    def _all(self, world):
        yield from super()._all(world)
        later, _ = self.broker.call(world.broker, TimePasses())
        yield "time passes", world._replace(broker=later)
        if len(world.operated) < self.operations:
            yield from self._operations(world)

    def _operations(self, world):
        for row in self.broker.lease(world.broker)[:1]:
            reject = c.SettleLease(SESSION, Outcome.REJECTED, ((row.tag, row.tag),), fence=True)
            after, reply = self.broker.call(world.broker, reject)
            assert not isinstance(reply, AckqError), reply
            # The lease changes between two epochs, as the operator wants.
            yield (
                f"an operator rejects {row.name}",
                world._replace(broker=after, operated=(*world.operated, row.name), read=()),
            )

    def _crashes(self, world):
        yield from super()._crashes(world)
        for role, driver in roles(world):
            if driver.step == "fetch":
                text, after = self._read(world, role, driver)
                now = getattr(after, role)
                if now is not None and now.step == "sink":
                    # More than a broker may do, whose fetch waits for that note's sync (S6).
                    after = put(after, role, now._replace(step="settle"))
                    dead = self.broker.restarted(after.broker)
                    yield (
                        f"{role}: {text}; the broker dies before it noted that",
                        after._replace(broker=dead, delivered=()),
                    )

    def _fetch(self, world, role, driver):
        text, after = self._noted(world, role, driver)
        now = getattr(after, role)
        if now is None or now.step != "sink":
            return text, after
        return text, put(after, role, now._replace(step="settle"))

    def _settle(self, world, role, driver):
        """The tasks of a settle call stage outcomes, and the driver commits them."""
        owner = c.LeaseOwner("", str(driver.query), TOKENS[role].hex(), driver.batch)
        bad = [row for row in driver.rows if fate(row) is not Outcome.ACCEPTED]
        stages = ()
        broker = world.broker
        if bad:
            stage_id = TOKENS[role][:-1] + bytes([driver.batch])
            groups = tuple(Group(fate(row), row.tag) for row in bad)
            broker, reply = self.broker.call(broker, Stage(stage_id, owner, groups))
            if isinstance(reply, AckqError):
                return self._refused(world, role, driver, reply)
            stages = ((stage_id, reply),)
        broker, reply = self.broker.call(broker, c.CommitOutcomes(owner, stages))
        if isinstance(reply, AckqError):
            return self._refused(world, role, driver, reply)
        now = driver._replace(step="again")
        said = ", ".join(f"{row.name} {fate(row).value}" for row in bad) or "nothing"
        return f"settles {said}", put(world._replace(broker=broker), role, now)

    def _again(self, world, role, driver):
        """Another action reads the same rows: they may not have changed inside an epoch."""
        found = (driver.incarnation, driver.epoch, driver.start, driver.end)
        rows = self.broker.fetch(world.broker, *found)
        if isinstance(rows, AckqError):
            return self._refused(world, role, driver, rows)
        if rows != driver.rows:
            was, now = ([row.name for row in some] for some in (driver.rows, rows))
            return "reads again", world._replace(
                wrong=f"batch {driver.batch} was read with other rows in one run: {was}, {now}"
            )
        good = tuple(row for row in rows if fate(row) is Outcome.ACCEPTED)
        return "reads again", put(world, role, driver._replace(step="sink", rows=good))
