"""Retention (S13): accepted batches that can be read again; rewinds (S14): under new tags."""

import tracemalloc
from dataclasses import replace

import pytest

from ackq.errors import CheckpointMismatchError, PreconditionFailedError
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from tests.unit.core.harness import BOB, DAY_US, FAILED, REJECTED, Unchecked, group, refused
from tests.unit.core.memory import allocated

HOUR_MS = 3_600_000


@pytest.fixture
def reader(harness):
    """A reader that retains a day of its batches."""
    harness.declare("q", dead_letter_queue="dead")
    harness.declare("dead")
    reader = harness.open("q", session="s", retain_ms=24 * HOUR_MS)
    reader.advance(0)
    return reader


def run_batch(harness, reader, batch, messages=3, said=()):
    """Publishes, leases, settles and accepts a batch; returns its rows as fetched."""
    if messages:
        harness.publish_to("q", messages)
    floor = reader.reply.end_tag
    end = reader.advance(floor).end_tag
    reader.note(batch_id=batch)
    rows = reader.fetch(floor, end)
    if said:
        reader.say(*said, owner=reader.owner(batch_id=batch))
    reader.advance(end)
    return rows


def housekeep(harness, days):
    """Housekeeps some days later, while the reader lives."""
    harness.now_us += days * DAY_US
    harness.do(c.Housekeep(frozenset({"s"})))


def run_batches(harness, reader, *batches):
    """Runs batches of three messages each; returns the rows of each."""
    return [run_batch(harness, reader, batch) for batch in batches]


def again(harness, batch):
    """The rows of a retained batch, with tags and delivery counts."""
    state = harness.core.state
    incarnation, leases = views.find_retained(state, "s", batch)
    each = views.retained_batch(state, leases[0])
    return harness.rows(
        views.retained_pieces(state, "s", incarnation, each.after_tag, each.last_tag, 100)
    )


def labels(harness, batch):
    return [label for _, label, _ in again(harness, batch)]


def retained(harness):
    return [lease.batch_id for lease in views.find_retained(harness.core.state, "s")[1]]


@pytest.mark.parametrize("bound", ["age", "bytes"])
def test_the_oldest_batches_end_first(harness, reader, bound):
    """S13: by age or by bytes; the batch accepted last stays for replays (K2)."""
    if bound == "bytes":
        reader.command = replace(reader.command, retain_ms=0, retain_bytes=70)
    for batch in (1, 2, 3):
        run_batch(harness, reader, batch)
        harness.now_us += 10 * HOUR_MS * 1000
    by_age = [(0, [2, 3]), (2, [3]), (7, [])]
    for days, left in by_age if bound == "age" else [(30, [2, 3])]:
        housekeep(harness, days)
        assert retained(harness) == left
    run_batch(harness, reader, 4, messages=9)
    assert retained(harness) == [4]
    refused(PreconditionFailedError, "from batch", again, harness, 1)


def test_bytes_of_a_lease_that_timed_out(harness, reader):
    """S5, S13: bytes are checked at its accept, too, in the record that leases it again."""
    reader.command = replace(reader.command, retain_ms=0, retain_bytes=70)
    run_batch(harness, reader, 1)
    run_batch(harness, reader, 2)
    harness.publish_to("q", 3)
    end = reader.advance(6).end_tag
    reader.note(batch_id=3)
    reader.detach()
    reader.advance(end)
    assert retained(harness) == [2, 3]


def replay(reader, after, last):
    """Another process reads the batch accepted last again, and stages an outcome by its session."""
    reader.attach(after, last, holder=BOB)
    reader.stage("a", group(FAILED, last), owner=c.LeaseOwner("s"))
    assert len(reader.harness.core._state.outcome_stages) == 1


def test_what_is_not_retained_is_refused(harness, reader):
    """S13: a time before the oldest batch is refused once something was left out, not before."""
    run_batches(harness, reader, 1, 2)
    state = harness.core.state
    first = views.find_retained(state, "s", 1)[1][0].accepted_us
    assert len(views.find_retained(state, "s", from_us=1)[1]) == 2
    assert len(views.find_retained(state, "s", from_us=first + 1)[1]) == 1
    assert views.find_retained(state, "s", to_us=first)[1] == []
    incarnation, leases = views.find_retained(state, "s")
    harness.do(c.GiveWay(1))
    told, find = "1 batches of it are", views.find_retained
    refused(PreconditionFailedError, told, find, state, "s", from_us=first)
    tags = (0, leases[-1].end, 10)
    told, pieces = "is not retained", views.retained_pieces
    refused(PreconditionFailedError, told, pieces, state, "s", incarnation, *tags)


def test_an_older_snapshot_has_one_kept_lease(harness, reader):
    """S13, Q7: the lease accepted last of an older version's snapshot can be replayed."""
    rows = run_batch(harness, reader, 1)
    session = harness.core.state.sessions["s"]
    session.only_kept = session.kept.pop()
    harness.core = Core.restore(harness.core.snapshot())
    assert labels(harness, 1) == rows


def run_large_batches(reader, numbers, sizes=()):
    """Publishes, leases and accepts batches of two blocks of 1,000 messages."""
    for batch in numbers:
        for _ in range(2):
            reader.harness.do(reader.harness.command(["q"] * 1_000, sizes=sizes))
        reader.advance(reader.reply.end_tag)
        reader.note(batch_id=batch)


def test_what_a_retained_message_costs_in_memory():
    """S13: under 1 byte with its batch: in bitmaps and arrays, and in objects of Python."""
    harness, batches = Unchecked(), 250
    harness.declare("q")
    reader = harness.open("q", retain_ms=HOUR_MS)
    run_large_batches(reader, range(batches))
    before = allocated()
    run_large_batches(reader, range(batches, 2 * batches))
    outside = allocated() - before
    tracemalloc.start()
    try:
        run_large_batches(reader, range(2 * batches, 3 * batches))
        python = tracemalloc.DomainFilter(inclusive=True, domain=0)
        traces = tracemalloc.take_snapshot().filter_traces((python,)).traces
    finally:
        tracemalloc.stop()
    assert len(retained(harness)) == 3 * batches - 1
    inside = sum(trace.size for trace in traces)
    print(f"{outside / batches:.0f} and {inside / batches:.0f} bytes a batch")
    assert outside + inside < 2_000 * batches


@pytest.mark.parametrize("how", ["accept", "week"])
def test_a_kept_lease_ends(harness, reader, how):
    """K2: without retention, with the next accept or after a week; what a replay said goes too."""
    reader.command = replace(reader.command, retain_ms=0)
    run_batch(harness, reader, 1)
    reader.command = replace(reader.command, holder=BOB)
    replay(reader, 0, 3)
    assert harness.core.drain_dead_blocks() == []
    if how == "accept":
        run_batch(harness, reader, 2)
    else:
        harness.now_us += 7 * DAY_US - 10
        assert harness.decide(c.Housekeep(frozenset({"s"}))).records == ()
        harness.now_us += 20
        harness.do(c.Housekeep(frozenset({"s"})))
    assert harness.core.drain_dead_blocks() == [1]
    assert harness.core._state.outcome_stages == {}
    refused(CheckpointMismatchError, "not inside", reader.pieces, 0, 3, epoch=2)


# --- rewinds ---


def rewind(harness, batch=None, **options):
    return harness.do(c.RewindSession("s", c.Rewind(batch), **options))


def marks(pieces):
    """The batch of then of each row; -2 for none."""
    return [piece.rewound - 2 for piece in pieces for run in piece.runs for _ in range(run.rows)]


def opened(harness, wish, queue="q", **options):
    """A reader with a new checkpoint, whose opening leases."""
    return harness.open(queue, open_and_lease=True, rewind=wish, holder=BOB, **options)


def test_messages_come_again_once(harness, reader):
    """S14: what was accepted from a batch on, before what is new, as redelivered; not rejected."""
    run_batch(harness, reader, 1)
    second = run_batch(harness, reader, 2, said=[group(REJECTED, 5)])
    third = run_batch(harness, reader, 3)
    before = [again(harness, batch) for batch in (1, 2, 3)]
    harness.publish_to("q", 1)
    assert rewind(harness, 2, dry_run=True) == (2, 2, 5)
    assert harness.ready("q") == 1
    assert [rewind(harness, 2) for _ in range(2)] == [(2, 2, 5), (2, 2, 0)]
    harness.restart()
    reader.advance(9)
    rows = reader.rows(9, 15)
    assert [label for _, label, _ in rows[:5]] == [second[0], second[2], *third]
    assert [count for _, _, count in rows] == [2, 2, 2, 2, 2, 1]
    assert marks(reader.pieces(9, 15)) == [2, 2, 3, 3, 3, -2]
    refused(PreconditionFailedError, "are leased", rewind, harness)
    reader.note(batch_id=4)
    reader.advance(15)
    assert rewind(harness, 2) == (2, 3, 6)
    reader.advance(15)
    assert marks(reader.pieces(15, 21)) == [4] * 6
    assert [again(harness, batch) for batch in (1, 2, 3, 4)] == [*before, rows]


def test_rejected_messages_on_demand(harness, reader):
    """S14: rejected messages with `with_rejected`; they stay dead letters. Failed ones never."""
    said = group(REJECTED, 1), group(FAILED, 2, delay_ms=1000)
    rows = run_batch(harness, reader, 1, said=said)
    assert rewind(harness, with_rejected=True) == (1, 1, 2)
    assert harness.browse("q") == rows
    assert harness.ready("dead") == 1


def test_rejected_after_a_rewind(harness, reader):
    """S14: a rewound message that is rejected is a dead letter, and not accepted any more."""
    run_batch(harness, reader, 1)
    rewind(harness)
    run_batch(harness, reader, 2, messages=0, said=[group(REJECTED, 5)])
    harness.restart()
    assert rewind(harness, with_rejected=True, dry_run=True) == (1, 2, 3)
    assert rewind(harness) == (1, 2, 2)


def test_rejected_by_others_after_a_rewind(harness, reader):
    """S14, S8: rewound messages that a consumer and an operator reject are not read again."""
    run_batch(harness, reader, 1)
    rewind(harness)
    harness.deliver("c", "q", 1)
    harness.settle("c", REJECTED, 1)
    reader.advance(3)
    harness.do(c.SettleLease("s", REJECTED, ((4, 4),), fence=True))
    reader.advance(3, holder=BOB)
    reader.advance(5, holder=BOB)
    harness.restart()
    assert harness.ready("dead") == 2
    assert rewind(harness, with_rejected=True, dry_run=True).messages == 3
    assert rewind(harness).messages == 1


def test_bounded_runs(harness, reader):
    """S14, K5: an opening leases them at once; later leases need a bound taken after it."""
    rows = run_batch(harness, reader, 1, messages=4)
    bound = harness.core.sequence
    anew = opened(harness, c.Rewind(), horizon=bound, max_messages=3)
    assert anew.rows(0, 3) == [(tag, label, 2) for tag, label in enumerate(rows[:3], 1)]
    assert anew.advance(3, horizon=bound).end_tag == 3
    assert anew.advance(3, horizon=harness.core.sequence).end_tag == 4


@pytest.mark.parametrize("leased", [0, 2])
def test_an_opening_reads_from_there_on(harness, reader, leased):
    """S14, S9: batches from a number on, then what the old incarnation had leased."""
    _, expected = run_batches(harness, reader, 1, 2)
    if leased:
        harness.publish_to("q", leased)
        reader.advance(6)
        expected += reader.fetch(6, 6 + leased)
    anew, messages = opened(harness, c.Rewind(2)), 3 + leased
    backlog = anew.reply.backlog
    assert (backlog.ready, backlog.unacked, backlog.redelivered) == (0, messages, messages)
    assert anew.fetch(0, anew.reply.end_tag) == expected
    harness.restart()
    assert harness.unacked("q") == messages


def test_an_opening_again(harness, reader):
    """S14, S9: an opening whose answer was lost is repeated, and reads the same."""
    rows = run_batch(harness, reader, 1)
    opened(harness, c.Rewind(1))
    assert opened(harness, c.Rewind(1)).fetch(0, 3) == rows
    assert harness.info("q").unacked == 3


def test_what_is_refused(harness, reader):
    """S14: a batch or time that is not retained, other readers, another queue, no session."""
    run_batches(harness, reader, 1, 2)
    harness.do(c.GiveWay(1))
    refused(PreconditionFailedError, "can go back to batch 2, accepted 20", rewind, harness, 1)
    early = c.RewindSession("s", c.Rewind(from_us=1))
    refused(PreconditionFailedError, "can go back to batch 2", harness.do, early)
    assert rewind(harness, 3) == (-1, 0, 0)
    harness.open("q", session="other")
    live = c.RewindSession("s", c.Rewind(2, live=frozenset({"s", "other"})))
    refused(PreconditionFailedError, "other readers", harness.do, live)
    harness.declare("p")
    told, wish = "queue 'q' has messages of it", c.Rewind(2)
    refused(PreconditionFailedError, told, opened, harness, wish, "p")
    told = "no session of this name"
    refused(PreconditionFailedError, told, opened, harness, wish, "p", session="new")
    anew = opened(harness, c.Rewind())
    assert anew.reply.end_tag == 3
    assert "the first 3 tags of incarnation" in anew.reply.warnings[0]
    harness.open("p", session="new", rewind=c.Rewind())


def test_a_purge_removes_them(harness, reader):
    """S14, Q4: rewound messages are purged like others, and can be rewound no more."""
    run_batches(harness, reader, 1, 2)
    rewind(harness)
    assert harness.do(c.PurgeQueue("q")) == 6
    harness.restart()
    assert labels(harness, 1) == []
    assert len(labels(harness, 2)) == 3
    assert rewind(harness) == (1, 2, 3)


def test_a_batch_that_another_session_retains(harness, reader):
    """S14, K2: a rewind changes no row of a batch in which another session read its messages."""
    run_batch(harness, reader, 1)
    rewind(harness)
    other = harness.open("q", session="other", retain_ms=HOUR_MS)
    assert len(run_batch(harness, other, 5, messages=0)) == 3
    rows = other.rows(0, 3)
    assert rewind(harness).messages == 3
    harness.restart()
    assert other.rows(0, 3) == rows
    assert marks(other.pieces(0, 3)) == [1] * 3
