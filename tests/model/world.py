"""Models the surroundings of a session: Spark drivers, their checkpoint, a sink, a consumer.

A `World` is a value; `events` gives every way on from it. Spark is modelled step by step as its
engine goes: plan (advance), offsets/N, fetch, sink, commits/N; after a start it reads the
checkpoint, and runs the last batch again when that is not in the commit log.

A batch may have no rows of the source: the opening, and a batch that Spark plans for a watermark or
for another source. The sink has it all the same. For an opening a task runs; for any other empty
batch the source sees the call of `commit` between offsets/N and the sink, and no call when the
batch is run again.

Faults: a driver dies (and with its machine the files Spark did not sync: the last one of commits/,
of offsets/, or of both); a driver is thought dead and continues as a zombie while another begins;
the broker dies, with or without having done a call; an operator deletes the checkpoint. Days pass,
and the broker forgets a session that has no holder and whose checkpoint did not return.
"""

from dataclasses import replace
from typing import NamedTuple

from ackq.errors import AckqError, FencedError, SessionNotFoundError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from tests.model.broker import CHANNEL, QUEUE, SESSION, DayPasses, Row, Settle

LIMIT = 2
# Tokens and incarnations stand for random ones, and are reused where no participant knows
# them any longer, so that worlds which differ in names alone are one.
NOBODY, DRIVER, ZOMBIE = (bytes([number]) * 16 for number in range(3))
TOKENS = {"driver": DRIVER, "zombie": ZOMBIE}
INCARNATIONS = tuple(f"{number:032x}" for number in range(1, 9))


class Checkpoint(NamedTuple):
    """The checkpoint's files: ends of batches, ids of committed ones, and how many are synced."""

    query: int = 1
    offsets: tuple[tuple[str, int], ...] = ()
    commits: tuple[int, ...] = ()
    synced_offsets: int = 0
    synced_commits: int = 0


class Driver(NamedTuple):
    """A Spark driver process between two steps; `rows` is what its tasks hold for the sink.

    `planned` is the number of batches without rows that its source has reported; `place` is where
    the query stands, as the source of an older Spark keeps it (K13).
    """

    query: int = 1
    step: str = "begin"
    batch: int = 0
    incarnation: str = ""
    start: int = 0
    end: int = 0
    epoch: int = 0
    rows: tuple[Row, ...] = ()
    planned: int = 0
    place: tuple[str, int] = ("", 0)


class World(NamedTuple):
    """A state of the whole model. `sink` and `read` have entries (query, batch, names or rows).

    `lost` is set when the checkpoint may no longer fit the session, so that a refusal is right;
    `operated` are messages whose fate an operator chose; `wrong` is a flaw that a step met.
    """

    broker: bytes
    checkpoint: Checkpoint
    driver: Driver
    zombie: Driver | None = None
    sink: tuple[tuple[int, int, tuple[str, ...]], ...] = ()
    read: tuple[tuple[int, int, tuple[Row, ...]], ...] = ()
    other: tuple[str, ...] = ()
    delivered: tuple[int | str, ...] = ()
    deliveries: int = 0
    crashes: int = 0
    deletions: int = 0
    empties: int = 0
    lost: bool = False
    stuck: str = ""
    operated: tuple[str, ...] = ()
    released: bool = False
    wrong: str = ""


class Spark:
    """Spark with all its rules. Subclasses switch a rule off."""

    def __init__(self, broker, *, crashes=3, deliveries=1, deletions=1, empties=0):
        self.broker = broker
        self.empties = empties
        self.crashes = crashes
        self.deliveries = deliveries
        self.deletions = deletions

    def first(self, messages):
        """The first world: a queue of messages, and a driver with an empty checkpoint."""
        return World(self.broker.fill(messages), Checkpoint(), Driver())

    def events(self, world):
        """Yields (event, world after it) for every event that may happen next."""
        for event, after in self._all(world):
            yield event, self.broker.plain(after)

    def _all(self, world):
        yield from self._steps(world)
        yield from self._others(world)
        live = self.broker.holder(world.broker, "") == DRIVER
        later, _ = self.broker.call(world.broker, DayPasses(live))
        yield "a day passes", world._replace(broker=later)
        if world.crashes < self.crashes:
            yield from self._crashes(world._replace(crashes=world.crashes + 1))
        if world.deletions < self.deletions and world.checkpoint.offsets:
            anew = world._replace(deletions=world.deletions + 1, lost=True)
            files = Checkpoint(query=world.checkpoint.query + 1)
            yield "the checkpoint is deleted", self._new_driver(anew._replace(checkpoint=files))

    # --- faults ---

    def _crashes(self, world):
        files = world.checkpoint
        for text, left in losses(files):
            survived = left._replace(
                synced_offsets=len(left.offsets), synced_commits=len(left.commits)
            )
            gone = self._no_zombie(world)._replace(
                checkpoint=survived, lost=world.lost or len(left.offsets) < len(files.offsets)
            )
            yield f"the driver dies{text}", self._new_driver(gone)
        if world.zombie is None and world.driver.step not in {"begin", "ended"}:
            silent = world._replace(
                broker=self.broker.renamed(world.broker, tokens=((DRIVER, ZOMBIE),)),
                zombie=world.driver,
            )
            yield "the driver falls silent, and another begins", self._new_driver(silent)
        dead = world._replace(broker=self.broker.restarted(world.broker), delivered=())
        yield "the broker dies", dead
        for role, driver in ((r, d) for r, d in roles(world) if d.step in {"advance", "attach"}):
            after, _ = self._ask(world, role, driver)
            if after != world.broker:
                died = world._replace(
                    broker=self.broker.restarted(after),
                    delivered=(),
                    lost=world.lost or wakes_in_opening(role, driver),
                )
                yield f"{role}: {driver.step}; the broker dies after it", died

    def _new_driver(self, world):
        """A new driver process with its own token; the previous driver's becomes NOBODY."""
        return world._replace(
            broker=self.broker.renamed(world.broker, tokens=((DRIVER, NOBODY),)),
            driver=Driver(query=world.checkpoint.query),
        )

    # --- another consumer ---

    def _others(self, world):
        if world.delivered:
            tag, *names = world.delivered
            for outcome in (Outcome.ACCEPTED, Outcome.RELEASED):
                settle = Settle(outcome, tag)
                broker, reply = self.broker.call(world.broker, settle)
                assert not isinstance(reply, AckqError), reply
                taken = tuple(names) if outcome is Outcome.ACCEPTED else ()
                after = world._replace(broker=broker, delivered=(), other=world.other + taken)
                yield f"the consumer settles {', '.join(names)} {outcome.value}", after
        elif world.deliveries < self.deliveries:
            broker, reply = self.broker.call(world.broker, c.Deliver(CHANNEL, QUEUE, 1))
            if reply.messages:
                names = self.broker.names(reply.pieces)
                after = world._replace(
                    broker=broker,
                    delivered=(reply.first_tag, *names),
                    deliveries=world.deliveries + 1,
                )
                yield f"a consumer is given {', '.join(names)}", after

    # --- steps of Spark ---

    def _steps(self, world):
        for role, driver in roles(world):
            if driver.step == "ended":
                continue
            step = getattr(self, f"_{driver.step}")
            text, after = step(world, role, driver)
            if after != world:
                yield f"{role}: {text}", after
            plans_empty = driver.step == "advance" and driver.incarnation and driver.batch
            if plans_empty and world.empties < self.empties:
                yield from self._plan_empty(world, role, driver)

    def _begin(self, world, role, driver):
        """Reads the checkpoint (MicroBatchExecution.populateStartOffsets)."""
        files = world.checkpoint
        last = len(files.offsets) - 1
        if last < 0:
            now = driver._replace(step="advance", incarnation="", start=0, end=0)
        elif files.commits and files.commits[-1] == last:
            incarnation, tag = files.offsets[last]
            now = driver._replace(
                step="advance", batch=last + 1, incarnation=incarnation, start=tag, end=tag
            )
        else:
            incarnation, end = files.offsets[last]
            start = files.offsets[last - 1][1] if last else 0
            # A batch without rows that is run again causes no call of the source.
            step = "attach" if start < end or not last else "sink"
            now = driver._replace(
                step=step, batch=last, incarnation=incarnation, start=start, end=end
            )
        return f"begins, batch {now.batch} is to {now.step}", put(world, role, now)

    def _ask(self, world, role, driver):
        return self.broker.call(world.broker, self._call(world, role, driver))

    def _call(self, world, role, driver):
        holder = c.HolderInfo(TOKENS[role])
        if driver.step == "report":
            ends = driver.start, driver.end
            return c.Attach(SESSION, driver.incarnation, holder, *ends, planned=driver.planned + 1)
        # The zombie fell silent: it meets the working driver, if that one holds the session.
        live = role == "zombie" and self.broker.holder(world.broker, driver.incarnation) == DRIVER
        if driver.step == "attach":
            return c.Attach(
                SESSION, driver.incarnation, holder, driver.start, driver.end, incumbent_live=live
            )
        return c.Advance(
            SESSION,
            driver.incarnation,
            holder,
            (QUEUE,),
            driver.start,
            max_messages=LIMIT,
            incumbent_live=live,
            new_incarnation="" if driver.start else unused(world),
        )

    def _advance(self, world, role, driver):
        """`latestOffset(start)`: accepts up to the start, and leases."""
        broker, reply = self._ask(world, role, driver)
        if isinstance(reply, AckqError):
            return self._refused(world, role, driver, reply)
        if driver.incarnation == reply.incarnation and reply.end_tag == driver.start:
            now = driver._replace(epoch=reply.epoch)
            text = f"advance({driver.start}): nothing"
        else:
            now = driver._replace(
                step="offsets", incarnation=reply.incarnation, end=reply.end_tag, epoch=reply.epoch
            )
            text = f"advance({driver.start}) leases up to {reply.end_tag}"
        world = world._replace(broker=broker, lost=world.lost or wakes_in_opening(role, driver))
        return text, put(world, role, now)

    def _plan_empty(self, world, role, driver):
        """`latestOffset(start)` finds no message, and Spark plans a batch without rows."""
        call = replace(self._call(world, role, driver), min_messages=1_000)
        broker, reply = self.broker.call(world.broker, call)
        found = (driver.incarnation, driver.start)
        if isinstance(reply, AckqError) or (reply.incarnation, reply.end_tag) != found:
            return
        now = driver._replace(step="offsets", epoch=reply.epoch)
        after = put(world._replace(broker=broker, empties=world.empties + 1), role, now)
        yield (
            f"{role}: advance({driver.start}): nothing, and batch {driver.batch} is planned",
            after,
        )

    def _report(self, world, role, driver):
        """`commit`, or the task of the opening, reports the planned batch to the broker (S11)."""
        if not driver.batch:
            note = replace(self._note(world, role, driver), empty=True)
            broker, reply = self.broker.call(world.broker, note)
        else:
            broker, reply = self._ask(world, role, driver)
        if isinstance(reply, AckqError):
            return self._refused(world, role, driver, reply)
        planned = driver.planned + 1 if driver.batch else driver.planned
        now = driver._replace(step="sink", planned=planned)
        text = f"the broker knows of batch {driver.batch}, without rows"
        return text, put(world._replace(broker=broker), role, now)

    def _attach(self, world, role, driver):
        """A replay: `partitions(start, end)`."""
        broker, reply = self._ask(world, role, driver)
        if isinstance(reply, SessionNotFoundError) and not driver.end:
            return "the opening was forgotten, and has no task", put(
                world, role, driver._replace(step="sink")
            )
        if isinstance(reply, AckqError):
            return self._refused(world, role, driver, reply)
        step = "fetch" if driver.start < driver.end else "report"
        now = driver._replace(step=step, epoch=reply.epoch)
        text = f"attaches to ({driver.start}, {driver.end}] for batch {driver.batch}"
        return text, put(world._replace(broker=broker), role, now)

    def _offsets(self, world, role, driver):
        """Writes offsets/N, which must not exist."""
        files = world.checkpoint
        if files.query != driver.query or len(files.offsets) != driver.batch:
            return self._conflict(world, role, driver)
        entry = (driver.incarnation, driver.end)
        files = files._replace(offsets=(*files.offsets, entry))
        now = driver._replace(step="fetch" if driver.start < driver.end else "report")
        # A zombie that wakes up in batch 0 may name an incarnation that an opening has replaced:
        # no message was leased to it, so that none is lost when its checkpoint is refused (S9).
        lost = world.lost or (role == "zombie" and not driver.batch)
        text = f"writes offsets/{driver.batch} = {driver.end}"
        return text, put(world._replace(checkpoint=files, lost=lost), role, now)

    def _fetch(self, world, role, driver):
        """All tasks read their rows."""
        return self._read(world, role, driver)

    def _noted(self, world, role, driver):
        """All tasks read, and the broker notes the reader before the first rows leave (S6, S11)."""
        text, after = self._read(world, role, driver)
        now = getattr(after, role)
        if now is None or now.step != "sink":
            return text, after
        broker, reply = self.broker.call(after.broker, self._note(world, role, driver))
        if isinstance(reply, AckqError):
            return self._refused(world, role, driver, reply)
        return text, after._replace(broker=broker)

    def _note(self, world, role, driver):
        """The command by which a task names its batch."""
        del world
        return c.NoteFetch(
            session=SESSION,
            incarnation=driver.incarnation,
            epoch=driver.epoch,
            query_id=str(driver.query),
            run_id=TOKENS[role].hex(),
            batch_id=driver.batch,
            label="",
            last_tag=driver.end,
        )

    def _read(self, world, role, driver):
        rows = self.broker.fetch(
            world.broker, driver.incarnation, driver.epoch, driver.start, driver.end
        )
        if isinstance(rows, AckqError):
            return self._refused(world, role, driver, rows)
        now = driver._replace(step="sink", rows=rows)
        world = world._replace(read=added(world.read, (driver.query, driver.batch, rows)))
        return f"reads batch {driver.batch}: {', '.join(row.name for row in rows)}", put(
            world, role, now
        )

    def _sink(self, world, role, driver):
        """The sink's commit: once for each (query, batch)."""
        now = driver._replace(step="commit", rows=())
        entry = (driver.query, driver.batch, tuple(row.name for row in driver.rows))
        done = self._has(world, driver)
        text = f"the sink {'has' if done else 'takes'} batch {driver.batch}"
        return text, put(world if done else self._take(world, entry), role, now)

    def _has(self, world, driver):
        return any((driver.query, driver.batch) == entry[:2] for entry in world.sink)

    def _take(self, world, entry):
        return world._replace(sink=(*world.sink, entry))

    def _commit(self, world, role, driver):
        """Writes commits/N, which must not exist."""
        files = world.checkpoint
        if files.query != driver.query or driver.batch in files.commits:
            return self._conflict(world, role, driver)
        files = files._replace(commits=tuple(sorted({*files.commits, driver.batch})))
        now = driver._replace(step="advance", batch=driver.batch + 1, start=driver.end, epoch=0)
        text = f"writes commits/{driver.batch}"
        return text, put(world._replace(checkpoint=files), role, now)

    # --- how a driver ends ---

    def _no_zombie(self, world):
        broker = self.broker.renamed(world.broker, tokens=((ZOMBIE, NOBODY),))
        return world._replace(broker=broker, zombie=None)

    def _refused(self, world, role, driver, error):
        """The query ends with the broker's error, and is restarted when that may help.

        A restart helps a driver that was fenced by a zombie, or had read the checkpoint before a
        zombie wrote to it. A driver that would repeat the same call is stuck.
        """
        text = f"{driver.step} is refused: {type(error).__name__}"
        if role == "zombie":
            return text, self._no_zombie(world)
        again = self._begin(world, role, driver._replace(step="begin"))[1].driver
        if isinstance(error, FencedError) or again._replace(epoch=driver.epoch) != driver:
            return f"{text}; it is started again", self._new_driver(world)
        ended = world._replace(driver=driver._replace(step="ended"))
        return text, ended._replace(stuck=f"{text}: {error}")

    def _conflict(self, world, role, driver):
        """CONCURRENT_STREAM_LOG_UPDATE: another driver wrote this file."""
        text = f"{driver.step}/{driver.batch} is there already: it ends"
        if role == "zombie":
            return text, self._no_zombie(world)
        return f"{text}; it is started again", self._new_driver(world)


def wakes_in_opening(role, driver):
    """Whether a zombie opens, which replaces a session that has no holder and no lease.

    The driver's checkpoint is refused from then on, and no message is lost with it (S9).
    """
    return role == "zombie" and not driver.incarnation


def roles(world):
    """Yields the running drivers with their roles."""
    yield "driver", world.driver
    if world.zombie is not None:
        yield "zombie", world.zombie


def unused(world):
    """An incarnation that neither the checkpoint nor a driver knows."""
    known = {entry[0] for entry in world.checkpoint.offsets}
    known |= {driver.incarnation for _, driver in roles(world)}
    return next(name for name in INCARNATIONS if name not in known)


def put(world, role, driver):
    """The world with the driver in its role."""
    return world._replace(**{role: driver})


def added(entries, entry):
    """The entries with one more, sorted and without duplicates."""
    return tuple(sorted({*entries, entry}))


def losses(files):
    """Yields (description, files left) for each way in which unsynced files may vanish."""
    commit = len(files.commits) > files.synced_commits
    offset = len(files.offsets) > files.synced_offsets
    yield "", files
    if commit:
        short = files._replace(commits=files.commits[:-1])
        yield f", commits/{files.commits[-1]} is lost", short
    if offset:
        last = len(files.offsets) - 1
        fewer = files._replace(offsets=files.offsets[:-1])
        if not files.commits or files.commits[-1] < last:
            yield f", offsets/{last} is lost", fewer
        if commit:
            both = fewer._replace(commits=files.commits[:-1])
            yield f", offsets/{last} and commits/{files.commits[-1]} are lost", both
