"""One query that repeatedly loses the newest files of its checkpoint, and its messages.

A random source decides what is published, how the query runs, where its sink dies, which files a
power loss removes, and which of the documented remedies is used when the query is refused. The
query's shape is fixed from the start.

Invariant: whenever no query runs, each confirmed message is in the sink or in the broker (S11, K1).
"""

import random
import re
import time
from collections import Counter

from pyspark.errors import StreamingQueryException

from ackq.spark.engine import SAYS_START
from tests.crash.half_checkpoints.checkpoint import Checkpoint
from tests.crash.half_checkpoints.sinks import DeltaSink, ListSink
from tests.crash.harness import fill, in_queue

# Weights of the ways to run the query.
WEIGHTS = {"once": 4, "available": 2, "processed": 2, "stopped": 3}
TRIGGERS = {
    "once": {"once": True},
    "available": {"availableNow": True},
    "processed": {"processingTime": "0 seconds"},
    "stopped": {"processingTime": "0 seconds"},
}
RUN_S = 240
STOP_S = 3
MOST_DRAINS = 20
# Spark's own refusals to overwrite an existing file: the commit of a batch, or state of batch 0.
# The last two name no cause.
SPARKS = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
    "Exception thrown in awaitResult",
    "assertion failed",
)
# Errors that may refuse a query; any other error is a failure of the ledger.
REFUSALS = (
    "BatchChangedError",
    "UnreadLeaseError",
    "CheckpointMismatchError",
    "LeaseHeldError",
    "SessionNotFoundError",
    *SPARKS,
)


class Sequence:
    """The steps of one query.

    Attributes:
        figures: Counts of what happened.
        trace: Descriptions of what happened, in order.
        lost: Confirmed messages that were neither in the sink nor in the broker.
    """

    def __init__(self, spark, admin, endpoint, folder, seed, *, delta=False):
        self.spark, self.admin, self.endpoint, self.folder = spark, admin, endpoint, folder
        self.random = random.Random(seed)
        # Of their own, as refusals depend on time: the other steps follow from the seed.
        self.remedies = random.Random(f"{seed} remedies")
        self.name = folder.name
        (folder / "text").mkdir(parents=True)
        self.watermark = self.random.random() < 0.4
        self.other = self.random.choice((None, None, "queue", "text"))
        self.named = self.random.random() < 0.6 or not SAYS_START
        self.most = self.random.choice((2, 4, 1000))
        self.queues = [self.name, f"{self.name}-b"][: 1 + (self.other == "queue")]
        for queue in self.queues:
            admin.declare_queue(queue)
        reads = self.random.random() < 0.5
        self.sink = DeltaSink(spark, folder, reads=reads) if delta else ListSink(reads=reads)
        self.figures = self.sink.figures
        self.published, self.lost, self.put_back = [], set(), Counter()
        self.files = self.checkpoints = self.sessions = 0
        self.takeover = False
        self.loaded = {}
        shape = f"watermark {self.watermark}, other {self.other}, named {self.named}"
        self.trace = [f"{shape}, at most {self.most}, reads {reads}, delta {delta}"]
        self._begin_anew()

    def go(self):
        """Runs all steps, then drains the queues."""
        for _ in range(self.random.randint(2, 3)):
            self._publish()
            if self.random.random() < 0.15:
                self.sink.dies = self.random.choice(("before", "after"))
            self._run(self.random.choices(list(WEIGHTS), WEIGHTS.values())[0])
            if self.random.random() < 0.8:
                lost = self.checkpoint.lose(self.random)
                self.trace.append(f"power loss takes {lost}")
                self.figures["power losses"] += 1
        self._publish()
        self._drain()
        written = self.sink.written()
        allowed = {name: 1 + self.put_back[name] for name in written}
        over = {n: count - allowed[n] for n, count in written.items() if count > allowed[n]}
        if over:
            self.trace.append(f"DOUBLED {over}")
        self.figures["messages"] = len(self.published)
        self.figures["doubled"] = sum(over.values())
        self.figures["doubled by a remedy"] = written.total() - len(written)
        self.figures["doubled by a remedy"] -= self.figures["doubled"]
        self.figures["lost"] = len(self.lost)

    # --- steps ---

    def _publish(self):
        for queue in self.queues:
            count = self.random.choice((0, 0, 1, 2, 5))
            names = [f"{queue}-{len(self.published) + number}" for number in range(count)]
            fill(self.endpoint, queue, names)
            self.published += names
            self.trace.append(f"published {names}")
        if self.other == "text" and self.random.random() < 0.6:
            self.files += 1
            (self.folder / "text" / str(self.files)).write_text("a line\n")
            self.trace.append("a line of text")

    def _run(self, kind):
        """Runs the query once; returns whether it ran to its end."""
        if self.checkpoint is not self.sink.checkpoint:
            self.sink.checkpoint = self.checkpoint
        began = time.monotonic()
        query = self._start(**TRIGGERS[kind])
        try:
            if kind == "processed":
                query.processAllAvailable()
            elif kind == "stopped":
                self._stop_soon(query)
            else:
                assert query.awaitTermination(RUN_S), "the query did not end"
            refusal, why = "", []
        except StreamingQueryException as error:
            refusal, why = str(error), causes(error)
        finally:
            query.stop()
        self.takeover = False
        took_s = time.monotonic() - began
        self.trace.append(
            f"{kind}, {took_s:.1f} s: batches {self.sink.figures['batches']}, {told(refusal)}"
        )
        self._check()
        if refusal and told(refusal) != "SinkDiedError":
            self._remedy(told(refusal), refusal, why)
        return not refusal

    def _stop_soon(self, query):
        """Lets the query run some batches, then stops it in the middle of the next.

        It stops an idle query, too, but none that has not come to its messages.
        """
        began = time.monotonic()
        batches = self.sink.figures["batches"] + self.random.randint(1, 3)
        while self.sink.figures["batches"] < batches:
            lived_s = time.monotonic() - began
            if lived_s > RUN_S or (lived_s > STOP_S and not self._ready()):
                break
            query.awaitTermination(0.05)
        query.awaitTermination(self.random.choice((0.01, 0.1, 0.3)))

    def _check(self):
        """K1, S11: every message that the broker has accepted is in the sink."""
        left = self._left()
        missing = set(self.published) - left.keys() - self.sink.written().keys()
        if missing - self.lost:
            self.trace.append(f"LOST {sorted(missing - self.lost)}")
        self.lost |= missing

    def _drain(self):
        """Runs the query until the broker is empty; releases leases that no query returns to."""
        if not SAYS_START:
            self.most = 1000  # before Spark 4.2 a run is one batch
        for _ in range(MOST_DRAINS):
            batches = self.sink.figures["batches"]
            if self._run("available"):
                if not self._left():
                    return
                # On Spark 4.0 and 4.1 the next run accepts the last batch of this one (K13).
                if SAYS_START or self.sink.figures["batches"] == batches:
                    for session in self._holding():
                        self._release(session)
        raise AssertionError(f"not drained: {self._left()}")

    # --- what an operator does ---

    def _remedy(self, error, text, why):
        """Applies one of the remedies that the error names."""
        assert error in REFUSALS, "\n".join([text[:2000], *why])
        self.figures[error] += 1
        if error in SPARKS and self.remedies.random() < 0.6:
            self.trace.append("remedy: what the offsets do not cover is removed")
            self.checkpoint.forget_uncovered()
            return
        if error == "LeaseHeldError":
            self._give_back(re.findall(r"session release ([^`\s]+)`", text)[0])
            return
        self._begin_anew()
        for session in set(re.findall(r"session release ([^`\s]+)`", text)):
            self._release(session)
        if error == "CheckpointMismatchError" and self.remedies.random() < 0.5:
            self.sessions += 1

    def _give_back(self, session):
        """S9: frees the messages that a session holds for another checkpoint."""
        how = self.remedies.choice(("release", "takeover", "another name"))
        self.trace.append(f"remedy: {how}")
        if how == "release":
            self._release(session)
        elif how == "takeover":
            # Each source of the query has the option: the other one's leased messages come again,
            # too.
            taken = {f"{queue}-{self.sessions}" for queue in self.queues}
            for each in taken.intersection(self._holding()):
                self._note_held(each)
            self.takeover = True
        else:
            self.sessions += 1

    def _begin_anew(self):
        """Begins a new, empty checkpoint."""
        self.checkpoints += 1
        self.trace.append("a new checkpoint")
        self.checkpoint = Checkpoint(self.folder / f"checkpoint-{self.checkpoints}")

    def _release(self, session):
        """Releases a session's lease; its messages, perhaps processed, are delivered once more."""
        self.trace.append(f"released {session}, which held {self._note_held(session)}")
        self.figures["released"] += 1
        self.admin.release_session(session, fence=True)

    def _note_held(self, session):
        if not self.admin.session(session).leased:
            return []
        batches = self.admin.browse_lease(session, columns=["message_id"])
        names = [name for batch in batches for name in batch.column(0).to_pylist()]
        self.put_back.update(names)
        return names

    def _holding(self):
        """The sessions that hold messages of this query's queues."""
        return [
            info.session
            for info in self.admin.sessions()
            if info.leased and set(info.queues) & set(self.queues)
        ]

    def _ready(self):
        return sum(self.admin.queue(queue).ready for queue in self.queues)

    def _left(self):
        return sum((in_queue(self.endpoint, queue) for queue in self.queues), Counter())

    # --- the query ---

    def _start(self, **trigger):
        rows = self._source(self.queues[0])
        if self.other == "queue":
            rows = rows.union(self._source(self.queues[1]))
        if self.other == "text":
            text = self.spark.readStream.text(str(self.folder / "text"))
            rows = rows.union(text.selectExpr("value as message_id"))
        rows = rows.filter("message_id != 'a line'")
        writer = rows.writeStream.foreachBatch(self.sink).trigger(**trigger)
        return writer.option("checkpointLocation", str(self.checkpoint.folder)).start()

    def _source(self, queue):
        options = {"endpoint": self.endpoint, "queue": queue, "maxMessagesPerTrigger": self.most}
        if self.named:
            options["session"] = f"{queue}-{self.sessions}"
        if self.takeover:
            options["takeover"] = "true"
        key = tuple(options.items())
        if key not in self.loaded:
            self.loaded[key] = self.spark.readStream.format("ackq").options(**options).load()
        rows = self.loaded[key]
        if self.watermark:
            # A watermark for which no row is late, and which still runs a batch without rows.
            rows = rows.withWatermark("published_at", "1 hour")
            rows = rows.dropDuplicatesWithinWatermark(["delivery_tag"])
        return rows.select("message_id")


def causes(error):
    """The causes of an error of the JVM, outermost first."""
    lines = f"{error}\n{getattr(error, '_stackTrace', '')}".splitlines()
    return list(dict.fromkeys(line[:300] for line in lines if "Caused by:" in line))


def told(text):
    """The class of the error that ended a query."""
    if "SinkDiedError" in text:
        return "SinkDiedError"
    found = re.search(rf"ackq\.errors\.(\w+)|{'|'.join(SPARKS)}", text)
    return (found[1] or found[0]) if found else text and "another error"
