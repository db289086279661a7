"""Spark 4.0 and 4.1, which do not name to the source where the query stands (K13)."""

from dataclasses import replace

from ackq_broker.core import commands as c
from tests.model.once import Guarded
from tests.model.world import put, unused


class Older(Guarded):
    """A source that keeps the offset it answered last, or that `partitions` named last."""

    def _begin(self, world, role, driver):
        text, after = super()._begin(world, role, driver)
        files, now = world.checkpoint, getattr(after, role)
        # Spark calls partitions(x, x) with the newest offset of the checkpoint, committed or not.
        seen = self._seen(files.offsets[-1]) if files.offsets else ("", 0)
        return text, put(after, role, now._replace(place=seen))

    def _seen(self, offset):
        return offset

    def _call(self, world, role, driver):
        command = super()._call(world, role, driver)
        if not isinstance(command, c.Advance):
            return command
        incarnation, start = driver.place
        # Spark does not say which trigger it is, so that the first batch leases (S9).
        return replace(
            command,
            incarnation=incarnation,
            start_tag=start,
            open_and_lease=not incarnation,
            new_incarnation="" if start else unused(world),
        )

    def _advance(self, world, role, driver):
        text, after = super()._advance(world, role, driver)
        now = getattr(after, role)
        if now is not None and now.step == "offsets":
            after = put(after, role, now._replace(place=(now.incarnation, now.end)))
        return text, after


class NothingSeen(Older):
    """K13 off: the offset that `partitions` names at the start of a query is not kept."""

    def _seen(self, offset):
        del offset
        return "", 0
