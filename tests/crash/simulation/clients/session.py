"""A query with its checkpoint, as Spark's engine runs it: drivers that die, and zombies.

A driver plans a batch (`Advance`), writes offsets/N, fetches, writes to the sink, writes commits/N,
and accepts with the next plan. A driver that starts reads the checkpoint, and runs the last batch
again if commits does not have it. A machine that dies loses files that Spark did not sync: the last
one of commits, of offsets, or of both, as in `tests.model.world.losses`.
"""

from tests.crash.simulation.clients.client import Client
from tests.crash.simulation.clients.driver import Driver, Killed, Stuck
from tests.crash.simulation.clients.sink import Sink
from tests.crash.simulation.network import Cut
from tests.crash.simulation.oracle.history import Hold
from tests.model.world import Checkpoint, losses

# Share of queries whose session retains its batches.
_RETAINING = 2 / 3
# Share of kills after which a query that retains reads all of it again, with a new checkpoint.
_ANEW = 1 / 8


class Lease:
    """The client's knowledge of one lease: tags up to `end` under an incarnation.

    Attributes:
        rows: As read; None before the first complete fetch.
        holds: The hold and message of each row.
        accept: Operations of its accept; None before one is requested.
        outcomes: The outcomes that each tag may have been settled with in `settled_epoch`, if any.
        begun: The instant at which its first read ended.
        batches: The batches that read it.
        start: The tag before its first; `over`: the instant at which a later accept was answered.
    """

    def __init__(self, end):
        self.end = end
        self.start = 0
        self.over = 0
        self.rows = None
        self.batches = set()
        self.begun = 0
        self.holds = []
        self.accept = None
        self.outcomes = {}
        self.settled_epoch = 0

    @property
    def accepted(self):
        """Whether an accept was answered: from then on its outcomes never change."""
        return any(operation.must for operation in self.accept or ())

    def tell(self, tag, *outcomes):
        """Sets the possible outcomes of a tag, also for an accept that was requested before."""
        self.outcomes[tag] = outcomes
        if self.accept is not None:
            for operation, (hold, _, held) in zip(self.accept, self.holds, strict=True):
                if held == tag:
                    operation.what = (hold, *outcomes)


class Query(Client):
    """A streaming query that is restarted whenever its driver ends.

    Args:
        session: Its session's name.
        queue: The queue that it reads.
        target: The queue of its sink; "" for a sink of another system.
        limit: Messages of a batch.
        settles: Whether it gives rows other outcomes than accepted (S6).
        timeout_ms: Its session timeout (S5); 0: none.

    Attributes:
        retain_ms: How long its session retains batches (S13); 0: the one accepted last alone.
        purged: The instants at which answered purges of its queue were called; `may_be_purged`: one
            was called.
        mortality: Factor of the chance that a driver is killed before a step.
        empty: The chance that a batch is planned without rows.
        naps: The chance that a driver with a session timeout pauses for long before a step.
        alone: Whether nobody else reads its queue.
        refreshes: How often it may still begin with a new checkpoint without need (K15).
        retains: Whether they certainly are retained; None: not known.
        rewinds: Whether its next opening reads again what is retained (S14).
    """

    def __init__(
        self, world, oracle, name, session, queue, target, limit, *, settles=False, timeout_ms=0
    ):
        super().__init__(world, oracle, name)
        self.session = session
        self.queue = queue
        self.target = target
        self.limit = limit
        self.settles = settles
        self.timeout_ms = timeout_ms
        # From a generator of its own, so that the worlds of all seeds stay as they were.
        self.retain_ms = 3_600_000 if world.random("retain").random() < _RETAINING else 0
        self.retains = None if self.retain_ms and world.retention_ends else self.retain_ms > 0
        self.mortality = 1
        self.empty, self.naps = 0.2, 0.1
        self.alone, self.refreshes = False, 0
        self.purged = []
        # The incarnation that was opened last with a rewind, and the one that it replaced.
        self.replaced = "", ""
        self.may_be_purged = False
        # Settlements by operators: incarnation, tags, outcome, and the instant of the call.
        self.operated = []
        self.leases = {}
        self.pace_s = min(self.pace_s, 0.2)
        self.driver = None
        self.zombies = 0
        self.lingering = []
        self.polls = 0
        # Batches without rows that the broker knows of: (query id, batch id).
        self.reported = set()
        self._number = 0
        self.lost = False
        self._new_checkpoint()

    def _new_checkpoint(self):
        self._number += 1
        self.query_id = f"{self.name}-q{self._number}"
        self.files = Checkpoint(query=self._number)
        self.sink = Sink(self, self.target, self.query_id)
        self.takeover = self._number > 1
        self.lost = False
        self.rewinds = self.takeover and bool(self.retain_ms)

    async def work(self):
        while True:
            driver = self.driver = Driver(self)
            silently = False
            try:
                await driver.run()
            except Killed:
                self.oracle.figures["drivers killed"] += 1
                chance = 0.6 if driver.is_about_to_read() else 0.2
                silently = self.sometimes(chance) and self.zombies < 2
                if silently:
                    # The silent driver goes on as a zombie while another begins.
                    self.zombies += 1
                    self.oracle.figures["zombies"] += 1
                    self.lingering.append(
                        self.world.spawn(f"{self.name} zombie {self.zombies}", driver.linger)
                    )
                else:
                    self._lose_files(driver)
                if self.retain_ms and self.sometimes(_ANEW / self.mortality):
                    self._new_checkpoint()
            except Stuck as stuck:
                self.world.trace(self.name, "begins with a new checkpoint:", stuck)
                self.oracle.figures["checkpoints begun anew"] += 1
                self._new_checkpoint()
            except Cut:
                pass
            driver.die(silently=silently and self.sometimes(0.3))
            await self.pause(0.5)

    async def run(self):
        """Runs as any client; its zombies end with it."""
        await super().run()
        for zombie in self.lingering:
            await zombie

    def _lose_files(self, driver):
        ways = list(losses(self.files))
        _, left = ways[0] if self.sometimes(0.4) else self.rng.choice(ways)
        if driver.is_behind_its_accept():
            # The one file that proves the accept, if any: the batch is run again from the kept
            # lease (K2).
            left = next((way for _, way in ways if way.commits != self.files.commits), left)
        self.lost |= len(left.offsets) < len(self.files.offsets)
        self.files = left._replace(
            synced_offsets=len(left.offsets), synced_commits=len(left.commits)
        )

    # --- what all its drivers know of leases ---

    def lease(self, incarnation, end):
        """The lease of an incarnation that ends at a tag."""
        found = self.leases.setdefault((incarnation, end), Lease(end))
        self.oracle.leases[self.hold(incarnation, end)] = found
        return found

    def hold(self, incarnation, end):
        return Hold(incarnation, end)

    def may_be_hole(self, tag):
        """Whether a tag that was read may be a hole by now (S5, S8)."""
        return self.timeout_ms or self._may_be_settled(tag)

    def _may_be_settled(self, tag):
        return any(tag in tags for _, tags, _, _ in self.operated)

    def accept(self, lease):
        """The operations of an accept of a lease that was read."""
        if lease.accept is None:
            lease.accept = []
            for hold, message, tag in lease.holds:
                settled = self._may_be_settled(tag)
                if self.timeout_ms:
                    kind = "resume_settled" if settled else "resume"
                else:
                    kind = "operate" if settled else "settle"
                outcomes = lease.outcomes.get(tag, ("accepted",))
                lease.accept += self.oracle.settle([message], [hold], *outcomes, kind=kind)
        return lease.accept

    def comes_again(self, lease, message, tag):
        """S14: whether an opening with a rewind certainly reads a message of an earlier lease."""
        accepted = all(outcome == "accepted" for outcome in lease.outcomes.get(tag, ()))
        lasting = not message.ttl_ms or lease.accepted
        return (
            self.alone
            and self.retains
            and accepted
            and lasting
            and not self.may_be_hole(tag)
            and not self.oracle.may_be_purged(self.queue, lease.begun)
            and message.order is not None
        )

    def operate(self, incarnation, tags, outcome):
        """Records that an operator will settle tags; returns the operations, to be `done`."""
        operated = (incarnation, tags, outcome, self.oracle.now())
        self.operated.append(operated)
        return [each for lease in self.leases.values() for each in self._operate(lease, *operated)]

    def read(self, lease):
        """Applies settlements by operators to a lease whose rows have just become known."""
        for operated in self.operated:
            self._operate(lease, *operated)

    def _operate(self, lease, incarnation, tags, outcome, called):
        found = []
        for at, (hold, message, tag) in enumerate(lease.holds):
            if hold.owner == incarnation and tag in tags:
                found += self.oracle.settle([message], [hold], outcome, kind="operate")
                found[-1].call = called
                if lease.accept is not None:
                    accept = lease.accept[at]
                    accept.kind = {"settle": "operate", "resume": "resume_settled"}.get(
                        accept.kind, accept.kind
                    )
        return found
