"""The faults of a world, their kinds and times; drawn from its seed before it begins.

Invariant: a seed always gives the same list, so that a fault can be left out by its index.
"""

from typing import NamedTuple

# Kinds of faults and their weights. The first three end the broker.
_ENDS = {"kill": 5, "power": 5, "stop": 1}
_OTHERS = {
    "cut": 6,
    "stall": 1,
    "clock": 2,
    "slow": 2,
    "sync": 3,
    "write": 1,
    "read": 1,
    "room": 1,
    "short": 2,
    "full": 1,
}
_MOST_ENDS = 4
_MOST_OTHERS = 4
# The broker may end up to one of these numbers of scheduling steps after the instant of the fault,
# or after a change of the disk that follows: unsynced data is lost between two changes.
_STEPS = (0, 3, 20, 100, 400)
_CHANGES = (
    *("rename", "rename", "unlink", "names", "name", "sync", "write", "resize"),
    *("syncing", "syncing", "answer", "answer", "answer", "offsets", "offsets", "offsets"),
)
# During a sync, answers that do not wait for it have time to arrive; and what was answered must be
# on disk when the power is cut right after, or when a driver has just written it to its checkpoint.
_STEPS_BEHIND = {"syncing": 60}
_FEW_STEPS = 6
# The run ends at one of so many changes of a kind that follow.
_MOST_CHANGES = 4
_MOST = {"answer": 16, "offsets": 1}
# After a failed sync the power may be cut before anybody has read the files again.
_STEPS_OF_A_LOSS = 200
# A new start may end again within one of these numbers of steps, or after a change that it makes.
_TWICE = 0.4
_STEPS_OF_A_START = (10, 60, 300, 1500)
_CHANGES_OF_A_START = ("rename", "unlink", "names", "sync")


class Fault(NamedTuple):
    """A fault: seconds after the begin, its kind, and three parameters between 0 and 1."""

    at_s: float
    kind: str
    a: float
    b: float
    c: float

    def __str__(self):
        return f"{self.kind} at {self.at_s:.3f} s ({self.a:.3f}, {self.b:.3f}, {self.c:.3f})"


def draw(random, seconds):
    """The faults of a world that lasts `seconds`."""
    kinds = [_choice(random, _ENDS) for _ in range(random.randrange(1, _MOST_ENDS + 1))]
    kinds += [_choice(random, _OTHERS) for _ in range(random.randrange(_MOST_OTHERS + 1))]
    found = [
        Fault(random.random() * seconds, kind, random.random(), random.random(), random.random())
        for kind in kinds
    ]
    return sorted(found)


def perform(fault, world):
    """Makes the fault happen in the world."""
    world.trace("fault", fault)
    _PERFORM[fault.kind](fault, world)


def _end(fault, world):
    process = world.process
    if fault.a < 1 / 3:
        steps, rest = _pick(fault.b, _STEPS)
        process.plan(fault.kind, int(steps * rest))
    else:
        change, rest = _pick(fault.b, _CHANGES)
        count = int(rest * _MOST.get(change, _MOST_CHANGES))
        steps = _STEPS_BEHIND.get(change, _FEW_STEPS)
        # A kill loses nothing that was written.
        kind = "power" if change == "offsets" else fault.kind
        process.plan_at(kind, change, count, int(fault.a * 1000) % steps)
    if fault.c < _TWICE:
        _end_the_next(fault.c / _TWICE, world)


def _end_the_next(number, world):
    """Plans a power cut, or a kill, soon after the next start."""
    number, rest = _pick(number, (0, 1))
    if number:
        change, rest = _pick(rest, _CHANGES_OF_A_START)
        count = int(rest * _MOST_CHANGES)
        kind = "power" if int(rest * 1000) % 4 else "kill"
        world.process.plan_next_at(kind, change, count, int(rest * 100_000) % _FEW_STEPS)
    else:
        steps, rest = _pick(rest, _STEPS_OF_A_START)
        world.process.plan_next("power" if rest < 3 / 4 else "kill", int(steps * rest * 4 / 3))


def _stop(_, world):
    world.process.stop()


def _cut(fault, world):
    connections = world.connections()
    if not connections:
        return
    connection = connections[int(fault.a * len(connections))]
    # Both sides at once, or one side learns of it later: at most when its keepalive times out.
    late = fault.c * 20
    client, server = ((0, 0), (late, 0), (0, late))[int(fault.b * 3)]
    connection.cut(client, server)


def _stall(fault, world):
    world.stall(fault.a * 20)


def _clock(fault, world):
    span = (1e6, 60e6, 4e9, 90e9)[int(fault.b * 4)]
    world.system.wall_offset_us += int((2 * fault.a - 1) * span)


def _slow(fault, world):
    world.slow_disk(fault.a * 3, fault.b * 5)


def _arm(fault, world):
    # A broker does few operations of most kinds.
    world.disk.arm(fault.kind, int(fault.a * 10))
    if fault.kind == "sync":
        # Data that it did not bring to the disk is in the page cache until then.
        if fault.c < 1 / 2:
            world.process.plan_at("power", "lost", 0, int(fault.b * _STEPS_OF_A_LOSS))
        else:
            _end_the_next(fault.b, world)


def _full(fault, world):
    world.disk.free_bytes = 1 << 16
    world.kernel.at(world.kernel.now_s + fault.a * 4, world.give_room)


_PERFORM = {
    "kill": _end,
    "power": _end,
    "stop": _stop,
    "cut": _cut,
    "stall": _stall,
    "clock": _clock,
    "slow": _slow,
    "full": _full,
    **dict.fromkeys(("sync", "write", "read", "room", "short"), _arm),
}


def _pick(number, options):
    """One option chosen by a number from 0 to 1, and the remaining fraction as another number."""
    at = number * len(options)
    return options[int(at)], at - int(at)


def _choice(random, weights):
    (kind,) = random.choices(tuple(weights), tuple(weights.values()))
    return kind
