"""One driver process of a query, step by step as in Spark's engine."""

import random

from ackq.v1 import sessions_pb2
from ackq.wire.fetch_key import fetch_key
from tests.crash.simulation.clients.client import Ended
from tests.crash.simulation.clients.wire import rows_of
from tests.crash.simulation.network import Cut, Refused

OUTCOMES = {"accepted": 1, "failed": 2, "rejected": 3, "released": 4}


class Killed(Exception):  # noqa: N818 - an event
    """The driver's process was killed."""


class Stuck(Exception):  # noqa: N818 - an event
    """The query cannot go on with its checkpoint."""


class Driver:
    """One driver process; calls the broker under a holder token of its own."""

    def __init__(self, query):
        self.query = query
        self.oracle = query.oracle
        self.mortal = True
        self.token = query.token()
        self.run_id = self.token.hex()
        self.files = query.files
        self.query_id = query.query_id
        self.batch = 0
        self.epoch = 0
        self.attached = 0
        self.planned = 0
        self._life = None
        self._step = self._begin
        self._rng = random.Random(self.token)

    async def run(self):
        """Runs step after step until the driver ends."""
        while True:
            if self.query.world.closing:
                raise Ended
            # Its lease already exists, and no file records it.
            chance = 0.25 if self._step in (self._offsets, self._run_empty) else 0.08
            if self._step == self._report and self.batch:
                chance = 0  # the limit that S11 names: nothing shows that Spark runs it again
            if self.mortal and self._rng.random() < chance * self.query.mortality:
                raise Killed
            if self._step == self._write and self.batch and self.query.refreshes:
                self._refresh(0.3)
            if self.query.timeout_ms and self._rng.random() < self.query.naps:
                # Long enough for its lease to be requeued (S5).
                await self.query.pause(6.0)
            elif self._rng.random() < 0.3:
                await self.query.pause(self.query.pace_s)
            await self._next()

    def _refresh(self, chance):
        """K15: begins with a new checkpoint, in the middle of a batch or when all is read."""
        if self.mortal and self._rng.random() < chance:
            self.query.refreshes -= 1
            self.query.polls = 0
            raise Stuck("a full refresh")

    async def linger(self):
        """Lets a zombie driver take some more steps, some of them late."""
        self.mortal = False
        try:
            for _ in range(self._rng.randrange(1, 8)):
                await self.query.pause(3.0)
                await self._next()
        except (Cut, Killed, Stuck, Ended):
            pass

    async def _next(self):
        try:
            self._step = await self._step()
        except Refused as refusal:
            await self._refused(refusal)

    async def _refused(self, refusal):
        query = self.query
        if query.excuses(refusal):
            await query.pause()
        elif refusal.code == "precondition_failed" and "has other readers" in refusal.message:
            query.rewinds = False
        elif refusal.code == "already_held":
            await query.pause(1.5)
        elif refusal.code == "fenced" or self.query_id != query.query_id:
            raise Cut("it was replaced")
        elif refusal.code in ("lease_held", "session_not_found") or (
            query.lost and refusal.code in ("checkpoint_mismatch", "batch_changed", "batch_order")
        ):
            raise Stuck(refusal.code)
        elif query.zombies and refusal.code in ("checkpoint_mismatch", "batch_order"):
            raise Cut("another driver went on")
        elif refusal.code == "stage_mismatch" and (
            query.zombies or (self.query_id, self.batch) in query.oracle.dropped
        ):
            raise Cut("a newer run, or an operator, dropped its stages")
        elif refusal.code == "unknown_delivery_tag" and query.zombies and query.lost:
            raise Cut("its session was begun anew behind a checkpoint that was lost")
        elif refusal.code == "batch_changed" and query.zombies:
            raise Cut("another driver committed")
        else:
            query.oracle.wrong(f"S4: {query.name} was refused: {refusal}")
            raise Stuck(refusal.code)

    # --- steps ---

    async def _begin(self):
        """Reads the checkpoint (MicroBatchExecution.populateStartOffsets)."""
        files = self.files = self.query.files
        last = len(files.offsets) - 1
        self.batch = max(last, 0)
        if last < 0:
            self.incarnation, self.start, self.end = "", 0, 0
            return self._open
        self.incarnation, end = files.offsets[last]
        if files.commits and files.commits[-1] == last:
            self.batch = last + 1
            self.start = self.end = end
            return self._advance
        self.start, self.end = (files.offsets[last - 1][1] if last else 0), end
        if last and self.start == end:
            return self._run_empty
        return self._attach

    async def _open(self):
        """`initialOffset`: opens an incarnation (S9)."""
        query = self.query
        request = self._advance_request(incarnation="", takeover=query.takeover)
        again = None
        if query.rewinds:
            request.rewind.SetInParent()
            request.open_and_lease = True  # as Spark does for a named session (S9)
            again = query.oracle.rewinds(query.session, query.queue, retains=query.retains)
        begun = query.oracle.opening(query.session)
        try:
            answer = await query.call("Advance", request)
        except Refused:
            query.oracle.not_opened(query.session, begun)
            if again is not None:
                query.oracle.nothing(query.queue, again[0])
            raise
        if again is not None:
            query.oracle.rewound(query.session, *again)
            if again[0].what.alone:
                query.replaced = answer.incarnation, again[0].what.owner
        self.incarnation, self.end = answer.incarnation, answer.end_tag
        self._opened(answer.incarnation, begun)
        await self._attached(answer, begun)
        return self._offsets

    def _opened(self, incarnation, begun):
        self.oracle.opened(self.query.session, incarnation, begun)
        if self.query.timeout_ms:
            self.oracle.may_release(incarnation, begun)

    def _advance_request(self, **fields):
        query = self.query
        return sessions_pb2.AdvanceRequest(
            **{
                "session": query.session,
                "incarnation": getattr(self, "incarnation", ""),
                "holder": sessions_pb2.Holder(token=self.token, host="h", pid=1, application="s"),
                "queues": [query.queue],
                "start_tag": self.start,
                "max_messages": query.limit,
                "session_timeout_ms": query.timeout_ms,
                "retain_ms": query.retain_ms,
                **fields,
            }
        )

    async def _advance(self):
        """`latestOffset(start)`: accepts up to the start, and leases again (S4)."""
        query = self.query
        begun = self.oracle.now()
        accepting = self._accepting()
        # Spark plans a batch without rows for a watermark, or for another source.
        empty = self.batch > 0 and self._rng.random() < query.empty
        request = self._advance_request(
            wait_ms=500 if self._rng.random() < 0.3 else 0, min_messages=1_000 if empty else 0
        )
        answer = await query.call("Advance", request)
        if accepting is not None:
            instant = self.oracle.now()
            self.oracle.figures["leases accepted"] += 1
            for operation in accepting:
                if not operation.must:
                    operation.done(instant)
            for lease in self._accepted():
                lease.over = lease.over or (lease.end < self.start and instant)
        self._check_incarnation(answer, begun)
        await self._attached(answer, begun)
        await self._look_back()
        self.oracle.check(
            answer.end_tag >= self.start, f"S4: lease ends at {answer.end_tag} < {self.start}"
        )
        self.end = answer.end_tag
        if self.end == self.start and empty:
            return self._offsets
        if self.end == self.start:
            query.polls += 1
            if query.polls > 2 and query.refreshes:
                self._refresh(1.0)
            query.finished = query.polls > 2 and all(z.done() for z in query.lingering)
            await query.pause(0.5)
            return self._advance
        return self._offsets

    def _accepted(self):
        """The leases of this incarnation that were read, and whose accept was answered."""
        return [
            lease
            for (incarnation, _), lease in self.query.leases.items()
            if incarnation == self.incarnation and lease.rows and lease.accepted
        ]

    async def _look_back(self):
        """Reads a retained batch again: the same rows, but for purged ones (S13)."""
        leases = self._accepted() if self.query.retain_ms else []
        for lease in {id(each): each for each in leases[:1] + leases[-2:]}.values():
            await self._read_again(lease)

    async def _read_again(self, lease):
        query = self.query
        request = sessions_pb2.BrowseLeaseRequest(
            session=query.session,
            incarnation=self.incarnation,
            first_tag=lease.start + 1,
            last_tag=lease.end,
        )
        gone = [call for call in query.purged if 0 < lease.over < call]
        try:
            rows = await query.stream_rows(
                "BrowseLease", request, lambda frame: rows_of(frame.header, frame.block)
            )
        except Refused as refusal:
            ended = refusal.code == "precondition_failed" and query.retains is None
            if ended or refusal.code == "session_not_found" or query.excuses(refusal):
                return
            query.oracle.wrong(f"S13: {query.name} cannot read what is retained: {refusal}")
            raise
        self.oracle.figures["retained batches read"] += 1
        seen = [(row.tag, row.name, row.count) for row in rows]
        known = [row for row in lease.rows if query.may_be_purged or not query.may_be_hole(row[0])]
        if query.may_be_purged:
            self.oracle.check(set(seen) <= set(known), f"S13: {query.name} reads {seen}")
            self.oracle.check(not gone or not seen, f"S13: {query.name} reads purged {seen}")
        else:
            left = [row for row in seen if not query.may_be_hole(row[0])]
            self.oracle.check(left == known, f"S13: {query.name} reads {seen}, not {known}")

    def _check_incarnation(self, answer, begun):
        if answer.incarnation != self.incarnation:
            self.oracle.check(not self.start, f"S9: {self.query.name} opened anew at a tag")
            self.incarnation = answer.incarnation
            self._opened(answer.incarnation, begun)

    def _accepting(self):
        """The operations of the accept that this call may imply; None for none."""
        if not self.start:
            return None
        lease = self.query.leases.get((self.incarnation, self.start))
        if lease is None or lease.rows is None:
            return None
        return self.query.accept(lease)

    async def _offsets(self):
        """Writes offsets/N, which must not exist."""
        query = self.query
        files = query.files
        if self.query_id != query.query_id or len(files.offsets) != self.batch:
            raise Cut("another driver wrote this file")
        query.files = files._replace(offsets=(*files.offsets, (self.incarnation, self.end)))
        if self.start < self.end:
            query.world.process.changed("offsets")
        return self._fetch if self.start < self.end else self._report

    async def _report(self):
        """Reports a batch without rows, by a task of the opening or by the source (S11)."""
        query = self.query
        if self.batch:
            self.planned += 1
            request = self._attach_request(planned=self.planned)
            await query.call("Attach", request)
        else:
            await self._task(0, 0)
        self.oracle.figures["batches without rows"] += 1
        query.reported.add((self.query_id, self.batch))
        return self._run_empty

    async def _run_empty(self):
        """The sink takes a batch without rows: later it would skip rows under that id.

        If its offsets with rows were lost, these were never accepted, and it takes none of them.
        """
        if (self.query_id, self.batch) in self.query.reported:
            self.oracle.without_rows((self.query_id, self.batch))
        return self._commit

    async def _attach(self):
        """A replay: exactly the tags of the batch (S2)."""
        begun = self.oracle.now()
        answer = await self.query.call("Attach", self._attach_request())
        self.oracle.figures["replays"] += 1
        await self._attached(answer, begun)
        return self._fetch if self.start < self.end else self._report

    def _attach_request(self, **fields):
        return sessions_pb2.AttachRequest(
            session=self.query.session,
            incarnation=self.incarnation,
            holder=sessions_pb2.Holder(token=self.token, host="h", pid=1, application="s"),
            start_tag=self.start,
            end_tag=self.end,
            **fields,
        )

    async def _attached(self, answer, called):
        """Records the epoch, and opens the heartbeat stream that keeps the holder live (S3)."""
        self.epoch = answer.epoch
        self.attached = self.oracle.attached(self.incarnation, self.token, self.epoch, called)
        if self._life is not None and not self._life.client_cut:
            return
        self._life = self.query.world.connect()
        await self._life.open("Hold").write(
            sessions_pb2.HoldRequest(
                session=self.query.session,
                incarnation=self.incarnation,
                epoch=self.epoch,
                token=self.token,
            )
        )

    def is_about_to_read(self):
        """Whether the next steps would fence a zombie of this driver."""
        return self._step in (self._offsets, self._fetch)

    def is_behind_its_accept(self):
        """Whether it has accepted a batch that no file records; drawn, half of the time."""
        return self._step == self._offsets and self._rng.random() < 0.5

    def die(self, *, silently=False):
        """Ends its process and its connections; `silently`: the connections only fall silent."""
        if self._life is not None and not silently:
            self._life.cut()

    async def _fetch(self):
        """Reads ranges of the batch by tasks, some of them twice."""
        query = self.query
        begun = self.oracle.now()
        cut = self._rng.randrange(self.start, self.end + 1)
        ranges = [(self.start, cut), (cut, self.end)]
        ranges = [each for each in ranges if each[0] < each[1]]
        rows = []
        for after, last in ranges:
            rows += await self._task(after, last)
        if self._rng.random() < 0.2:
            again = await self._task(*ranges[0])
            self.oracle.check(
                [r[:5] for r in again] == [r[:5] for r in rows[: len(again)]],
                f"S2: {query.name} reads {again} instead of {rows}",
            )
        self._read(rows, begun)
        self.rows = rows
        return self._settle if query.settles else self._write

    async def _task(self, after, last):
        query = self.query
        fenced = self.oracle.fenced(self.incarnation, self.token, self.attached)
        if after < last:
            query.lease(self.incarnation, self.end).batches.add(self.batch)
        request = sessions_pb2.FetchRequest(
            session=query.session,
            incarnation=self.incarnation,
            epoch=self.epoch,
            after_tag=after,
            last_tag=last,
            query_id=self.query_id,
            run_id=self.run_id,
            batch_id=self.batch,
            label="task",
            key=self._key(),
        )
        rows = await query.stream_rows(
            "Fetch", request, lambda frame: rows_of(frame.header, frame.block)
        )
        self.oracle.check(not fenced, f"S3: {query.name} reads, and another holder attached")
        return rows

    def _key(self):
        """A4: proof that a task's range came from its holder; without users none is required."""
        users = self.query.world.users
        return fetch_key(self.token, self.incarnation, self.epoch) if users else b""

    def _read(self, rows, begun):
        """Records the rows of a lease, which are held from now on, or have been before."""
        query = self.query
        lease = query.lease(self.incarnation, self.end)
        seen = tuple((row.tag, row.name, row.count) for row in rows)
        if lease.rows is not None:
            seen = self._with_holes(lease, seen, begun)
        self.oracle.rows((self.query_id, self.batch), seen)
        self.oracle.rows((self.incarnation, self.end), seen)
        for row in rows:
            self.oracle.not_accepted(row, begun)
        if lease.rows is not None:
            self.oracle.figures["leases read again"] += 1
            return
        self.oracle.figures["leases read"] += 1
        lease.rows, lease.start = seen, self.start
        lease.begun = self.oracle.now()
        hold = query.hold(self.incarnation, self.end)
        since = self.oracle.begun(self.incarnation)
        self.oracle.in_lease_order(rows)
        for row in rows:
            message = self.oracle.delivered(row, row.queue, hold, since)
            if message is not None:
                lease.holds.append((hold, message, row.tag))
        query.read(lease)
        if query.replaced[0] == self.incarnation and not self.start:
            self._check_first(lease)

    def _check_first(self, lease):
        """S14, C6: the lease of an opening passes over nothing that the old incarnation had."""
        query, (_, old) = self.query, self.query.replaced
        self.oracle.figures["leases read after a refresh"] += 1
        last = {}
        for _, message, _ in lease.holds:
            publisher, number = message.order or ("", 0)
            last[publisher] = max(number, last.get(publisher, 0))
        taken = {id(message) for _, message, _ in lease.holds}
        latest = {
            id(message): (before, message, tag)
            for (incarnation, _), before in query.leases.items()
            for _, message, tag in (before.holds if incarnation == old else ())
        }
        for key, (before, message, tag) in latest.items():
            if key not in taken and query.comes_again(before, message, tag):
                publisher, number = message.order
                self.oracle.check(
                    number > last.get(publisher, -1),
                    f"S14: {query.name} reads {lease.rows}, and passes over {message.name}",
                )

    def _with_holes(self, lease, seen, begun):
        """S5, S8: the rows of the first read; rows that are missing now may be holes.

        A fetch that began before the first read ended may have read rows that were holes for it.
        """
        if begun < lease.begun:
            first = dict.fromkeys(lease.rows)
            seen = tuple(row for row in seen if row in first or not self.query.may_be_hole(row[0]))
        there = {row[0] for row in seen}
        left_out = [
            row for row in lease.rows if row[0] not in there and self.query.may_be_hole(row[0])
        ]
        if left_out:
            self.oracle.figures["leases read with holes"] += 1
        return tuple(sorted((*seen, *left_out)))

    async def _settle(self):
        """Stages outcomes of some rows by tasks, and commits them as a settle call (S6)."""
        query = self.query
        lease = query.lease(self.incarnation, self.end)
        chosen = {}
        for row in self.rows:
            outcome = self._rng.choices(tuple(OUTCOMES), (6, 1, 1, 1))[0]
            if outcome != "accepted":
                chosen.setdefault(outcome, []).append(row.tag)
        # With users it settles by query, run and batch alone, as Spark does: a stranger may claim
        # them.
        owner = sessions_pb2.LeaseOwner(
            session="" if query.world.users else query.session,
            query_id=self.query_id,
            run_id=self.run_id,
            batch_id=self.batch,
        )
        stages = []
        # An accepted lease keeps its outcomes; and an epoch does not change those of a later one.
        counts = not lease.accepted and self.epoch >= lease.settled_epoch
        # An accept without an answer may have taken effect: then the earlier outcomes count.
        asked = lease.accept is not None
        if chosen:
            stages.append(await self._stage_outcomes(owner, chosen))
        for row in self.rows:
            said = next((o for o, tags in chosen.items() if row.tag in tags), "accepted")
            said = "later" if said == "released" else said
            known = lease.outcomes.get(row.tag, ("accepted",))
            if counts and said not in known:
                lease.tell(row.tag, *known, said)
        answer = await query.call(
            "CommitOutcomes", sessions_pb2.CommitOutcomesRequest(owner=owner, stages=stages)
        )
        self.oracle.figures["settle calls"] += 1
        if not answer.accepted_before and counts and self.epoch >= lease.settled_epoch:
            lease.settled_epoch = self.epoch
            for row in self.rows:
                said = next((o for o, tags in chosen.items() if row.tag in tags), "accepted")
                if not asked:
                    lease.tell(row.tag, "later" if said == "released" else said)
        return self._write

    async def _stage_outcomes(self, owner, chosen):
        stage_id = self._rng.randbytes(16)
        stream = self.query.world.connect().open("StageOutcomes")
        groups = [
            sessions_pb2.OutcomeGroup(outcome=OUTCOMES[name], tags=tags, reason=name)
            for name, tags in chosen.items()
        ]
        request = sessions_pb2.StageOutcomesRequest(
            owner=owner, stage_id=stage_id, discard=True, groups=groups, seal=True
        )
        await self.query.send(stream, request)
        await stream.close_writes()
        answer = await self.query.patiently(stream.read())
        if answer is None:
            raise Cut("the stage ended without an answer")
        return sessions_pb2.OutcomeStage(stage_id=stage_id, tags=answer.tags)

    async def _write(self):
        """Writes the rows of the batch to the sink."""
        query = self.query
        if self.query_id != query.query_id:
            raise Cut("its checkpoint is gone")
        if query.target and self.rows:
            # A released or rewound row is delivered again, in another batch.
            names = [
                f"{self.batch}:{row.name}"
                if query.settles or "ackq-rewound" in row.headers
                else row.name
                for row in self.rows
            ]
            messages = query.sink.messages(self.batch, names)
            stages = await query.sink.stage(self.batch, self.run_id, messages)
            if self.mortal and self._rng.random() < 0.05:
                raise Killed
            await query.sink.commit(self.batch, self.run_id, stages, messages)
        return self._commit

    async def _commit(self):
        """Writes commits/N, which must not exist."""
        query = self.query
        files = query.files
        if self.query_id != query.query_id or self.batch in files.commits:
            raise Cut("another driver wrote this file")
        query.files = files._replace(commits=tuple(sorted({*files.commits, self.batch})))
        self.batch += 1
        self.start = self.end
        return self._advance
