"""The source with a real Spark and broker: what is read, acknowledged, and read again."""

import json

import pytest
from pyspark.errors import StreamingQueryException

from tests.eventually import equals, eventually
from tests.spark.conftest import TIMEOUT_S
from tests.spark.ledger import N
from tests.spark.versions import FIRST, batches, needs_start


def test_round_trip_of_every_column(kit):
    """K9, K7: without a registration call, each column of a message is read as it was published."""
    from ackq.client import Publisher

    kit.declare("in")
    with Publisher(kit.broker.endpoint) as publisher:
        publisher.publish(
            b"\x00body",
            routing_key="in",
            message_id="m1",
            correlation_id="c1",
            reply_to="r",
            content_type="text/plain",
            headers={"a": "1", "b": "2"},
        ).result()
        publisher.publish(b"", routing_key="in", persistent=False).result()
    rows = []
    kit.run(kit.each(kit.source("in"), "cp", lambda df, _: rows.extend(df.collect())))
    full, empty = sorted(rows, key=lambda row: row.delivery_tag)
    assert full.asDict() == {
        "body": b"\x00body",
        "routing_key": "in",
        "message_id": "m1",
        "correlation_id": "c1",
        "reply_to": "r",
        "content_type": "text/plain",
        "headers": {"a": "1", "b": "2"},
        "published_at": full.published_at,
        "expires_at": None,
        "persistent": True,
        "delivery_tag": 1,
        "queue": "in",
        "redelivered": False,
        "delivery_count": 1,
    }
    assert full.published_at is not None
    assert (bytes(empty.body), empty.headers, empty.persistent) == (b"", {}, False)


@needs_start
def test_offsets_carry_the_session_before_any_lease(kit, kept):
    """S9, K2: batch 0 is empty and its offset names the session, before any lease.

    A fetch names its query and batch, so that operators see who holds a lease.
    """
    kit.fill("in")
    query = kit.run(kit.each(kit.source("in"), "cp", kept))
    first, second = kit.offset("cp", 0), kit.offset("cp", 1)
    assert first == {
        "v": 1,
        "session": first["session"],
        "incarnation": first["incarnation"],
        "tag": 0,
    }
    assert second == {**first, "tag": 10}
    assert kept.runs == [(0, []), (1, N)]
    shown = kit.admin.session(first["session"])
    assert (shown.query_id, shown.batch_id) == (query.id, 1)
    assert shown.proven


def test_subscriptions_get_all_messages_each(kit):
    """S10: a query's own queue, declared and bound at its first start; kept as it is afterwards."""
    kit.admin.declare_exchange("events")
    kit.declare("all", max_length=7)
    read = {"eu": [], "all": []}

    def run(name, **subscription):
        rows = kit.source(None, exchange="events", subscription=name, **subscription)
        keys = read[name]
        kit.finish(
            kit.each(rows, name, lambda df, _: keys.extend(r.routing_key for r in df.collect()))
        )

    for _ in range(2):
        run("eu", binding="eu.#,us.ny")
        run("all")
        keys = ("eu.berlin", "us.ny", "us.sf")
        for key in keys:
            kit.publish_to("events", key)
    run("eu", binding="eu.#,us.ny")
    run("all")
    assert sorted(read["eu"]) == ["eu.berlin", "eu.berlin", "us.ny", "us.ny"]
    assert sorted(read["all"]) == sorted(keys * 2)
    assert kit.admin.queue("all").properties.max_length == 7
    assert kit.admin.queue("eu").ready == 0


def test_a_subscription_that_would_get_nothing_is_refused(kit):
    """S10: a direct exchange without a binding, an exchange that does not exist."""
    kit.admin.declare_exchange("direct", "direct")
    for exchange, part in (("direct", "'binding' is missing"), ("gone", "gone")):
        rows = kit.source(None, exchange=exchange, subscription="never")
        with pytest.raises(StreamingQueryException, match=part):
            kit.run(kit.each(rows, exchange, lambda _df, _id: None))


@needs_start
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}])
def test_a_named_session_has_rows_in_its_first_batch(kit, kept, trigger):
    """S9, K1: its opening leases, within the query's bounds; the batch is accepted as ever."""
    kit.fill("in")
    rows = kit.source("in", session="job", maxMessagesPerTrigger=6)
    with kit.running(kit.each(rows, "cp", kept, **trigger)):
        eventually("both batches", lambda: kit.depth("in"), equals((0, 0, 0)), within_s=TIMEOUT_S)
    assert kit.offset("cp", 0)["tag"] == 6
    assert kept.runs == [(0, N[:6]), (1, N[6:])]


def test_replay_reads_the_same_rows(kit, kept):
    """K2, K6: a batch that is not in the commit log is run again under its id, with its rows."""
    kit.fill("in")

    def fails_once(rows, batch_id):
        kept(rows, batch_id)
        if batch_id == FIRST + 1 and len(kept.runs) == FIRST + 2:
            raise RuntimeError("crash before the commit log")

    query = kit.each(kit.source("in", maxMessagesPerTrigger=4), "cp", fails_once)
    with pytest.raises(StreamingQueryException, match="crash before the commit log"):
        kit.finish(query)
    assert kit.depth("in")[1] == 4
    kit.publish("in", b"later")
    kit.finish(query)
    assert kept.runs == [
        *batches(N[:4], N[4:8]),
        (FIRST + 1, N[4:8]),
        (FIRST + 2, [*N[8:], b"later"]),
    ]
    assert kit.depth("in") == (0, 0, 0)


def test_finished_batch_is_not_lost_by_its_commit_entry(kit, kept):
    """K2: an acknowledged batch whose commit entry is lost is run again with the same rows."""
    kit.fill("in")
    query = kit.each(kit.source("in"), "cp", kept)
    kit.finish(query)
    kit.forget("cp", "commits", FIRST)
    kit.publish("in", b"later")
    kit.finish(query)
    assert kept.runs == [*batches(N), (FIRST, N), (FIRST + 1, [b"later"])]
    assert kit.depth("in") == (0, 0, 0)


@needs_start
def test_available_now_ends_while_messages_come(kit):
    """K5: messages published during the run are left to the next, so the run ends."""
    kit.fill("in")
    seen = []

    def publishes(rows, _batch_id):
        found = [bytes(row.body) for row in rows.collect()]
        seen.extend(found)
        if found:
            kit.publish("in", *(b"again " + body for body in found))

    kit.run(kit.each(kit.source("in", "body binary", maxMessagesPerTrigger=3), "cp", publishes))
    assert seen == N
    assert kit.depth("in") == (10, 0, 0)


def test_once_replays_its_first_batch(kit, kept):
    """K2, S9: the opening offset as a batch's start means tag 0."""
    kit.fill("in")
    query = kit.each(kit.source("in"), "cp", kept, once=True)
    kit.run(query)
    kit.forget("cp", "commits", 0)
    kit.run(query)
    assert kept.runs == [(0, N), (0, N)]


def test_batches_are_bounded_in_bytes(kit, kept):
    """K6: maxBytesPerTrigger bounds a batch, but one message always passes."""
    kit.declare("in")
    kit.publish("in", *([b"x" * 1000] * 4))
    kit.finish(kit.each(kit.source("in", maxBytesPerTrigger="500b"), "cp", kept))
    assert kept.runs == batches(*[[b"x" * 1000]] * 4)


@needs_start
def test_progress_tells_what_waits(kit, kept):
    """K6: `lastProgress` has the backlog as each batch left it."""
    kit.fill("in")
    query = kit.run(kit.each(kit.source("in", maxMessagesPerTrigger=4), "cp", kept))
    shown = [p.sources[0].latestOffset for p in query.recentProgress if p.numInputRows]
    backlogs = [json.loads(text) for text in shown]
    assert [(each["ready"], each["unacked"]) for each in backlogs] == [(6, 4), (2, 4), (0, 2)]
    assert all(each["lease_bytes"] >= each["unacked"] for each in backlogs)
    (session,) = {each["session"] for each in backlogs}
    assert session == kit.admin.sessions()[0].session
    assert {str(p.sources[0].metrics) for p in query.recentProgress} == {"{}"}  # no other way
