"""A writer's batches (K3): stages, and commits that make them visible once.

`Sink` is what a query's sink does for one batch; `Writer` is a client that writes batches of its
own, in runs, where a newer run writes the last batch again.
"""

from contextlib import suppress

from ackq.v1 import publishing_pb2
from tests.crash.simulation.clients.client import Client
from tests.crash.simulation.clients.wire import body_of, encoded, payload_bytes
from tests.crash.simulation.network import Cut, Refused


class Sink:
    """Writes batches to one queue; a repeated row of a writer is the same message.

    Args:
        client: The client whose generator and connections are used.
        queue: The target.
        writer: The writer's name.
    """

    def __init__(self, client, queue, writer):
        self._client = client
        self._oracle = client.oracle
        self._queue = queue
        self.writer = writer
        # The messages of each batch.
        self._batches = {}
        self._committed = {}
        self.last = -1

    def messages(self, batch, names):
        """The messages that the rows of a batch become."""
        if batch not in self._batches:
            self._batches[batch] = [
                self._oracle.publish(
                    f"{self.writer}:{name}",
                    body_of(f"{self.writer}:{name}", 40),
                    self._queue,
                    order=(self.writer, batch * 1000 + number),
                    group=f"batch {batch} of {self.writer}",
                )
                for number, name in enumerate(names)
            ]
            for message in self._batches[batch]:
                # Until a commit is sent the message is certainly in no queue.
                message.put.call = 1 << 59
        return self._batches[batch]

    async def stage(self, batch, run, messages):
        """Stages rows by one or two tasks, some of which fail first; returns their references."""
        cut = self._client.rng.randrange(len(messages) + 1)
        parts = [part for part in (messages[:cut], messages[cut:]) if part]
        return [await self._task(batch, run, part) for part in parts]

    async def _task(self, batch, run, messages):
        for attempt in range(20):
            try:
                return await self._stage(batch, run, messages, f"{attempt}")
            except Cut:
                pass
            except Refused as refusal:
                if not self._client.excuses(refusal):
                    raise
            await self._client.pause()
        raise Cut("a task failed too often")

    async def _stage(self, batch, run, messages, label):
        client = self._client
        stage_id = client.token()
        stream = client.world.connect().open("Stage")
        opening = publishing_pb2.StageOpen(
            stage_id=stage_id,
            writer=self.writer,
            batch_id=batch,
            run_id=run,
            label=label,
            mandatory=True,
        )
        await client.send(stream, _header(open=opening))
        rows = size = 0
        while rows < len(messages):
            bodies = [each.body for each in messages[rows : rows + client.rng.choice((1, 3, 10))]]
            data = publishing_pb2.StageData(rows=len(bodies))
            await client.send(stream, _header(encoded(bodies, self._queue), data=data))
            rows += len(bodies)
            size += payload_bytes(bodies, self._queue)
        seal = publishing_pb2.StageSeal(rows=rows, payload_bytes=size)
        await client.send(stream, _header(seal=seal))
        while True:
            response = await client.patiently(stream.read())
            if response is None:
                raise Cut("the stage ended without an answer")
            if response.HasField("sealed"):
                sealed = response.sealed
                self._oracle.check(
                    (sealed.rows, sealed.payload_bytes) == (rows, size), "K3: sealed otherwise"
                )
                return publishing_pb2.StageReference(
                    stage_id=stage_id, rows=rows, payload_bytes=size
                )

    async def commit(self, batch, run, stages, messages):
        """Commits until there is an answer; returns whether it was a repetition."""
        instant = self._oracle.now()
        for message in messages:
            if message.put is not None:
                message.put.call = min(message.put.call, instant)
        known = batch <= self.last
        request = publishing_pb2.CommitBatchRequest(
            writer=self.writer, batch_id=batch, run_id=run, stages=stages, target=self._queue
        )
        answer = await self._client.call("CommitBatch", request, tries=30)
        self._oracle.check(
            answer.repeated or not known, f"K3: batch {batch} of {self.writer} was written again"
        )
        self._oracle.check(
            answer.rows == len(messages),
            f"K3: batch {batch} of {self.writer} has {answer.rows} rows of {len(messages)}",
        )
        self.last = max(self.last, batch)
        self._oracle.figures["batches" if not answer.repeated else "batches again"] += 1
        for message in messages:
            self._oracle.confirmed(message)
        return answer.repeated


class Writer(Client):
    """Writes the batches of a job that is killed and restarted.

    Args:
        queue: The target.
        count: Number of batches.
    """

    def __init__(self, world, oracle, name, queue, count):
        super().__init__(world, oracle, name)
        self._count = count
        self._queue = queue

    async def work(self):
        sink = Sink(self, self._queue, self.name)
        run = "run-0"
        batch = 0
        while batch < self._count:
            rows = [f"{batch}.{row}" for row in range(self.rng.choice((1, 3, 6)))]
            messages = sink.messages(batch, rows)
            while True:
                try:
                    await self._write(sink, batch, run, messages)
                except Cut:
                    run = f"run-{self.rng.randrange(1 << 30)}"
                    await self.pause()
                    continue
                break
            if self.sometimes(0.4):
                # Killed before its commit log was written: the batch is run again.
                run = f"run-{self.rng.randrange(1 << 30)}"
                continue
            batch += 1
            await self.pause(2 * self.pace_s)
        if self.sometimes(0.3):
            await self._go_back(sink, run)
        elif self.sometimes(0.3):
            await self._be_forgotten(sink, run)

    async def _write(self, sink, batch, run, messages):
        try:
            stages = await sink.stage(batch, run, messages)
            if self.sometimes(0.15):
                # Another attempt of each task staged the same rows, and its stages are never
                # aborted.
                await sink.stage(batch, run, messages)
            if self.sometimes(0.12):
                await self._replace(sink, batch, run, stages, messages)
            await sink.commit(batch, run, stages, messages)
        except Refused as refusal:
            dropped = (self.name, batch) in self.oracle.dropped or self.excuses(refusal)
            self.oracle.check(dropped, f"K3: batch {batch} of {self.name} was refused: {refusal}")
            raise Cut("refused") from None

    async def _replace(self, sink, batch, run, stages, messages):
        """K3: a newer run drops the stages of this one, whose commit is then refused."""
        newer = f"run-{self.rng.randrange(1 << 30)}"
        await sink.stage(batch, newer, messages)
        try:
            repeated = await sink.commit(batch, run, stages, messages)
        except Refused as refusal:
            known = ("stage_mismatch", "batch_changed")
            self.oracle.check(refusal.code in known, f"K3: {self.name}: {refusal}")
        else:
            self.oracle.check(repeated, f"K3: {self.name} committed what a newer run dropped")
        raise Cut("a newer run took over")

    async def _be_forgotten(self, sink, run):
        """K3: every request under the name of a forgotten writer is refused."""
        forget = publishing_pb2.ForgetWriterRequest(writer=self.name, force=True)
        request = publishing_pb2.CommitBatchRequest(
            writer=self.name, batch_id=sink.last + 1, run_id=run, target=self._queue
        )
        with suppress(Cut):
            try:
                await self.call("ForgetWriter", forget, tries=10)
            except Refused as refusal:
                self.oracle.check(refusal.code == "in_use", f"K3: {self.name}: {refusal}")
                return
            try:
                await self.call("CommitBatch", request, tries=10)
            except Refused as refusal:
                known = ("writer_forgotten", "outcome_unknown")
                self.oracle.check(refusal.code in known, f"K3: {self.name}: {refusal}")
            else:
                self.oracle.wrong(f"K3: {self.name} committed after it was forgotten")

    async def _go_back(self, sink, run):
        """K3: a batch below the last one is an error."""
        if sink.last < 1:
            return
        request = publishing_pb2.CommitBatchRequest(
            writer=self.name, batch_id=sink.last - 1, run_id=run, target=self._queue
        )
        try:
            await self.call("CommitBatch", request, tries=10)
        except Cut:
            pass
        except Refused as refusal:
            self.oracle.check(refusal.code == "batch_order", f"K3: {refusal}")
        else:
            self.oracle.wrong(f"K3: {self.name} committed batch {sink.last - 1} again, after later")


def _header(block=b"", **kind):
    header = publishing_pb2.StageHeader(**kind)
    return publishing_pb2.StageRequest(header=header, block=block)
