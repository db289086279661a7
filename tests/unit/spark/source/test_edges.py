"""A query of several edges: what each is asked, when one is away, added, renamed or removed."""

from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ackq import errors, limits
from ackq.info import SessionInfo
from ackq.spark import connections
from ackq.spark.engine import ReadAllAvailable, ReadMaxRows
from ackq.spark.options import options
from ackq.spark.source import edges, lease
from ackq.spark.source.older_reader import OlderStreamReader
from ackq.spark.source.reader import AckqStreamReader
from ackq.v1 import sessions_pb2 as pb
from tests.unit.spark.source.conftest import FakeSession, advanced, attached

SCHEMA = StructType([StructField("delivery_tag", LongType()), StructField("edge", StringType())])
MAX = ReadMaxRows(5)


def at(**tags):
    """The offset with the tags of edges, by the name of their host."""
    edges = {f"{host}:1": place(tag, f"of {host}") for host, tag in tags.items()}
    return {"v": 2, "edges": edges}


def place(tag, incarnation):
    return {"session": "s", "incarnation": incarnation, "tag": tag}


def spans(ranges):
    return [(each.edge, each.after_tag, each.last_tag) for each in ranges]


class World:
    """Edges by host, each a fake session, and the clients that the source made for them."""

    def __init__(self):
        self.edges = {}
        self.made = []
        self.waited = []
        self.left = {}

    def at(self, host):
        return self.edges.setdefault(host, FakeSession())

    def connect(self, broker):
        self.made.append(broker)
        return self.at(broker.endpoint[:-2])

    def find(self, broker, name):
        return self.at(broker.endpoint[:-2]).find(broker, name)

    def answer(self, **tags):
        """Prepares the next answer of edges: the end of a lease, or the answer itself."""
        for host, tag in tags.items():
            if isinstance(tag, int):
                tag = advanced(tag, (tag, 9), incarnation=f"of {host}")  # noqa: PLW2901
            self.at(host).answers.append(tag)

    def away(self, *hosts):
        self.answer(**{host: errors.BrokerUnavailableError("No broker answers.") for host in hosts})

    def starts(self, host):
        """The start and the wait of each advance of an edge."""
        asked = self.at(host).asked
        return [(e.start_tag, e.wait_ms) for e in asked if isinstance(e, pb.AdvanceRequest)]

    def planned(self, host):
        return [each.planned for each in self.at(host).asked if isinstance(each, pb.AttachRequest)]


@pytest.fixture
def world(monkeypatch):
    world = World()
    monkeypatch.setattr(connections, "wait_ready", world.waited.append)
    monkeypatch.setattr(
        connections, "messages_left", lambda broker, _name: world.left.get(broker.endpoint, 0)
    )
    return world


@pytest.fixture
def make(world):
    made = []

    def make_reader(endpoint="a:1,b:1", kind=AckqStreamReader, schema=SCHEMA, **given):
        wanted = {"endpoint": endpoint, "queue": "q", "maxMessagesPerTrigger": "5", **given}
        parsed = options.source({name: text for name, text in wanted.items() if text is not None})
        reader = kind(parsed, schema, world.connect, world.find)
        made.append(reader)
        return reader

    yield make_reader
    for each in made:
        each.stop()


def test_tags_come_with_their_edge(make, world):
    """S12, S6: with tags and no column `edge`, rows of one edge would settle another's messages."""
    tags = StructType([StructField("delivery_tag", LongType())])
    with pytest.raises(errors.SchemaError, match="'delivery_tag' without 'edge'"):
        make(schema=tags)
    world.answer(b=attached(2, (23, 0)))
    with pytest.raises(errors.CheckpointMismatchError, match=r"messages of edge b:1, .* earlier"):
        make("a:1", schema=tags).partitions(at(a=5, b=20), at(a=5, b=23))
    world.answer(b=attached(2, (23, 0)))
    assert spans(make("a:1").partitions(at(a=5, b=20), at(a=5, b=23))) == [("b:1", 20, 23)]


def test_an_edge_that_is_away_is_skipped(make, world, caplog):
    """S12: its place stays, and the batches planned meanwhile are reported before it leases."""
    reader = make(onEdgeAway="skip")
    world.answer(a=7)
    world.away("b")
    assert reader.latestOffset(at(a=5, b=20), MAX) == at(a=7, b=20)
    assert "Edge b:1 is skipped until it answers" in caplog.text
    assert "Edge b:1 is skipped" in reader.reportLatestOffset()["warning"]
    world.away("b")
    reader.commit(at(a=5, b=20))
    world.away("b")
    world.answer(a=9)
    assert reader.latestOffset(at(a=7, b=20), MAX) == at(a=9, b=20)
    world.away("b")
    reader.commit(at(a=7, b=20))
    # Edge b answers again: an advance without a lease, the report of both batches, an advance.
    world.answer(b=20)
    world.answer(b=attached(1))
    world.answer(a=9, b=23)
    assert reader.latestOffset(at(a=9, b=20), MAX) == at(a=9, b=23)
    attach, report, lease = world.at("b").asked[-3:]
    assert (attach.start_tag, attach.horizon) == (20, 1)
    assert (report.start_tag, report.end_tag, report.planned) == (20, 20, 2)
    assert (lease.start_tag, lease.horizon) == (20, 0)
    assert "warning" not in reader.reportLatestOffset()
    assert {each.retry_ms for each in world.made} == {0}


def test_a_skipped_edge_that_has_forgotten_its_session_is_reported(make, world):
    """S9, S12: at tag 0 it opens a successor, which gets the report."""
    reader = make(onEdgeAway="skip")
    world.answer(a=7, b=0)
    reader.latestOffset(at(a=5, b=0), MAX)
    world.away("b")
    reader.commit(at(a=5, b=0))
    world.answer(a=9, b=advanced(0, incarnation="successor"))
    world.answer(b=attached(1))
    world.answer(b=advanced(3, (3, 9), incarnation="successor"))
    end = at(a=9) | {"edges": at(a=9)["edges"] | {"b:1": place(3, "successor")}}
    assert reader.latestOffset(at(a=7, b=0), MAX) == end
    assert [each.incarnation for each in world.at("b").asked[-3:]] == ["of b", "successor", "of b"]


def test_a_subscription_skips_an_edge_that_is_away(make, world):
    """S10, S12: the queue is made at each edge before that opens, also later."""

    def subscribe(_options, broker):
        if broker.endpoint == "b:1":
            raise errors.BrokerUnavailableError("No broker answers.")

    given = {"exchange": "e", "subscription": "q", "queue": None, "onEdgeAway": "skip"}
    reader = make(kind=partial(AckqStreamReader, subscribe=subscribe), **given)
    world.answer(a=0)
    assert reader.latestOffset({"v": 1}, MAX) == at(a=0)


def test_available_now_is_bounded_at_each_edge(make, world):
    """S12, K5: an edge that was away at the start is not read in the run."""
    reader = make(onEdgeAway="skip")
    world.at("b").horizon = lambda: (_ for _ in ()).throw(errors.BrokerUnavailableError("away"))
    reader.prepareForTriggerAvailableNow()
    world.answer(a=7)
    assert reader.latestOffset(at(a=5, b=20), MAX) == at(a=7, b=20)
    assert world.at("a").asked[-1].horizon == 77
    assert world.at("b").asked == []


def test_a_renamed_edge_keeps_its_place(make, world):
    """S12: a place under another endpoint belongs to the edge with the same incarnation."""
    world.at("c").recorded = SessionInfo(incarnation="of b", queues=["q"])
    world.at("a").recorded = SessionInfo(incarnation="of a", queues=["q"])
    world.answer(a=5, c=errors.SessionNotFoundError("asked"))
    with pytest.raises(errors.SessionNotFoundError):
        make("a:1,c:1").latestOffset(at(a=5, b=20), MAX)
    assert world.at("c").asked[0].start_tag == 20
    assert world.at("b").asked == []
    # Until it is known whose place this is, the start waits.
    world.at("c").recorded = errors.BrokerUnavailableError("No broker answers at c:1.")
    given = {"onEdgeAway": "skip", "failOnDataLoss": "false"}
    with pytest.raises(errors.BrokerUnavailableError, match="at c:1"):
        make("a:1,c:1", **given).latestOffset(at(a=5, b=20), MAX)
    assert world.at("b").asked == []


def test_two_names_of_an_edge_are_refused(make, world):
    """S12: the opening under the second name would end the session of the checkpoint."""
    world.answer(a=7)
    world.at("c").recorded = SessionInfo(incarnation="of a", queues=["q"])
    with pytest.raises(errors.InvalidArgumentError, match=r"a:1 and c:1 are one broker"):
        make("a:1,c:1", session="s").latestOffset(at(a=5), MAX)
    assert world.at("c").asked == []


@pytest.mark.parametrize(("end", "left"), [(20, 3), (22, 0)])
def test_an_edge_with_messages_is_not_removed(make, world, end, left):
    """S12: an outstanding lease or messages in its queues refuse the start, with the count."""
    world.answer(b=end)
    world.left["b:1"] = left
    with pytest.raises(errors.CheckpointMismatchError, match=rf"b:1 .* has {left or 2} messages"):
        make("a:1").latestOffset(at(a=5, b=20), MAX)
    (asked,) = world.at("b").asked
    assert (asked.start_tag, asked.horizon) == (20, 1)


def test_where_spark_names_no_start_an_edge_with_messages_stays(make, world):
    """S12, K13: the place that the source keeps has the edges that are no longer named."""
    world.answer(b=22)
    reader = make("a:1", OlderStreamReader, session="s")
    assert list(reader.partitions(at(a=5, b=20), at(a=5, b=20))) == []
    with pytest.raises(errors.CheckpointMismatchError, match=r"Edge b:1 .* has 2 messages"):
        reader.latestOffset()


@pytest.mark.parametrize("error", [errors.SessionNotFoundError, errors.BrokerUnavailableError])
def test_a_lost_edge_is_removed_by_failondataloss(make, world, caplog, error):
    """S12: an edge that does not answer is refused, and with failOnDataLoss=false left behind."""
    world.answer(a=7, b=error("No broker answers at b:1."))
    world.answer(b=error("No broker answers at b:1."))
    with pytest.raises(errors.CheckpointMismatchError, match=r"b:1 .* does not show"):
        make("a:1").latestOffset(at(a=5, b=20), MAX)
    reader = make("a:1", failOnDataLoss="false")
    assert reader.latestOffset(at(a=5, b=20), MAX) == {"v": 1, **place(7, "of a")}
    assert "Edge b:1 is removed" in caplog.text


@pytest.mark.parametrize("error", [errors.SessionNotFoundError, errors.BrokerUnavailableError])
@pytest.mark.parametrize("columns", [("delivery_tag",), ("delivery_tag", "edge")])
def test_a_lost_edge_is_removed_with_a_batch(make, world, caplog, error, columns):
    """S12, K2: the batch is run again without its rows; if it is back, they are not accepted."""
    start, end = at(a=5, b=20), at(a=5, b=23)
    world.answer(a=7, b=error("No broker answers at b:1."))
    schema = StructType([field for field in SCHEMA if field.name in columns])
    reader = make("a:1", schema=schema, failOnDataLoss="false")
    assert list(reader.partitions(start, end)) == []
    assert "is run again without the rows of edge b:1" in caplog.text
    assert reader.latestOffset(end, MAX) == {"v": 1, **place(7, "of a")}
    assert len(world.at("b").asked) == 1
    world.answer(b=error("No broker answers at b:1."))
    with pytest.raises(error):
        make("a:1").partitions(start, end)


def test_an_edge_that_answers_is_not_left_behind(make, world):
    """S12: without one of its queues, failOnDataLoss=false does not drop the others' messages."""
    world.answer(b=errors.QueueNotFoundError("There is no queue 'y'."))
    with pytest.raises(errors.CheckpointMismatchError, match=r"does not show .* no queue 'y'"):
        make("a:1", failOnDataLoss="false").latestOffset(at(a=5, b=20), MAX)


def test_a_repeated_opening_opens_the_same_session(make, world):
    """S9, S12: also where a call of an edge that may be skipped is not retried by its client."""
    reader = make(onEdgeAway="skip")
    world.answer(a=7)
    world.away("b")
    reader.latestOffset({"v": 1}, MAX)
    world.answer(a=7, b=20)
    reader.latestOffset(at(a=7), MAX)
    first, *_, last = (each.session for each in world.at("b").asked)
    assert first == last
    assert first.startswith(limits.ANONYMOUS_PREFIX)


def test_an_opening_that_leases_is_repeated(make, world):
    """S9, S12: Trigger.Once calls once, and of a lost answer no checkpoint would have the lease."""
    world.answer(a=7)
    world.away("b")
    world.answer(b=23)
    reader = make(onEdgeAway="skip")
    assert reader.latestOffset({"v": 1}, ReadAllAvailable()) == at(a=7, b=23)
    assert [each.endpoint for each in world.waited] == ["b:1"]


@pytest.mark.parametrize("error", [errors.QueueNotFoundError, errors.BrokerUnavailableError])
def test_an_opening_that_leases_is_given_back(make, world, monkeypatch, error):
    """S9, S12: if another edge fails, the lease would be of a session that no checkpoint names."""
    monkeypatch.setattr(lease, "_anonymous", lambda: "s")
    world.answer(a=7, b=error("No."))
    world.answer(a=0)
    with pytest.raises(error):
        make().latestOffset({"v": 1}, ReadAllAvailable())
    opened = [(each.session, each.incarnation) for each in world.at("a").asked]
    assert opened == [("s", ""), ("s", "")]
    assert [each.open_and_lease for each in world.at("a").asked] == [True, False]
    # A lease that the checkpoint names stays.
    world.answer(a=7, b=error("No."))
    monkeypatch.setattr(lease, "_anonymous", lambda: "t")
    with pytest.raises(error):
        make().latestOffset(at(a=5, b=20), ReadAllAvailable())
    assert len(world.at("a").asked) == 3


def test_a_removed_edge_is_in_no_report(make, world):
    """S12: the backlog is that of the named edges, also in the run that removes another one."""
    world.answer(b=advanced(20, incarnation="of b", backlog=pb.Backlog()))
    world.answer(a=advanced(7, incarnation="of a", backlog=pb.Backlog(ready=7)))
    reader = make("a:1")
    reader.latestOffset(at(a=5, b=20), MAX)
    assert reader.reportLatestOffset()["ready"] == 7


def test_an_opening_that_reads_again_waits_for_all_edges(make, world):
    """S12, K15: what an edge has retained is read again with its opening alone, so none is skipped.

    With `availableNow`, too, whose bound was taken while an edge was away.
    """
    given = {"session": "s", "startFrom": "earliest", "onEdgeAway": "skip"}
    world.away("b")
    world.answer(a=0)
    with pytest.raises(errors.BrokerUnavailableError, match="No broker answers"):
        make(**given).latestOffset({"v": 1}, MAX)
    assert [each.endpoint for each in world.waited] == ["a:1", "b:1"]
    reader = make(**given)
    answers = iter([errors.BrokerUnavailableError("away"), 77, 77])

    def horizon():
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    world.at("b").horizon = horizon
    reader.prepareForTriggerAvailableNow()
    world.answer(a=0, b=0)
    assert reader.latestOffset({"v": 1}, MAX) == at(a=0, b=0)
    assert world.at("b").asked[-1].HasField("rewind")


def test_each_edge_has_its_place_and_its_share(make, world):
    """S12, K6: its place and part of the bounds; with messages nowhere a second call waits.

    S11: after Spark's commit a batch is reported to the edges whose place stayed.
    """
    backlogs = {"a": pb.Backlog(ready=3, oldest_age_ms=10), "b": pb.Backlog(ready=4)}
    for tags in ({"a": 5, "b": 20}, {"a": 7, "b": 20}):
        leased = {
            host: advanced(tag, (tag, 9), incarnation=f"of {host}", backlog=backlogs[host])
            for host, tag in tags.items()
        }
        world.answer(**leased)
    reader = make(minMessagesPerTrigger="3", maxBytesPerTrigger="1k")
    assert reader.latestOffset(at(a=5, b=20), MAX) == at(a=7, b=20)
    for host, start in (("a", 5), ("b", 20)):
        waits = [(start, False), (start, True)]
        assert [(tag, wait > 0) for tag, wait in world.starts(host)] == waits
        asked = world.at(host).asked[0]
        assert (asked.max_messages, asked.max_bytes, asked.min_messages) == (3, 512, 2)
    assert spans(reader.partitions(at(a=5, b=20), at(a=7, b=20))) == [("a:1", 5, 7)]
    report = reader.reportLatestOffset()
    assert (report["ready"], report["oldest_age_ms"], report["v"]) == (7, 10, 1)
    assert {name: each["ready"] for name, each in report["edges"].items()} == {"a:1": 3, "b:1": 4}
    world.answer(b=attached(1))
    reader.commit(at(a=5, b=20))
    assert (world.planned("a"), world.planned("b")) == ([], [1])


def test_what_waits_for_an_edge(make, world):
    """S12, K2: one of all to read from, each that a planned batch needs, and all without skip."""
    world.answer(a=7)
    world.away("b")
    with pytest.raises(errors.BrokerUnavailableError, match="No broker answers"):
        make().latestOffset(at(a=5, b=20), MAX)
    assert {each.retry_ms for each in world.made} == {60_000}
    world.away("a", "b")
    world.answer(a=7, b=20)
    assert make(onEdgeAway="skip").latestOffset(at(a=5, b=20), MAX) == at(a=7, b=20)
    world.away("b")
    world.answer(b=attached(2, (23, 0)))
    found = make(onEdgeAway="skip").partitions(at(a=5, b=20), at(a=5, b=23))
    assert spans(found) == [("b:1", 20, 23)]
    waited = [(each.endpoint, each.retry_ms) for each in world.waited]
    assert waited == [("a:1", 1_000), ("b:1", 60_000)]


def test_while_all_edges_are_away_each_is_waited_for_in_turn(make, world, monkeypatch):
    """S12: the first that answers is read; one that answers without a call ends no wait."""
    up, now = [], count()
    clock = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None)
    monkeypatch.setattr(edges, "time", clock)

    def wait_ready(broker):
        world.waited.append(broker)
        if broker.endpoint not in up:
            raise errors.BrokerUnavailableError("No broker answers.", cause="refused")

    monkeypatch.setattr(connections, "wait_ready", wait_ready)
    world.away("a", "b")
    said = "at a:1, b:1 could not be reached for 3 s"
    with pytest.raises(errors.BrokerUnavailableError, match=said):
        make(onEdgeAway="skip", retryTimeout="3s").latestOffset(at(a=5, b=20), MAX)
    assert [each.endpoint for each in world.waited] == ["a:1", "b:1", "a:1"]
    up.append("b:1")
    for _ in range(1_001):
        world.away("a", "b")
    world.away("a")
    world.answer(b=23)
    assert make(onEdgeAway="skip").latestOffset(at(a=5, b=20), MAX) == at(a=5, b=23)


def test_an_edge_with_an_unreported_batch_is_waited_for(make, world):
    """S12: edges may go away one after the other; the first that is back is reported, and read."""
    reader = make(onEdgeAway="skip")
    world.answer(a=7)
    world.away("b")
    assert reader.latestOffset(at(a=5, b=20), MAX) == at(a=7, b=20)
    world.away("b")
    reader.commit(at(a=5, b=20))
    world.away("b", "a")
    world.answer(b=20)
    world.answer(b=attached(1))
    world.answer(b=23)
    world.away("a")
    assert reader.latestOffset(at(a=7, b=20), MAX) == at(a=7, b=23)
    assert [each.endpoint for each in world.waited] == ["a:1"]  # answers at once
