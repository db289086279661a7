"""Models rewinds (S14): an operator's, and those of a query that begins with a new checkpoint.

The session retains all that it accepts. A deleted checkpoint is a full refresh (K15): the target is
emptied with it, so the sink of the query that was opened last is judged, as if it were the only
one.
"""

from collections import Counter
from dataclasses import replace

from ackq.errors import AckqError
from ackq_broker.core import commands as c
from tests.model.broker import SESSION
from tests.model.explorer import repeated
from tests.model.once import Guarded

_RETAIN_MS = 7 * 24 * 3_600_000


class Rewinding(Guarded):
    """A query with `retain` and `startFrom=earliest`, one message a batch; an operator rewinds."""

    def __init__(self, broker, *, rewinds=1, **faults):
        super().__init__(broker, **faults | {"deliveries": 0})
        self.rewinds = rewinds

    def _all(self, world):
        for event, after in super()._all(world):
            # No refusal is right because of the deletion: the opening takes over (S14).
            deleted = after.deletions > world.deletions
            yield event, after._replace(lost=world.lost) if deleted else after
        if world.rewinds < self.rewinds:
            yield from self._rewinds(world)

    def _rewinds(self, world):
        for wish, text in ((c.Rewind(), "all"), (c.Rewind(batch_id=1), "batch 1 and later ones")):
            after, reply = self.broker.call(world.broker, c.RewindSession(SESSION, wish))
            if isinstance(reply, AckqError) or not reply.messages:
                continue
            again = self._ready_again(world, after)
            assert len(again) == reply.messages
            yield (
                f"an operator rewinds {text}: {', '.join(again)}",
                world._replace(
                    broker=after,
                    rewinds=world.rewinds + 1,
                    again=tuple(sorted(world.again + again)),
                ),
            )

    def _ready_again(self, world, broker):
        """The messages that a call brought back to the queue."""
        ready, before = (self.broker.held(each)[0] for each in (broker, world.broker))
        return tuple(sorted(set(ready) - set(before)))

    def _call(self, world, role, driver):
        command = super()._call(world, role, driver)
        if not isinstance(command, c.Advance):
            return command
        command = replace(command, max_messages=1, retain_ms=_RETAIN_MS)
        if driver.incarnation:
            return command
        return replace(command, rewind=c.Rewind(), open_and_lease=True)

    def _advance(self, world, role, driver):
        text, after = super()._advance(world, role, driver)
        now = getattr(after, role)
        if not driver.incarnation and now is not None and now.step == "offsets":
            # A query that opens twice, as two drivers may do, reads all of it twice.
            twice = driver.query == world.opened
            again = world.again + self._ready_again(world, after.broker) if twice else ()
            after = after._replace(opened=driver.query, again=tuple(sorted(again)))
        return text, after


def flaw(broker, world, names):
    """Returns the flaw of a world as text: each message arrives once, and once for each rewind."""
    queued, _ = broker.held(world.broker)
    sunk = Counter(name for query, _, rows in world.sink if query == world.opened for name in rows)
    for name in names:
        due = 1 + world.again.count(name)
        if sunk[name] > due:
            return f"{name} is doubled: {sunk[name]} times instead of {due}"
        if name not in queued and sunk[name] < due:
            return f"{name} is lost: {sunk[name]} times instead of {due}"
    return repeated(world)
