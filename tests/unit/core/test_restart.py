"""Recovery: equal records give equal state; a restart loses transient messages alone."""

import re

import msgspec
import pytest
from pyroaring import BitMap64

from ackq.errors import QueueNotFoundError, StageMismatchError, UnsupportedError
from ackq.outcomes import Outcome
from ackq_broker.core import Core, fields, records, views
from ackq_broker.core import commands as c
from ackq_broker.core.columns import bitmaps
from tests.unit.core.harness import BOB, PUBLISHER, group, labels, refused, routes
from tests.unit.core.link_process import LinkProcess, accept


def busy(harness):
    """Makes a history in which every kind of record occurs."""
    harness.declare("a", "b")
    harness.declare("lost", durable=False)
    harness.declare("ring", max_length=4, overflow="drop-head")
    harness.bind("x", "topic", a="#", b="k.*", lost="k.1")
    harness.do(c.DeclareExchange("y", "fanout", durable=False))
    harness.do(c.Bind("y", "a", ""))
    harness.publish(["k.1", "k.2", "z"] * 4, exchange="x")
    harness.publish_to("ring", 6)
    harness.publish_to("b", 3, persistent=False)
    assert harness.together("b", [1, 2, 3], (b"2" * 16, b"3" * 16))
    reader = harness.lease("a", "b", "lost", max_messages=7)
    reader.advance(7, max_messages=9)
    reader.advance(7, holder=BOB)
    stage = harness.stage("w", 1, ["a", "b", "a"], name="s")
    harness.stage("w", 1, ["a"], name="t")
    harness.commit("w", 1, stage, execution_id="7")
    harness.commit("w", 1, run_id="next", execution_id="1")
    harness.stage("w", 1, ["a"], run_id="next", name="r")
    harness.stage("w", 2, ["b"] * 3, name="u")
    harness.do(c.AbortBatch("w", 2, (b"u".ljust(16),)))
    harness.do(c.ReleaseSession("s"))
    harness.open("a", "b", session="again").advance(0, max_messages=5)
    harness.stage("w", 3, ["b"], name="v")
    consume(harness)
    retain(harness)
    dead_letter(harness)
    settle(harness)
    transact(harness)
    link(harness)
    harness.commit("owned", 0, user="alice")
    harness.do(c.AssignWriter("owned", "bob"))
    harness.commit("forgotten", 0)
    kept = harness.stage("shared", 0, ["b"], name="kept")
    harness.commit("shared", 0, kept, prepare=True, edges="x:1,y:1")
    home = harness.stage("home", 0, ["b"], name="home")
    others = (c.EdgeStages("x:1", (kept,)),)
    harness.commit("home", 0, home, others=others, edges="x:1,y:1")
    harness.do(c.ForgetWriter("forgotten", force=True))
    harness.do(c.Unbind("x", "b", "k.*"))
    harness.do(c.PurgeQueue("ring"))
    harness.do(c.DeleteQueue("ring"))
    harness.do(c.ClosePublisherStream(PUBLISHER))
    harness.housekeep_after(8 * 24 * 3600 * 1_000_000)
    harness.do(c.DeleteExchange("y"))
    harness.do(c.Start("second", "copied"))
    harness.do(c.AcceptHistory())
    harness.do(c.Start("third", "repaired"))


def consume(harness):
    """Opens channels that settle, close, or are still open at the end."""
    for channel_id in (b"one", b"two", b"three"):
        for queue in ("a", "b", "a"):
            harness.do(c.Deliver(channel_id, queue, 2))
        harness.do(c.Settle(channel_id, Outcome.RELEASED, up_to=1))
        harness.do(c.Settle(channel_id, Outcome.ACCEPTED, BitMap64((2,))))
    harness.do(c.CloseChannel(b"two"))


def retain(harness):
    """Accepts messages of a queue that retains them; some are rewound, some accepted again."""
    harness.declare_filled("retaining", 6, retain_ms=30 * 24 * 3_600_000)
    harness.consume("retaining", Outcome.ACCEPTED, 4)
    harness.do(c.RewindQueue("retaining"))
    harness.do(c.Deliver(b"five", "retaining", 2, no_ack=True))


def dead_letter(harness):
    """Makes messages fail, expire, wait, die and be redriven; some of each stay so."""
    harness.declare("dead", message_ttl_ms=3000)
    times = {"redelivery_delay_ms": 500, "message_ttl_ms": 60_000, "expires_ms": 1_000_000}
    harness.declare("mortal", dead_letter_queue="dead", delivery_limit=1, **times)
    harness.declare("lossy", dead_letter_queue="nowhere", message_ttl_ms=1000)
    harness.publish(["mortal", "lossy", "lossy"] * 6, ttls_ms=[0, 0, 2000, 1500, 0, 0] * 3)
    tags = [row[0] for row in harness.deliver("four", "mortal", 5)]
    harness.settle("four", Outcome.FAILED, *tags[:3])
    harness.settle("four", Outcome.REJECTED, tags[3], reason="no good")
    harness.deliver("four", "lossy", 2)
    harness.wait(1.1)
    harness.settle("four", Outcome.FAILED, *(row[0] for row in harness.deliver("four", "mortal")))
    harness.settle("four", Outcome.RELEASED, up_to=7, delay_ms=9000)
    harness.do(c.Redrive("dead", max_messages=2))
    harness.wait(1)


def settle(harness):
    """Makes queries settle rows; some stages are left, and a detached lease."""
    harness.declare_filled("raw", 12, dead_letter_queue="dead")
    reader = harness.lease("raw", session="settling", max_messages=6)
    reader.note()
    outcomes = group(Outcome.REJECTED, 2, 5, reason="bad"), group(Outcome.FAILED, 3)
    reader.say(*outcomes, group(Outcome.RELEASED, 4))
    stage_id, _ = reader.stage("none", group(Outcome.FAILED, 6))
    harness.do(c.AbortOutcomes((stage_id,)))
    reader.advance(6, max_messages=4)
    reader.note(batch_id=8)
    harness.do(c.SettleLease("settling", Outcome.REJECTED, ((8, 9),), "poison"))
    reader.advance(6, holder=BOB)
    reader.note(batch_id=8)
    reader.stage("left", group(Outcome.RELEASED, 7), owner=reader.owner(batch_id=8))
    by_name = c.LeaseOwner(session="settling")
    reader.stage("replay", group(Outcome.REJECTED, 2), owner=by_name)
    away = harness.open("raw", session="away", session_timeout_ms=1000)
    away.note(0, batch_id=0, empty=True)
    away.advance(0, session_timeout_ms=1000)
    away.detach()
    harness.consume("raw", Outcome.ACCEPTED, 1)


def link(harness):
    """Makes links with held, permitted, proven and doubtful entries; removes one (L5, L10)."""
    harness.declare("linked")
    process = LinkProcess(harness, queue="linked")
    process.subscribe()
    process.store(["1", "2", "3", "4", "same", "same"])
    accept(harness, 1, 2, 3, queue="linked")
    process.permit()
    process.prove(3)
    process.store(["none"], ids=[""])
    accept(harness, 4, queue="linked")
    process.permit()
    process.subscribe()
    process.store(["same", "5", "4"])
    process.store(["same"], content=True, redelivered=True)
    harness.do(c.PauseLink("l", paused=True))
    LinkProcess(harness, "gone", queue="linked", ack=c.LinkAck.STORED)
    harness.do(c.RemoveLink("gone"))


def transact(harness):
    """Makes transactions that are committed, rolled back, and open at the end (P13)."""
    writer = b"t" * 16
    harness.do(c.OpenPublisher(writer, transactional=True))
    rows = (routes(["a", "b"]), 2, 20, True, (c.Expiry(harness.now_us + 1_000_000),))
    for number in (1, 2, 3):
        block = c.TransactionBlock(writer, b"%016d" % number, BitMap64([1, 2]), "", True, *rows)
        harness.do(block)
        if number == 1:
            harness.do(c.CommitTransaction(writer, block.transaction_id, 2))
        elif number == 2:
            harness.do(c.RollbackTransaction(writer))


def test_every_record_kind_occurs(harness):
    """I2: the history that the tests below repeat leaves no kind of record out."""
    busy(harness)
    kinds = {type(record) for record in harness.log}
    assert kinds == set(records.Record.__subclasses__())


def test_a_restart_takes_what_is_transient(harness):
    """Q7: non-persistent messages, which are counted, and non-durable queues and exchanges."""
    harness.declare("q")
    harness.declare("lost", durable=False)
    harness.do(c.DeclareExchange("x", "fanout", durable=False))
    harness.bind("y", "fanout", q="", lost="")
    harness.publish_to("q", 1, persistent=False)
    both = harness.publish(["k"], exchange="y").block_id
    harness.publish_to("lost", 1)
    assert harness.restart() == 3
    exchanges = [*filter(None, views.list_exchanges(harness.core.state))]
    assert exchanges == [c.ExchangeInfo("y", "fanout", True, (("q", ""),))]
    assert list(views.live_blocks(harness.core.state)) == [both]
    with pytest.raises(QueueNotFoundError):
        harness.browse("lost")


@pytest.mark.parametrize("kept", [0, 1])
def test_a_lease_with_holes_at_its_end(harness, kept):
    """S1, Q7: its end is in the checkpoint: chunks cover it, also one of holes alone."""
    harness.declare("q")
    harness.declare("lost", durable=False)
    harness.publish(["q"] * kept + ["lost"] * (3 - kept))
    reader = harness.lease("q", "lost")
    assert harness.restart() == 3 - kept
    reply = reader.advance(0, queues=("q",))
    assert (reply.end_tag, reply.chunks) == (3, (c.Chunk(3, 10 * kept),))
    assert reader.fetch(0, 3) == labels(1, kept)
    assert reader.advance(3, queues=("q",)).end_tag == 3


def test_what_is_of_a_newer_version_is_refused(harness):
    """I2, Q7: the error names the version to start; unknown kinds of records are never skipped."""
    snapshot = bytearray(harness.core.snapshot())
    snapshot[6] += 1
    record = records.encode(records.QueuePurged(1))
    unknown = record[:1] + msgspec.msgpack.encode(["queue_folded", 1])
    for read, data, refusal in (
        (Core.restore, bytes(snapshot), "version 3; this broker reads version 2"),
        (Core.restore, b"something else", "no state at all"),
        (records.decode, bytes((3,)) + record[1:], "version 3; this broker reads up to 2"),
        (records.decode, b"", "version none"),
        (records.decode, unknown, "does not know"),
    ):
        refused(UnsupportedError, refusal, read, data)


HOLDER = [b"t", "h", 1, "a", 2]


@pytest.mark.parametrize(
    "fields",
    [
        ["queue_deleted", 7, "new"],
        ["session_advanced", "s", 1, [*HOLDER, "new"], [1], 5],
        ["ticked", 5, [], [], [], [[1, 2, 0, "new"]]],
        ["queue_declared", 1, "q", {"durable": True, "new": 1}],
        ["published", b"p", b"", b"", 1, 1, True, 5, [[1, 1, 1, 1, 0, None, [[5, None, "new"]]]]],
    ],
)
def test_a_record_with_more_fields_is_refused(fields):
    """I2: an unknown field, of a newer version, may change the meaning, so it is refused.

    It may be in the record, in a part of it, or in the properties of a queue.
    """
    empty = BitMap64().serialize()
    fields = [empty if field == b"" else field for field in fields]
    data = bytes((2,)) + msgspec.msgpack.encode(fields)
    told = r"by a newer version\. Start that version"
    with pytest.raises(UnsupportedError, match=told) as refused:
        records.decode(data)
    assert re.search("unknown field|of at most length|of length", str(refused.value))


PATHS = [
    *("", "queues 0", "queues 0 properties", "queues 0 origins", "exchanges 0", "publishers 0"),
    *("writers 0", "stages 0", "stages 0 blocks 0", "sessions 0", "sessions 0 lease"),
    *("channels 0", "channels 0 holds 0", "histories 0"),
]


@pytest.mark.parametrize("path", PATHS)
def test_a_snapshot_with_more_fields_is_refused(harness, path):
    """I2: an unknown field, of a newer version, may be part of the state, so it is refused."""
    harness.declare_filled("q", 9)
    harness.bind("x", "topic", q="#")
    harness.stage("w", 1, ["q"], name="s")
    harness.lease("q", max_messages=2)
    harness.deliver("c", "q", 2)
    data = harness.core.snapshot()
    image = msgspec.msgpack.decode(data[8:])
    found = image
    for step in path.split():
        found = found[int(step) if step.isdigit() else step]
    found["new"] = 1
    with pytest.raises(UnsupportedError, match=r"newer version .*unknown field `new`"):
        Core.restore(data[:8] + msgspec.msgpack.encode(image))


@pytest.mark.parametrize("version", [1, 2])
def test_parts_and_snapshots_of_the_first_version_are_read(harness, version):
    """I2: without expiries, delays, dead letters and channels, and with counts of that format."""
    rows = msgspec.msgpack.encode([1, 1, 3, 30, 0, None])
    decoded = msgspec.msgpack.decode(rows, type=fields.RoutedRows)
    assert decoded == fields.RoutedRows(1, 1, 3, 30, 0)
    harness.declare_filled("q", 4)
    for _ in range(3):
        harness.deliver("x", "q", 2)
        harness.do(c.CloseChannel(b"x"))
    data = harness.core.snapshot()
    image = msgspec.msgpack.decode(data[8:])
    for name in ("channels", "histories", "admitted_history"):
        del image[name]
    (queue,) = image["queues"]
    columns = "delayed", "failures", "expiries", "late", "delays", "origins", "requeued_log"
    for name in (*columns, "expired", "dead_lettered", "dropped"):
        del queue[name]
    counted = bitmaps.encode_hook(BitMap64((1, 2)))
    queue |= {"deliveries": [[3, counted]], "requeued": [[9, counted]]}
    head = data[:6] + version.to_bytes(2, "little")
    core = Core.restore(head + msgspec.msgpack.encode(image))
    assert core.history_id == "history"
    (piece,) = views.browse(core.state, "q")
    assert piece.runs == (c.Run(1, 2, 4, False), c.Run(3, 2, 1, False))


def test_lost_blocks_take_their_messages(harness):
    """Q7, S5: lost messages are dropped and counted; leases get holes, others are delivered."""
    harness.declare("q", "r", "e")
    harness.bind("x", "fanout", q="", r="")
    blocks = [harness.publish(["k"] * 2, exchange="x").block_id for _ in range(4)]
    reader = harness.lease("r", max_messages=5)
    harness.deliver("x", "q", 3)
    stage = harness.stage("w", 1, ["q"], name="s")
    torn = max(views.live_blocks(harness.core.state))
    lost = BitMap64([blocks[1], blocks[3], torn, 999])
    assert harness.do(c.Start("second", "repaired", lost)) == c.Started(
        vanished=0, lost=(("q", 4), ("r", 4)), lost_stages=1
    )
    assert views.live_blocks(harness.core.state) == BitMap64([blocks[0], blocks[2]])
    assert harness.browse("q") == harness.browse("r") == ["m1", "m2", "m5", "m6"]
    assert (harness.info("q").dropped, harness.info("r").dropped) == (4, 4)
    assert (harness.info("q").ready, harness.info("q").staged) == (4, 0)
    harness.do(c.AcceptHistory())
    assert harness.rows(reader.pieces(0, 5)) == [(1, "m1", 1), (2, "m2", 1), (5, "m5", 1)]
    refused(StageMismatchError, "does not exist", harness.commit, "w", 1, stage)
    assert harness.do(c.Start("second", "repaired", lost)) == c.Started(0)


def test_lost_blocks_take_what_is_kept_for_a_replay(harness):
    """Q7, K2: an accepted message counts as no loss, and a replay leaves it out."""
    harness.declare("q")
    lost = BitMap64([harness.publish_to("q", 2).block_id])
    harness.publish_to("q", 1)
    reader = harness.lease("q", max_messages=3)
    reader.advance(3)
    assert harness.do(c.Start("second", "repaired", lost)) == c.Started(0)
    assert (harness.info("q").accepted, harness.info("q").dropped) == (3, 0)
    harness.do(c.AcceptHistory())
    reader.attach(0, 3)
    assert harness.rows(reader.pieces(0, 3)) == [(3, "m3", 1)]
