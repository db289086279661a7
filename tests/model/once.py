"""Models a guarded sink, Trigger.Once, and an operator who releases a session.

A sink that has a batch may skip it before any row is read, as Delta's does. Under Trigger.Once an
opening leases, and each run is one batch.

The remedies that a refused opening names (S9) let a checkpoint continue that lost its files, and
its query then runs an old batch id with other rows (S11).
"""

from dataclasses import replace

from ackq.errors import AckqError
from ackq_broker.core import commands as c
from tests.model.broker import SESSION
from tests.model.world import Spark, put


class Guarded(Spark):
    """Spark whose tasks name their batch, and whose source refuses to accept an unread lease."""

    def __init__(self, broker, *, skips_unread=False, **faults):
        super().__init__(broker, **faults)
        self.skips_unread = skips_unread

    def _call(self, world, role, driver):
        command = super()._call(world, role, driver)
        if isinstance(command, c.Advance):
            return replace(command, refuse_unread=True)
        return command

    def _fetch(self, world, role, driver):
        if self.skips_unread and self._has(world, driver):
            skipped = put(world, role, driver._replace(step="commit"))
            return f"the sink has batch {driver.batch}, and nothing is read", skipped
        return self._noted(world, role, driver)


class Once(Guarded):
    """Spark under Trigger.Once; the operator acts once."""

    def _all(self, world):
        yield from super()._all(world)
        if world.driver.step == "begin" and not world.released:
            yield from self._releases(world)

    def _releases(self, world):
        held = tuple(row.name for row in self.broker.lease(world.broker))
        after, reply = self.broker.call(world.broker, c.ReleaseSession(SESSION, fence=True))
        if not isinstance(reply, AckqError):
            # Messages of the released lease are redelivered, as the operator was warned; its
            # checkpoint is refused.
            yield (
                "an operator releases the session",
                world._replace(
                    broker=after, released=True, lost=True, operated=(*world.operated, *held)
                ),
            )

    def _call(self, world, role, driver):
        command = super()._call(world, role, driver)
        if isinstance(command, c.Advance):
            return replace(command, max_messages=0, open_and_lease=not driver.incarnation)
        return command

    def _commit(self, world, role, driver):
        text, after = super()._commit(world, role, driver)
        now = getattr(after, role)
        if now is None or now.step != "advance":
            return text, after
        ended = self._no_zombie(after) if role == "zombie" else self._new_driver(after)
        return f"{text}, and its run ends", ended
