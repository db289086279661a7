"""Settling from a query with a real Spark and broker: where each message ends, and when."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession

from ackq.spark import settle
from tests.spark.ledger import N
from tests.spark.versions import FIRST, needs_start

ODD = "cast(cast(body as string) as int) % 2 = 1"


# mapInArrow looks at pandas, which it does not use.
def settling(kit, *given, where=ODD, **options):
    """A foreachBatch function that settles some rows."""

    def act(rows, _batch_id):
        settle(rows.filter(where), *given, endpoint=kit.broker.endpoint, **options)

    return act


def write(kit, rows, queue, batch_id):
    """A guarded write: skipped when its batch is repeated."""
    rows.select("body").write.format("ackq").mode("append").options(
        endpoint=kit.broker.endpoint, queue=queue, txnAppId=kit.app, txnVersion=batch_id
    ).save()


def total(kit, queue):
    """The number of messages in a queue, in any state."""
    info = kit.admin.queue(queue)
    return info.ready + info.unacked + info.delayed


def test_rejected_rows_are_dead_letters(settled):
    """S6, K8: rejected rows go to the dead-letter queue with reason, session and batch."""
    rows = settled.source("in", session="job")
    settled.finish(settled.each(rows, "cp", settling(settled, "rejected", reason="odd")))
    assert settled.dead_letters() == [(body, "odd") for body in N[1::2]]
    assert settled.depth("in") == (0, 0, 0)
    assert settled.admin.queue("in").accepted == 5
    found = settled.browse("dead", "headers map<string,string>").collect()
    assert {
        (row.headers["ackq-dead-session"], row.headers["ackq-dead-batch"]) for row in found
    } == {("job", "0")}


def test_outcomes_by_column(settled):
    """S6: each row has its own outcome and reason; rows without one are accepted."""

    def act(rows, _batch_id):
        number = "cast(cast(body as string) as int)"
        found = rows.selectExpr(
            "delivery_tag",
            f"case {number} % 3 when 0 then 'rejected' when 1 then 'released' end as outcome",
            f"case when {number} % 3 = 0 then 'no ' || {number} end as reason",
            "'10m' as delay",
            "body",
        )
        settle(found.filter("outcome is not null"), endpoint=settled.broker.endpoint)

    settled.finish(settled.each(settled.source("in"), "cp", act))
    assert settled.dead_letters() == [(body, f"no {int(body)}") for body in N[::3]]
    queue = settled.admin.queue("in")
    assert (queue.accepted, queue.delayed, queue.ready, queue.unacked) == (3, 3, 0, 0)


def test_plain_write(settled):
    """K8: a plain write of the format with the option `settle` rejects rows."""

    def act(rows, _batch_id):
        rows.filter(ODD).select("delivery_tag").write.format("ackq").mode("append").options(
            endpoint=settled.broker.endpoint, settle="rejected", reason="odd"
        ).save()

    settled.finish(settled.each(settled.source("in"), "cp", act))
    assert settled.dead_letters() == [(body, "odd") for body in N[1::2]]


@pytest.mark.parametrize(
    ("wheres", "dead"),
    [(("body = binary('3')", "body = binary('4')"), [b"4"]), (("true", "body = binary('x')"), [])],
    ids=["another row", "no row"],
)
def test_newest_run_counts(settled, wheres, dead):
    """S6: the outcomes of the last run that settled apply, not those of a run that crashed.

    They take effect with the checkpoint: until then nothing is settled.
    A run that settles no row counts too, and takes back the outcomes of an older run.
    """
    runs = []

    def act(rows, batch_id):
        if batch_id >= FIRST:
            runs.append(batch_id)
            settling(settled, "rejected", where=wheres[len(runs) > 1])(rows, batch_id)
            if len(runs) == 1:
                raise RuntimeError("crash after settling")

    query = settled.each(settled.source("in"), "cp", act)
    with pytest.raises(StreamingQueryException, match="crash after settling"):
        settled.run(query)
    assert (settled.depth("in"), settled.dead_letters()) == ((0, 10, 0), [])
    settled.finish(query)
    assert [body for body, _ in settled.dead_letters()] == dead
    assert settled.admin.queue("in").accepted == 10 - len(dead)


@pytest.mark.parametrize("crash_at", ["settled", "written"])
def test_settle_before_a_guarded_write(settled, crash_at):
    """S6, K12: after a crash at either point, each row is written once or dead once, never both."""
    settled.declare("out")
    runs = []

    def act(rows, batch_id):
        runs.append(batch_id)
        first = batch_id == FIRST and runs.count(FIRST) == 1
        settling(settled, "rejected")(rows, batch_id)
        if first and crash_at == "settled":
            raise RuntimeError("crash")
        write(settled, rows.filter(f"not {ODD}"), "out", batch_id)
        if first and crash_at == "written":
            raise RuntimeError("crash")

    query = settled.each(settled.source("in"), "cp", act)
    with pytest.raises(StreamingQueryException, match="crash"):
        settled.run(query)
    settled.finish(query)
    assert settled.bodies("out") == N[::2]
    assert settled.bodies("dead") == N[1::2]
    assert settled.depth("in") == (0, 0, 0)


def test_last_call_of_a_batch_wins(settled):
    """S6: within a run the last outcome of a tag wins; accepted takes an earlier one back."""

    def act(rows, batch_id):
        settling(settled, "rejected")(rows, batch_id)
        settling(settled, "accepted", where="body = binary('5')")(rows, batch_id)

    settled.finish(settled.each(settled.source("in"), "cp", act))
    assert settled.bodies("dead") == [b"1", b"3", b"7", b"9"]


@needs_start
def test_available_now_ends_with_failed_rows(settled):
    """K5: rows that the run itself requeues do not keep it alive."""
    rows = settled.source("in", maxMessagesPerTrigger=3)
    settled.run(settled.each(rows, "cp", settling(settled, "failed", where="true", delay="1ms")))
    assert total(settled, "in") == 10
    assert settled.admin.queue("in").accepted == 0


def test_once_with_released_rows(settled):
    """K5, C14: Trigger.Once settles at the next start, which ends although rows were requeued.

    A released row is not ready before its delay is over.
    """
    query = settled.each(
        settled.source("in"), "cp", settling(settled, "released", delay="10m"), once=True
    )
    settled.run(query)
    assert settled.depth("in") == (0, 10, 0)
    settled.run(query)
    queue = settled.admin.queue("in")
    assert (queue.accepted, queue.delayed, queue.ready, queue.unacked) == (5, 5, 0, 0)


# --- what is refused ---


def test_job_group_in_foreach_batch(settled, fails):
    """S6: a job group hides the run, so settling is refused in the first batch, cached or not."""
    groups = ["counting", "settling"]

    def act(rows, batch_id):
        rows.persist()
        for group in groups:
            settled.spark.sparkContext.setJobGroup(group, f"{group} rows")
            rows.count()
        settling(settled, "rejected")(rows, batch_id)
        rows.unpersist()

    query = settled.each(settled.source("in", session="job"), "cp", act)
    text = fails(query)
    assert "foreachBatch set the job group 'settling', which hides the run of the query" in text
    assert settled.depth("in") == (0, 10, 0)
    groups.clear()
    settled.finish(query)
    assert settled.bodies("dead") == N[1::2]


def test_settle_without_a_session(settled):
    """S6: outside of a query nothing identifies the lease."""
    tags = settled.spark.createDataFrame([(2,)], "delivery_tag long")
    with pytest.raises(PySparkException, match=r"settle without a session.*'session', 'name'"):
        settle(tags, "rejected", endpoint=settled.broker.endpoint)


def test_rejecting_without_a_dead_letter_queue(kit, fails):
    """S6: REJECTED would lose messages, so it is refused without `discard`."""
    kit.fill("in")
    text = fails(kit.each(kit.source("in"), "cp", settling(kit, "rejected")))
    assert "ackq.errors.PreconditionFailedError" in text
    assert "'in'" in text
    assert "discard" in text
    kit.finish(kit.each(kit.source("in"), "cp", settling(kit, "rejected", discard=True)))
    queue = kit.admin.queue("in")
    assert (queue.accepted, queue.dropped) == (5, 5)


# --- threads of a foreachBatch, in which Spark knows neither session nor query ---


@pytest.mark.parametrize("inherits", [True, False], ids=["inheriting", "plain"])
def test_settle_in_a_thread(settled, inherits):
    """K9, S6: a thread finds the format; its query too if it inherits it, or names the session."""
    active = []

    def act(rows, _batch_id):
        def work():
            named = {} if inherits else {"session": "job"}
            endpoint = settled.broker.endpoint
            settle(rows.filter(ODD), "rejected", reason="odd", endpoint=endpoint, **named)
            active.append(SparkSession.getActiveSession() is not None)

        target = inheritable_thread_target(rows.sparkSession)(work) if inherits else work
        with ThreadPoolExecutor(1) as pool:
            pool.submit(target).result()

    settled.finish(settled.each(settled.source("in", session="job"), "cp", act))
    assert settled.dead_letters() == [(b"%d" % i, "odd") for i in range(1, 10, 2)]
    assert settled.depth("in") == (0, 0, 0)
    assert active == [True]
