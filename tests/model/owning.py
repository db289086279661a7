"""Models two users: alice has a publisher, a writer and a query; mallory knows their ids (A10).

Alice continues under an id, and its connection breaks once, which loses what is on its way. Mallory
acts once under that id: with the next number, or with one that is never reached.
"""

from dataclasses import replace
from typing import NamedTuple

from pyroaring import BitMap64

from ackq.errors import AckqError
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from tests.model.broker import NOW_US
from tests.unit.core.harness import Harness, block_rows

# Users, with the queue and session that each reads; and the queue that alice publishes to.
ALICE, MALLORY, TARGET = "alice", "mallory", "target"
ID, FAR, MOST = b"a" * 16, 1 << 61, 3


class World(NamedTuple):
    """A state of the model; `opened`, `cut` and `lost` describe alice's publisher."""

    broker: bytes
    done: int = 0
    opened: int = 0
    cut: bool = True
    lost: bool = False
    claimed: bool = False
    stuck: str = ""


class Owning:
    """Events that may happen under the id of a "publisher", a "writer" or a "query".

    Args:
        kind: Which of the three.
        unchecked: Types of commands whose user is left out when mallory sends them: the rule is
            off.
    """

    def __init__(self, kind, *unchecked):
        self.broker = self  # for the judge
        self.kind = kind
        self._unchecked = unchecked

    def first(self, _messages):
        """The first world: each user has a session, and mallory's holds a lease."""
        harness = Harness()
        harness.declare(TARGET)
        for user in (ALICE, MALLORY):
            harness.declare_filled(user, MOST)
            harness.do(replace(leasing(user, 0), incarnation="", new_incarnation=user))
        harness.do(leasing(MALLORY, 0))
        return World(harness.core.snapshot())

    def events(self, world):
        """Yields (event, world after it) for every event that may happen next."""
        number, after = world.done + 1, {"done": world.done + 1}
        publishes = self.kind == "publisher"
        if publishes and world.cut:
            opens = {"opened": world.opened + 1, "cut": False}
            yield self._call(world, ALICE, "opens", (opening(world),), opens)
        elif number <= MOST:
            yield self._call(world, ALICE, f"does {number}", self._act(ALICE, number), after)
            if publishes and not world.lost:
                yield f"alice does {number}, which is lost", world._replace(lost=True, cut=True)
        there = {"publisher": world.opened, "writer": world.done, "query": True}[self.kind]
        for claim in (number, FAR) if there and not world.claimed else ():
            yield self._call(world, MALLORY, f"does {claim}", self._act(MALLORY, claim), {})

    def _act(self, user, number):
        """Returns a user's commands: a publish, a batch of one row, or a fetch of one row."""
        queue = TARGET if user == ALICE else MALLORY
        if self.kind == "publisher":
            opens = () if user == ALICE else (c.OpenPublisher(ID, resume=True, user=user),)
            lowest = FAR if number == FAR else 1
            numbers, route = BitMap64([number]), c.Routes((queue,))
            return (*opens, c.Publish(ID, numbers, lowest, "", False, route, 1, 10, True))
        if self.kind == "query":
            tag = number if user == ALICE else 1
            note = c.NoteFetch(user, user, 1, "query", "run", number, last_tag=tag, user=user)
            return (leasing(user, number - 1), note) if user == ALICE else (note,)
        stage = c.StageRef(f"{user} {number % FAR}".encode().ljust(16), 1, 10)
        return (
            c.OpenStage(stage.stage_id, "writer", number, user, user=user),
            c.StageBlock(stage.stage_id, "", c.Routes((queue,)), 1, 10),
            c.SealStage(*stage),
            c.CommitBatch("writer", number, user, "", (stage,), user=user),
        )

    def _call(self, world, user, what, made, after):
        """Performs all commands of a user, or none if one of them is refused."""
        core, strange = Core.restore(world.broker), user == MALLORY
        if strange:
            after = {"claimed": True, "cut": True}
        try:
            for each in made:
                nobodys = strange and isinstance(each, self._unchecked)
                decision = core.decide(replace(each, user="") if nobodys else each, NOW_US)
                for record in decision.records:
                    core.apply(core.sequence + 1, record)
        except AckqError as error:
            refused = {"claimed": True} if strange else {"stuck": error.code}
            return f"{user} {what}: {error}", world._replace(**refused)
        return f"{user} {what}", world._replace(broker=core.snapshot(), **after)


def opening(world):
    """The command by which alice opens its publisher, with all that it knows of its past."""
    attempts = tuple(bytes([number]) for number in range(1, world.opened + 2))
    lowest, *before = world.done + 1, attempts[-1], attempts[:-1]
    return c.OpenPublisher(
        ID, world.opened > 0, "", False, ALICE, lowest, lowest + world.lost, *before
    )


def leasing(user, start):
    """The command that leases one more message in the user's session."""
    holder = c.HolderInfo(user.encode().ljust(16))
    return c.Advance(user, user, holder, (user,), start, max_messages=1, user=user)


def loss(owning, world, _names):
    """Reports confirmed or committed rows that are in no queue; "" if there are none."""
    there = sum(
        len(block_rows(piece)) for piece in views.browse(Core.restore(world.broker).state, TARGET)
    )
    lost = owning.kind != "query" and world.done > there
    return f"a row is lost: {world.done} are answered, and {there} there" if lost else ""


def flaw(owning, world, names):
    """Reports lost rows, or the refusal that keeps alice from continuing; "" if none."""
    stuck = f"alice can not go on: {world.stuck}" if world.stuck else ""
    return stuck or loss(owning, world, names)
