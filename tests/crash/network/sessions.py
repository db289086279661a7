"""A model of a streaming query over a network with faults: the source's and the sink's calls.

Rules K1-K3, S1-S4, A4. The checkpoint is two lists: planned and committed batches.
"""

from concurrent.futures import ThreadPoolExecutor

from ackq import client
from ackq.client import Session, StageWriter, commit_batch
from ackq.errors import BrokerUnavailableError, FencedError
from ackq.v1 import sessions_pb2 as pb
from ackq.wire.fetch_key import fetch_key
from tests.crash.harness import fill, in_queue, messages, unacked
from tests.crash.network.rounds import Actor

PATIENT_MS = 600_000
FILL = 400
TASKS = 2


class Reading(Actor):
    """A driver with two tasks, and now and then another driver in its place."""

    kind = "source"

    def act(self):
        self.table, self.filled = [], []
        self.offset = ("", "", 0)  # session, incarnation, tag: the end of the last batch in the log
        planned = None
        while True:
            if planned is None and self.table and self.stopping.is_set():
                break
            driver = Driver(self)
            try:
                planned = driver.live(planned)
            finally:
                with self.guard.within("close of the liveness stream", 5):
                    driver.close()
            self.figures["drivers"] += 1

    def fill(self):
        """Publishes more messages, without faults."""
        first = len(self.filled)
        names = [f"source-{number:07d}" for number in range(first, first + FILL)]
        fill(self.direct, self.queue, names)
        self.filled += names

    def check(self):
        """K1, K2: every row is in one batch, once, and all rows are accepted."""
        rows = [name for batch in self.table for name in batch]
        self.figures["batches"] += len(self.table)
        doubled = len(rows) - len(set(rows))
        if doubled or set(rows) != set(self.filled):
            self.figures["lost"] += len(set(self.filled) - set(rows))
            self.figures["doubled"] += doubled
            self.report(f"{len(self.filled)} filled, {len(rows)} rows, {doubled} doubled")
        self.figures["messages"] += len(self.filled)
        if unacked(self.direct, self.queue) != (0, 0):
            self.report(f"left in the queue: {unacked(self.direct, self.queue)}")


class Driver:
    """One process lifetime of a query's driver; `planned` is its offset log's batch, if any."""

    def __init__(self, actor):
        self.actor = actor
        self.guard, self.rng = actor.guard, actor.rng
        self.session = Session(actor.endpoint, retry_total_ms=PATIENT_MS)
        self.holder = client.holder(actor.kind)
        self.holder.token = self.rng.randbytes(16)
        self.stream = self.held = None

    def live(self, planned):
        """Runs batches until it dies or the run stops; returns the batch that it leaves planned."""
        lives = self.rng.randint(1, 30)
        while lives or (planned is None and self.actor.stopping.is_set()):
            lives = max(0, lives - 1)
            end = self._advance()
            if end == self.actor.offset:
                if self.actor.table and self.actor.stopping.is_set():
                    return None
                self.actor.fill()
                continue
            if planned is not None and planned[0] != end:
                self.actor.report(f"batch to {planned[0]} was planned anew to {end}")
            rows = self._read(end)
            if planned is not None and planned[1] is not None and planned[1] != rows:
                self.actor.report(f"the batch to {end} was read again with other rows")
            planned = end, rows
            if not lives and not self.actor.stopping.is_set():
                return planned  # dies before its commit log
            self.actor.table.append(rows)
            self.actor.offset, planned = end, None
        return planned

    def _advance(self):
        name, incarnation, tag = self.actor.offset
        request = pb.AdvanceRequest(
            session=name,
            incarnation=incarnation,
            holder=self.holder,
            queues=[self.actor.queue],
            start_tag=tag,
            max_messages=self.rng.choice([10, 100, 1_000]),
            wait_ms=100,
        )
        # Where another driver held it: for its heartbeat, and the time that it tries.
        with self.guard.within("advance", self.actor.patience_s):
            answer = self.session.advance(request)
        self.epoch = answer.epoch
        if (answer.incarnation, answer.epoch) != self.held:
            self.close()
            self.held = answer.incarnation, answer.epoch
            self.stream = self.session.hold(
                answer.session, answer.incarnation, answer.epoch, self.holder.token
            )
        if not incarnation:
            self.actor.offset = answer.session, answer.incarnation, 0
        return answer.session, answer.incarnation, answer.end_tag

    def _read(self, end):
        """The rows of the lease, by two tasks; some ranges are read twice, with equal rows."""
        first, last = self.actor.offset[2], end[2]
        middle = (first + last) // 2
        ranges = [(first, middle), (middle, last)]
        with ThreadPoolExecutor(TASKS) as pool:
            with self.guard.within("fetch", self.actor.patience_s):
                parts = list(pool.map(lambda each: self._fetch(end, *each), ranges))
            if self.rng.random() < 0.2:
                with self.guard.within("fetch", self.actor.patience_s):
                    again = list(pool.map(lambda each: self._fetch(end, *each), ranges))
                if again != parts:
                    self.actor.report(f"a second fetch to {end} gave other rows")
        return [name for part in parts for name in part]

    def _fetch(self, end, after_tag, last_tag):
        if after_tag == last_tag:
            return []
        name, incarnation, _ = end
        request = pb.FetchRequest(
            session=name,
            incarnation=incarnation,
            epoch=self.epoch,
            after_tag=after_tag,
            last_tag=last_tag,
            query_id="query",
            run_id="run",
            batch_id=len(self.actor.table),
            key=fetch_key(self.holder.token, incarnation, self.epoch),
        )
        batches = self.session.fetch(request, ["message_id"])
        return [name for batch in batches for name in batch.column(0).to_pylist()]

    def close(self):
        """Ends the liveness stream; the lease stays."""
        if self.stream is not None:
            if isinstance(self.stream.fenced, FencedError):
                self.actor.report(f"was fenced: {self.stream.fenced}")
            self.stream.close()
            self.stream = None


class Writing(Actor):
    """A sink: tasks stage rows and may be run again, the driver commits, maybe twice."""

    kind = "sink"

    def act(self):
        self.rows, batch_id = [], 0
        while not self.stopping.is_set():
            tasks = [self._names(batch_id, task) for task in range(TASKS)]
            self._commit(batch_id, self._stages(batch_id, tasks))
            if self.rng.random() < 0.2:  # the driver died before its commit log
                assert self._commit(batch_id, self._stages(batch_id, tasks)).repeated
            self.rows += [name for rows in tasks for name in rows]
            batch_id += 1
        self.figures["batches"] += batch_id

    def _names(self, batch_id, task):
        rows = self.rng.choice([1, 50, 1_000])
        return [f"b{batch_id:05d}-{task}-{row:04d}" for row in range(rows)]

    def _stages(self, batch_id, tasks):
        with self.guard.within("stage", self.patience_s), ThreadPoolExecutor(TASKS) as pool:
            return list(pool.map(lambda rows: self._stage(batch_id, rows), tasks))

    def _stage(self, batch_id, rows):
        """Runs one task; it is run again under a new stage when its stream is cut."""
        while True:
            self.figures["attempts"] += 1
            try:
                with StageWriter(
                    self.endpoint, writer=self.queue, batch_id=batch_id, run_id="run"
                ) as writer:
                    for at in range(0, len(rows), 100):
                        writer.write(messages(rows[at : at + 100], 200), routing_key=self.queue)
                    return writer.seal()
            except BrokerUnavailableError:
                self.figures["attempts cut"] += 1

    def _commit(self, batch_id, stages):
        with self.guard.within("commit", self.patience_s):
            return commit_batch(
                self.endpoint,
                writer=self.queue,
                batch_id=batch_id,
                run_id="run",
                stages=stages,
                target=self.queue,
                retry_total_ms=PATIENT_MS,
            )

    def check(self):
        """K3: the rows of each batch are placed once, and of tasks that were cut nothing is."""
        self.compare(in_queue(self.direct, self.queue), self.rows)


ACTORS = (Reading, Writing)
