"""`ackq top`: queues ordered by their oldest message, with rates and readers."""

import os
import pty
import select
import subprocess
import sys

from ackq.cli.queue_rates import Look, rows
from ackq.info import Holder, QueueInfo, SessionInfo
from tests.eventually import SOON_S, eventually
from tests.wire.cli.conftest import command


def queue(name, **fields):
    return QueueInfo(queue=name, queue_id=sum(name.encode()), **fields)


def session(name, *queues, **fields):
    return SessionInfo(session=name, queues=queues, **fields)


def test_rates_are_those_between_two_looks():
    """M4: rates are between two looks; a first look and a new queue have none.

    The queue with the oldest message comes first; ties are ordered by name.
    """
    look = Look(0.0, (queue("b"), queue("a"), queue("old", oldest_age_ms=5)), ())
    assert [row.queue for row in rows(look)] == ["old", "a", "b"]
    before = Look(10.0, (queue("q", published=5, accepted=1),), ())
    now = Look(12.0, (queue("q", published=11, accepted=2), queue("new", published=3)), ())
    assert [(row.queue, row.in_per_s, row.out_per_s) for row in rows(now, before)] == [
        ("new", None, None),
        ("q", 3.0, 0.5),
    ]
    assert rows(before)[0].in_per_s is None


def test_who_holds_a_queue():
    """M4: a queue's holder is its oldest lease, with its reader and the number of others."""
    reader = Holder(host="h", pid=7, application="etl")
    sessions = (
        session("idle", "q", live=True, holder=reader),
        session("young", "q", live=True, leased=1, lease_age_ms=5, holder=reader),
        session("gone", "q", leased=1, lease_age_ms=9, query_id="id", batch_id=3),
        session("alone", "r", live=True, holder=reader),
    )
    q, r, s = rows(Look(0.0, (queue("q", consumers=2), queue("r"), queue("s")), sessions))
    assert q.holder == "session gone: batch 3, nobody connected, 2 more sessions, 2 consumers"
    assert [each.session for each in q.sessions] == ["gone", "young", "idle"]
    assert r.holder == "session alone: etl on h (7)"
    assert s.holder == ""


def test_on_a_terminal_until_q(endpoint, admin):
    """M4: `top` redraws until `q` is pressed, and restores the terminal."""
    admin.declare_queue("terminal")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(endpoint, "top", "--interval", "100ms"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        os.close(theirs)
        drawn = bytearray()
        eventually("screens", lambda: _read(ours, drawn) or drawn.count(b"READ BY") >= 3)
        os.write(ours, b"\x1b[Aq")  # an arrow, which has no effect, and `q`
        eventually("the end", lambda: _read(ours, drawn))
        assert process.wait(SOON_S) == 0
    os.close(ours)
    assert drawn.count(b"READ BY") >= 3
    assert b"terminal" in drawn
    assert drawn.rstrip().endswith(b"\x1b[?1049l")  # the previous screen is restored


def _read(descriptor, drawn):
    """Adds the output of up to a second to what was drawn; returns whether that was the end."""
    if not select.select([descriptor], [], [], 1)[0]:
        return False
    try:
        drawn += (more := os.read(descriptor, 65_536))
    except OSError:
        return True
    return not more
