"""Views change nothing: each is called on a full state, and no view assigns to the state."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import Harness
from tests.unit.core.test_restart import PUBLISHER, busy

MODULES = sorted(Path(inspect.getfile(views)).parent.glob("[a-z]*.py"))
FUNCTIONS = sorted(name for name in views.__all__ if not isinstance(getattr(views, name), type))


@pytest.fixture(scope="module")
def full() -> Harness:
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
    return {
        "browse": (queue.queue,),
        "check_holder": (*epoch, session.holder.token if session.holder else b""),
        "committed_target": (batch.batch.writer,),
        "dead_letters": (queue.queue,),
        "exchange_kind": ("x",),
        "find_retained": epoch[:1],
        "fetch": (*epoch, session.floor_tag, session.end_tag),
        "holding": (queue.queue, keeper),
        "incumbent": epoch[:2],
        "keepers": (queue.queue,),
        "lease_pieces": epoch[:1],
        "link_holder": (views.link_names(state)[0],),
        "link_info": (views.link_names(state)[0],),
        "link_missing": (views.link_names(state)[0],),
        "link_queue": (views.link_names(state)[0],),
        "list_writers": (10,),
        "live_rows": (views.live_blocks(state),),
        "missing": (PUBLISHER, 1, 9),
        "outstanding": (b"one",),
        "plan_browse": (queue.queue,),
        "queue_infos": ([queue.queue],),
        "queue_use": (queue.queue, 10),
        "queues_like": ("*",),
        "ready": (queue.queue,),
        "ready_total": epoch[:1],
        "retained_batch": (state.sessions["reading"].kept[0],),
        "retained_pieces": (*epoch[:2], 0, 3, 9),
        "session_access": epoch[:2],
        "sessions_of_run": ("run", ""),
        "staged_batch": (batch.batch,),
        "staged_batches": (10,),
        "staged_bytes": ([batch.stages[0].stage_id],),
        "tail": (queue.queue,),
        "unfinished": (set(),),
        "waiting_messages": (queue.queue,),
        "writer_info": (batch.batch.writer,),
    }.get(name, ())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_view_changes_nothing(full: Harness, name: str) -> None:
    """I2: only records change the state: it is the same byte for byte after each view."""
    before = full.core.snapshot()
    found = getattr(views, name)(full.core.state, *arguments(full.core, name))
    if isinstance(found, Iterator):
        list(found)
    assert full.core.snapshot() == before


def changed(source):
    """The attributes and entries that a source assigns or deletes, except in its own variables."""
    tree = ast.parse(source)
    own = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Subscript)
        and isinstance(node.ctx, ast.Store | ast.Del)
        and not (isinstance(node.value, ast.Name) and node.value.id in own)
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_view_assigns_to_nothing_of_the_state(module):
    """I2: the source of a view has no assignment to the state either."""
    assert changed(module.read_text()) == []


def test_an_assignment_is_found():
    """The check of the sources can fail."""
    assert changed(
        "def f(state):\n    state.x = 1\n    del state.y[0]\n    a = {}\n    a[1] = 2"
    ) == [
        "state.x",
        "state.y[0]",
    ]
