"""Views change nothing: each is called on a full state."""

from collections.abc import Iterator

import pytest

from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import Harness
from tests.unit.core.test_restart import PUBLISHER, busy

FUNCTIONS = sorted(name for name in views.__all__ if not isinstance(getattr(views, name), type))


@pytest.fixture(scope="module")
def full():
    """A core with an object of every kind."""
    harness = Harness()
    busy(harness)
    harness.do(c.OpenPublisher(PUBLISHER))
    harness.declare_filled("held", 9, dead_letter_queue="b")
    harness.deliver("one", "held", 2)
    reader = harness.open("held", session="reading")
    reader.advance(0, max_messages=3)
    reader.advance(3, max_messages=3)
    harness.stage("staging", 1, ["held"], name="z")
    return harness


def arguments(core, name):
    """Returns the arguments of a view beyond the state."""
    state = core.state
    (queue,) = views.list_queues(state, "held")
    (session,) = views.list_sessions(state, "reading")
    (batch,) = views.staged_batches(state, 1, "held")
    keeper = views.keepers(state, queue.queue)[0]
    epoch = (session.session, session.incarnation, session.epoch)
    queue_views = "browse", "dead_letters", "keepers", "links_to", "plan_browse", "ready", "tail"
    link_views = "holding_queue", "link_holder", "link_info", "link_missing", "link_queue"
    session_views = "find_retained", "lease_pieces", "ready_total"
    given = {
        **dict.fromkeys((*queue_views, "waiting_messages"), (queue.queue,)),
        **dict.fromkeys(link_views, (views.link_names(state)[0],)),
        **dict.fromkeys(session_views, epoch[:1]),
        **dict.fromkeys(("incumbent", "session_access"), epoch[:2]),
        **dict.fromkeys(("committed_target", "writer_info"), (batch.batch.writer,)),
        **dict.fromkeys(("list_writers", "staged_batches"), (10,)),
        "check_holder": (*epoch, session.holder.token if session.holder else b""),
        "exchange_kind": ("x",),
        "fetch": (*epoch, session.floor_tag, session.end_tag),
        "holding": (queue.queue, keeper),
        "live_rows": (views.live_blocks(state),),
        "missing": (PUBLISHER, 1, 9),
        "outstanding": (b"one",),
        "queue_infos": ([queue.queue],),
        "queue_use": (queue.queue, 10),
        "queues_like": ("*",),
        "retained_batch": (state.sessions["reading"].kept[0],),
        "retained_pieces": (*epoch[:2], 0, 3, 9),
        "sessions_of_run": ("run", ""),
        "staged_batch": (batch.batch,),
        "staged_bytes": ([batch.stages[0].stage_id],),
        "unfinished": (set(),),
    }
    return given.get(name, ())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_view_changes_nothing(full, name):
    """I2: only records change the state: it is the same byte for byte after each view."""
    before = full.core.snapshot()
    found = getattr(views, name)(full.core.state, *arguments(full.core, name))
    if isinstance(found, Iterator):
        list(found)
    assert full.core.snapshot() == before
