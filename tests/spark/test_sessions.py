"""Sessions with a real Spark and broker: admission, lost files, absence, operators, progress."""

import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException

from ackq.client import holder
from ackq.spark import BatchLogger, settle
from ackq.spark.engine import SAYS_START
from ackq.v1.sessions_pb2 import HoldRequest
from tests.crash.half_checkpoints.sequence import Sequence
from tests.fakes.raw_client import Client
from tests.sizes import sized
from tests.spark.conftest import TIMEOUT_S
from tests.spark.ledger import N
from tests.spark.versions import needs_start

# --- admission ---


def test_minimum_is_waited_for(kit, kept):
    """K6: a batch waits for its minimum, and then takes everything."""
    kit.declare("in")
    kit.publish("in", *N[:3])
    rows = kit.source("in", minMessagesPerTrigger=4, maxTriggerDelay="1h")
    with kit.running(kit.each(rows, "cp", kept, processingTime="0 seconds")) as query:
        query.processAllAvailable()
        assert kept.bodies == []
        kit.publish("in", *N[3:])
        query.processAllAvailable()
        assert kept.bodies == N


def test_minimum_is_not_waited_for_longer_than_its_delay(kit, kept):
    """K6: when the oldest message has waited for the delay, a batch takes all ready messages."""
    kit.declare("in")
    kit.publish("in", *N[:3])
    rows = kit.source("in", minMessagesPerTrigger=4, maxTriggerDelay="1ms")
    with kit.running(kit.each(rows, "cp", kept, processingTime="0 seconds")) as query:
        kit.wait_for(query, "the batch", lambda: kept.bodies == N[:3])


@needs_start
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"once": True}])
def test_minimum_does_not_hold_up_a_run_that_ends(kit, kept, trigger):
    """K5: under availableNow and once, neither minimum nor delay applies."""
    kit.declare("in")
    kit.publish("in", *N[:3])
    rows = kit.source("in", minMessagesPerTrigger=4, maxTriggerDelay="1h")
    kit.run(kit.each(rows, "cp", kept, **trigger))
    assert kept.bodies == N[:3]


def test_available_now_reads_what_its_opening_puts_back(kit, kept):
    """K5, S9: messages leased by an earlier run without a checkpoint are within the bound."""
    kit.fill("in")
    killed = holder("killed")
    with Client(kit.broker.endpoint) as client:
        lost = client.advance(killed, session="job", queues=["in"], open_and_lease=True)
        held = HoldRequest(
            session="job", incarnation=lost.incarnation, epoch=lost.epoch, token=killed.token
        )
        stream = client.sessions.Hold(iter([held]))
        next(stream)
        # A holder whose stream is cut is waited for a moment; one without a stream for a heartbeat.
        stream.cancel()
    assert kit.depth("in") == (0, 10, 0)
    kit.finish(kit.each(kit.source("in", session="job"), "cp", kept))
    assert kept.bodies == N
    assert kit.depth("in") == (0, 0, 0)


# --- a checkpoint that lost its files (S11) ---


def loses_its_files(kit):
    """Deletes a young checkpoint's files as a power loss does: Spark syncs none of them."""
    for kind in ("offsets", "commits"):
        shutil.rmtree(kit.folder / "cp" / kind)


class Skipping:
    """A sink that skips a batch that it has, with or without reading its rows."""

    def __init__(self, *, reads):
        self.reads = reads
        self.taken = {}

    def __call__(self, rows, batch_id):
        if batch_id in self.taken and not self.reads:
            return
        self.taken.setdefault(batch_id, [bytes(row.body) for row in rows.collect()])

    @property
    def bodies(self):
        return [body for taken in self.taken.values() for body in taken]


@pytest.mark.parametrize(
    ("remedy", "reads"),
    [("another session", True), ("another session", False), ("release", False), ("takeover", True)],
)
def test_a_batch_id_never_stands_for_other_rows(kit, fails, remedy, reads):
    """S11: 5 of 15 messages were lost: they came again as batch 0, which the sink already had."""
    another = remedy == "another session"
    named = {} if another and SAYS_START else {"session": "job"}
    sink = Skipping(reads=reads)

    def once(checkpoint="cp", act=sink, **options):
        return kit.each(
            kit.source("in", "body binary", **named, **options), checkpoint, act, once=True
        )

    kit.fill("in")
    kit.run(once())
    assert sink.taken == {0: N}
    loses_its_files(kit)
    if another and named:
        named["session"] = "other"
    more = [b"%d" % number for number in range(10, 15)]
    kit.publish("in", *more)
    if not another:
        assert "ackq session release job" in fails(once())
    if remedy == "release":
        kit.admin.release_session("job", fence=True)
    takeover = {"takeover": "true"} if remedy == "takeover" else {}
    if reads:
        told = fails(once(**takeover))
        assert "leased after the query had read batch 0, from the tags 1 to 10" in told
    else:
        kit.run(once(**takeover))
        told = fails(once())
        assert "no task has read any of their" in told
    assert "a new, empty checkpoint" in told
    assert kit.admin.queue("in").accepted == 0
    for session in kit.admin.sessions():
        kit.admin.release_session(session.session, fence=True)
    again = Skipping(reads=reads)
    for _ in range(2):
        kit.run(once("new", again))
    assert sorted(again.bodies) == sorted(N + more)
    assert kit.depth("in") == (0, 0, 0)


def loses_batch(kit, last):
    """Deletes the newest batch as a power loss does: Spark syncs neither of its files."""
    for kind in ("offsets", "commits"):
        for name in (str(last), f".{last}.crc"):
            (kit.folder / "cp" / kind / name).unlink(missing_ok=True)


def planned(kit):
    """The newest batch of the checkpoint."""
    return max(int(path.name) for path in (kit.folder / "cp" / "offsets").glob("[0-9]*"))


@pytest.mark.parametrize("reads", [True, False])
def test_an_empty_opening_is_a_batch(kit, fails, reads):
    """S11: the sink has batch 0; all files are lost, and Trigger.Once leases rows as batch 0."""
    sink = Skipping(reads=True)
    kit.declare("in")
    kit.run(kit.each(kit.source("in", "body binary"), "cp", sink))
    assert sink.taken == {0: []}
    loses_its_files(kit)
    kit.publish("in", *N)
    sink.reads = reads

    def once(checkpoint="cp"):
        return kit.each(kit.source("in", "body binary"), checkpoint, sink, once=True)

    if not reads:
        kit.run(once())
    told = fails(once())
    assert ("planned batch 0, which had no rows" if reads else "no task has read any") in told
    assert kit.admin.queue("in").accepted == 0


def watermarked(rows, folder):
    """A query in which Spark runs a batch without rows to drop state passed by the watermark."""
    del folder
    return rows.withWatermark("published_at", "1 second").dropDuplicatesWithinWatermark(
        ["delivery_tag"]
    )


def united(rows, folder):
    """A query in which another source has rows."""
    return rows.select("body").union(
        rows.sparkSession.readStream.text(str(folder)).selectExpr("cast(value as binary)")
    )


@pytest.mark.parametrize("query", [pytest.param(watermarked, marks=needs_start), united])
def test_a_batch_without_rows_is_a_batch(kit, fails, query):
    """S11: the sink has the empty batch, its files are lost, and new rows would get its id."""
    sink = Skipping(reads=True)
    other = kit.folder / "other"
    other.mkdir()
    kit.declare("in")
    kit.publish("in", *N[:5])

    def run():
        return kit.each(query(kit.source("in", session="job"), other), "cp", sink)

    kit.run(run())
    (other / "1").write_text("a line")
    kit.run(run())
    last = planned(kit)
    assert last in sink.taken
    assert not set(sink.taken[last]) & set(N)
    loses_batch(kit, last)
    (other / "1").unlink()
    kit.publish("in", *N[5:])
    told = fails(run())
    assert f"planned batch {last}, which had no rows of session 'job'" in told
    assert kit.depth("in") == (0, 5, 0)


@needs_start
def test_batches_without_rows_between_batches_with_rows(kit):
    """S11: ids of empty batches count: an intact checkpoint is not refused, over restarts."""
    sink = Skipping(reads=True)
    kit.declare("in")
    for row in N:
        kit.publish("in", row)
        rows = watermarked(kit.source("in", maxMessagesPerTrigger=1), kit.folder)
        kit.finish(kit.each(rows, "cp", sink))
    assert sorted(sink.bodies) == sorted(N)
    assert sum(not rows for rows in sink.taken.values()) > 5
    assert kit.depth("in") == (0, 0, 0)


EMPTIED = {
    "an empty table": lambda rows, none: rows.join(none, "message_id"),
    "a semi join": lambda rows, none: rows.join(none, "message_id", "left_semi"),
    "a limit": lambda rows, _: rows.limit(0),
    "a filter": lambda rows, _: rows.filter("false"),
}


@needs_start
@pytest.mark.parametrize("how", EMPTIED)
def test_a_batch_that_spark_empties(kit, how):
    """S11: an emptied batch is accepted where an earlier one of this run was read."""
    kit.fill("in")
    none = kit.spark.createDataFrame([], "message_id string")
    taken = []

    def act(rows, batch_id):
        if batch_id > 1:
            rows = EMPTIED[how](rows, none)
        taken.append((batch_id, rows.count()))

    kit.run(kit.each(kit.source("in", maxMessagesPerTrigger=5), "cp", act))
    assert taken == [(0, 0), (1, 5), (2, 0)]
    assert kit.depth("in") == (0, 0, 0)


@pytest.mark.parametrize("act", [lambda rows, _: rows.filter("false").collect(), lambda *_: None])
def test_a_batch_that_nothing_reads(kit, fails, act):
    """S11: if nothing was read, a skipped batch cannot be excluded; the likely cause is first.

    A query that drains a queue unread has to allow it by an option.
    """
    kit.fill("in")

    def run(**options):
        return kit.each(kit.source("in", session="job", **options), "cp", act)

    if not SAYS_START:
        kit.run(run())  # which leaves the batch to the next start (K13)
    told = fails(run())
    assert told.index("Most likely Spark did not need the rows") < told.index("new, empty check")
    assert "unreadBatch=accept" in told
    assert kit.depth("in") == (0, 10, 0)
    kit.finish(run(unreadBatch="accept"))
    assert kit.depth("in") == (0, 0, 0)


def test_half_a_checkpoint_loses_and_doubles_nothing(kit):
    """S2, S9, S11, K1, K5: lost checkpoint files and refusals lose and double no messages."""
    sequences = [
        Sequence(
            kit.spark, kit.admin, kit.broker.endpoint, kit.folder / f"s{number}", f"3:{number}"
        )
        for number in range(1, sized(3, 8) + 1)
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(Sequence.go, sequences))
    told = sum((each.figures for each in sequences), Counter())
    traces = "\n".join(line for each in sequences for line in each.trace)
    assert (told["lost"], told["doubled"]) == (0, 0), traces
    assert told["power losses"] > len(sequences)
    assert told["empty"] > 0
    assert told["messages"] > 0


# --- queues that come and go, absence, operators, what is seen ---


def test_new_queues_join_a_running_query(kit, kept):
    """S10: a queue that is declared while the query runs is read if its name matches."""
    kit.declare("orders.eu")
    kit.publish("orders.eu", b"1")
    reader = kit.spark.readStream.format("ackq").option("endpoint", kit.broker.endpoint)
    rows = reader.options(queuePattern="orders.*", session="job").load()
    with kit.running(kit.each(rows, "cp", kept, processingTime="0 seconds")) as query:
        query.processAllAvailable()
        kit.declare("orders.us", "invoices.us")
        kit.publish("orders.us", b"2")
        kit.publish("invoices.us", b"3")
        kit.wait_for(query, "both queues", lambda: kept.bodies == [b"1", b"2"])
    assert sorted(kit.admin.session("job").queues) == ["orders.eu", "orders.us"]
    assert kit.depth("invoices.us") == (1, 0, 0)


def test_batch_of_a_deleted_queue_is_accepted_once_it_is_declared_again(kit):
    """K1, Q4: the outcomes of a deleted queue's batch take effect once it is declared again."""

    def act(rows, _batch_id):
        settle(rows, "rejected", reason="no", endpoint=kit.broker.endpoint)

    kit.declare("dead")
    kit.declare("in", dead_letter_queue="dead")
    kit.publish("in", *N[:2])
    query = kit.each(kit.source("in", session="job"), "cp", act, once=True)
    kit.run(query)
    kit.admin.delete_queue("in", force=True)
    with pytest.raises(StreamingQueryException, match="`ackq queue declare in` and start"):
        kit.run(query)
    assert kit.bodies("dead") == []
    kit.declare("in")
    kit.run(query)
    assert kit.dead_letters() == [(b"0", "no"), (b"1", "no")]
    assert kit.admin.session("job").leased == 0


def test_poisoned_batch_is_freed(settled, kept):
    """S8: a message that breaks its batch is rejected by an operator; the checkpoint stays."""

    def act(rows, batch_id):
        if rows.filter("body = binary('3')").count():
            raise RuntimeError("poison")
        kept(rows, batch_id)

    query = settled.each(settled.source("in", session="job"), "cp", act)
    with pytest.raises(StreamingQueryException, match="poison"):
        settled.run(query)
    settled.admin.settle_session("job", "rejected", [(4, 4)], reason="poison", fence=True)
    settled.finish(query)
    assert kept.runs == [(0, N[:3] + N[4:])]
    assert settled.dead_letters() == [(b"3", "poison")]
    assert settled.depth("in") == (0, 0, 0)


@needs_start
def test_batch_logger(kit, kept):
    """The log has a line for each batch, with the backlog of a real query's progress."""
    kit.fill("in")
    lines, three = [], Event()

    def log(_level, _format, line):
        lines.append(line)
        if len(lines) == 3:
            three.set()

    listener = BatchLogger(SimpleNamespace(log=log))
    kit.spark.streams.addListener(listener)
    try:
        query = kit.run(kit.each(kit.source("in", maxMessagesPerTrigger=6), "cp", kept))
        assert three.wait(TIMEOUT_S)
    finally:
        kit.spark.streams.removeListener(listener)
    assert [line.split(" in ")[0] for line in lines] == [
        f"query {query.id} batch {batch}: {rows} rows" for batch, rows in enumerate((0, 6, 4))
    ]
    assert "; ready 4, unacked 6, oldest " in lines[1]
    assert " redelivered 0; " in lines[1]
    assert "addBatch " in lines[1]
