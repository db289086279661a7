"""Rewind (S14): retained batches are read again under new tags."""

from dataclasses import replace

import pytest

from ackq.errors import PreconditionFailedError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import BOB, Harness, Reader, group
from tests.unit.core.sessions.test_retention import HOUR_MS, again, labels, reader, run_batch

__all__ = ["reader"]

ALL = c.Rewind()


def rewind(harness: Harness, batch: int | None = None, **options: bool) -> c.RewoundSession:
    found: c.RewoundSession = harness.do(c.RewindSession("s", c.Rewind(batch), **options))
    return found


def marks(pieces: list[c.Piece]) -> list[int]:
    """The batch of then of each row; -2 for none."""
    return [piece.rewound - 2 for piece in pieces for run in piece.runs for _ in range(run.rows)]


def opened(harness: Harness, wish: c.Rewind, *queues: str, **options: object) -> Reader:
    """A reader with a new checkpoint, whose opening leases."""
    return harness.open(
        *(queues or ("q",)), session="s", open_and_lease=True, rewind=wish, holder=BOB, **options
    )


def test_messages_come_again_once(harness: Harness, reader: Reader) -> None:
    """S14: what was accepted from a batch on, before what is new, as redelivered; not rejected."""
    first = run_batch(harness, reader, 1)
    harness.publish_to("q", 3)
    reader.advance(3)
    reader.note(batch_id=2)
    second = reader.fetch(3, 6)
    reader.say(group(Outcome.REJECTED, 5), owner=reader.owner(batch_id=2))
    reader.advance(6)
    third = run_batch(harness, reader, 3)
    before = [again(harness, batch) for batch in (1, 2, 3)]
    harness.publish_to("q", 1)
    assert rewind(harness, 2, dry_run=True) == (2, 2, 5)
    assert harness.ready("q") == 1
    assert rewind(harness, 2) == (2, 2, 5)
    assert rewind(harness, 2) == (2, 2, 0)
    harness.restart()
    reader.advance(9)
    rows = reader.rows(9, 15)
    assert [label for _, label, _ in rows[:5]] == [second[0], second[2], *third]
    assert [count for _, _, count in rows] == [2, 2, 2, 2, 2, 1]
    assert marks(reader.pieces(9, 15)) == [2, 2, 3, 3, 3, -2]
    assert [again(harness, batch) for batch in (1, 2, 3)] == before
    with pytest.raises(PreconditionFailedError, match="are leased"):
        rewind(harness)
    reader.note(batch_id=4)
    reader.advance(15)
    assert labels(harness, 1) == first
    assert rewind(harness, 2) == (2, 3, 6)
    harness.restart()
    reader.advance(15)
    assert [label for _, label, _ in reader.rows(15, 21)] == [label for _, label, _ in rows]
    assert marks(reader.pieces(15, 21)) == [4] * 6
    assert [again(harness, batch) for batch in (1, 2, 3)] == before
    assert again(harness, 4) == rows


def test_rejected_messages_on_demand(harness: Harness, reader: Reader) -> None:
    """S14: rejected messages with `with_rejected`; they stay dead letters. Failed ones never."""
    harness.publish_to("q", 3)
    reader.advance(0)
    reader.note(batch_id=1)
    rows = reader.fetch(0, 3)
    said = group(Outcome.REJECTED, 1), group(Outcome.FAILED, 2, delay_ms=1000)
    reader.say(*said, owner=reader.owner(batch_id=1))
    reader.advance(3)
    assert rewind(harness, with_rejected=True) == (1, 1, 2)
    assert harness.browse("q") == rows
    assert harness.ready("dead") == 1


def test_rejected_after_a_rewind(harness: Harness, reader: Reader) -> None:
    """S14: a rewound message that is rejected is a dead letter, and not accepted any more."""
    run_batch(harness, reader, 1)
    rewind(harness)
    reader.advance(3)
    reader.note(batch_id=2)
    reader.say(group(Outcome.REJECTED, 5), owner=reader.owner(batch_id=2))
    reader.advance(6)
    harness.restart()
    assert rewind(harness, with_rejected=True, dry_run=True) == (1, 2, 3)
    assert rewind(harness) == (1, 2, 2)


def test_rejected_by_others_after_a_rewind(harness: Harness, reader: Reader) -> None:
    """S14, S8: rewound messages that a consumer and an operator reject are not read again."""
    run_batch(harness, reader, 1)
    rewind(harness)
    harness.deliver("c", "q", 1)
    harness.settle("c", Outcome.REJECTED, 1)
    reader.advance(3)
    harness.do(c.SettleLease("s", Outcome.REJECTED, ((4, 4),), fence=True))
    reader.advance(3, holder=BOB)
    reader.advance(5, holder=BOB)
    harness.restart()
    assert harness.ready("dead") == 2
    assert rewind(harness, with_rejected=True, dry_run=True).messages == 3
    assert rewind(harness).messages == 1


def test_rewound_messages_do_not_expire(harness: Harness, reader: Reader) -> None:
    """S14, Q3: neither at once, nor when their time comes; also after a restart."""
    harness.publish_to("q", 3, ttls_ms=[1000, 60_000, 0])
    reader.advance(0)
    reader.note(batch_id=1)
    reader.advance(3)
    harness.wait(2)
    assert rewind(harness).messages == 3
    harness.restart()
    harness.wait(120)
    assert harness.ready("q") == 3


def test_bounded_runs(harness: Harness, reader: Reader) -> None:
    """S14, K5: an opening leases them at once; later leases need a bound taken after it."""
    rows = run_batch(harness, reader, 1, messages=4)
    bound = harness.core.sequence
    anew = opened(harness, ALL, horizon=bound, max_messages=3)
    assert anew.rows(0, 3) == [(tag, label, 2) for tag, label in enumerate(rows[:3], 1)]
    assert anew.advance(3, horizon=bound).end_tag == 3
    assert anew.advance(3, horizon=harness.core.sequence).end_tag == 4


@pytest.mark.parametrize("leased", [0, 2])
def test_an_opening_reads_from_there_on(harness: Harness, reader: Reader, leased: int) -> None:
    """S14, S9: batches from a number on, then what the old incarnation had leased."""
    run_batch(harness, reader, 1)
    second = run_batch(harness, reader, 2)
    labels_of = list(second)
    if leased:
        harness.publish_to("q", leased)
        reader.advance(6)
        labels_of += reader.fetch(6, 6 + leased)
    reply = opened(harness, c.Rewind(2)).reply
    assert reply.end_tag == 3 + leased
    assert (reply.backlog.ready, reply.backlog.unacked) == (0, 3 + leased)
    assert reply.backlog.redelivered == 3 + leased
    anew = Reader(harness, replace(reader.command, holder=BOB), reply)
    assert anew.fetch(0, 3 + leased) == labels_of
    harness.restart()
    assert harness.unacked("q") == 3 + leased


def test_an_opening_again(harness: Harness, reader: Reader) -> None:
    """S14, S9: an opening whose answer was lost is repeated, and reads the same."""
    rows = run_batch(harness, reader, 1)
    opened(harness, c.Rewind(1))
    assert opened(harness, c.Rewind(1)).fetch(0, 3) == rows
    assert harness.info("q").unacked == 3


def test_what_is_refused(harness: Harness, reader: Reader) -> None:
    """S14: a batch or time that is not retained, other readers, another queue, no session."""
    for batch in (1, 2):
        run_batch(harness, reader, batch)
    harness.do(c.GiveWay(1))
    refused = pytest.raises
    with refused(PreconditionFailedError, match="can go back to batch 2, accepted 20"):
        rewind(harness, 1)
    with refused(PreconditionFailedError, match="can go back to batch 2"):
        harness.do(c.RewindSession("s", c.Rewind(from_us=1)))
    assert rewind(harness, 3) == (-1, 0, 0)
    harness.open("q", session="other")
    live = c.Rewind(2, live=frozenset({"s", "other"}))
    with refused(PreconditionFailedError, match="other readers"):
        harness.do(c.RewindSession("s", live))
    harness.declare("p")
    with refused(PreconditionFailedError, match="queue 'q' has messages of it"):
        opened(harness, c.Rewind(2), "p")
    with refused(PreconditionFailedError, match="no session of this name"):
        harness.open("p", session="new", rewind=c.Rewind(2))
    anew = opened(harness, ALL)
    assert anew.reply.end_tag == 3
    assert "the first 3 tags of incarnation" in anew.reply.warnings[0]
    harness.open("p", session="new", rewind=ALL)


def test_a_purge_removes_them(harness: Harness, reader: Reader) -> None:
    """S14, Q4: rewound messages are purged like others, and can be rewound no more."""
    for batch in (1, 2):
        run_batch(harness, reader, batch)
    rewind(harness)
    assert harness.do(c.PurgeQueue("q")) == 6
    harness.restart()
    assert labels(harness, 1) == []
    assert len(labels(harness, 2)) == 3
    assert rewind(harness) == (1, 2, 3)


def test_the_end_of_retention_leaves_them(harness: Harness, reader: Reader) -> None:
    """S14: a rewound message stays in its queue when its batch is no longer retained."""
    for batch in (1, 2):
        run_batch(harness, reader, batch)
    rewind(harness)
    harness.do(c.GiveWay(1))
    harness.now_us += 30 * HOUR_MS * 1000
    harness.do(c.Housekeep(frozenset({"s"})))
    assert harness.ready("q") == 6
    reader.advance(6)
    reader.note(batch_id=3)
    reader.advance(12)
    harness.do(c.ReleaseSession("s"))
    assert harness.info("q").ready == 0


def test_a_session_that_timed_out_does_not_take_them(harness: Harness, reader: Reader) -> None:
    """S14, S5: what another session accepted is a hole of the old lease, also after a rewind."""
    other = harness.open("q", session="other", session_timeout_ms=1000)
    harness.publish_to("q", 2)
    other.advance(0)
    other.detach()
    reader.advance(0)
    reader.advance(2)
    assert rewind(harness).messages == 2
    assert views.lease_pieces(harness.core.state, "other") == []
    other.advance(0)
    assert other.fetch(0, 2) == []
    assert other.info().holes == 2
    assert harness.ready("q") == 2


def test_a_batch_that_another_session_retains(harness: Harness, reader: Reader) -> None:
    """S14, K2: a rewind changes no row of a batch in which another session read its messages."""
    run_batch(harness, reader, 1)
    rewind(harness)
    other = harness.open("q", session="other", retain_ms=HOUR_MS)
    assert other.advance(0).end_tag == 3
    other.note(batch_id=5)
    other.advance(3)
    rows = other.rows(0, 3)
    assert rewind(harness).messages == 3
    harness.restart()
    assert other.rows(0, 3) == rows
    assert marks(other.pieces(0, 3)) == [1] * 3
