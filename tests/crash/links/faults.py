"""The faults of a world, by a seed: a process is killed, or a side's connections are reset."""

import random
import threading
import time

# Relative frequencies.
WEIGHTS = {
    "kill link": 6,
    "kill edge": 4,
    "restart edge": 1,
    "kill rabbitmq": 1,
    "kill driver": 2,
    "kill artemis": 1,
    "kill leader": 2,
    "kill server": 2,
    "pause link": 1,
    "pause server": 1,
    "reset there": 4,
    "reset here": 3,
    "reset spark": 2,
    "reset artemis": 2,
}
PAUSE_S = (0.2, 3)
# How much longer a run may go on without a kill: on a busy machine few faults strike in its time.
PATIENCE_S = 600


class Faults:
    """Injects faults; between two of them some message is accepted.

    Args:
        world: The run under faults; its `figures` count them.
        kinds: The faults by name, as in `WEIGHTS`; one that returns False could not strike.
    """

    def __init__(self, world, kinds):
        self._world = world
        self._kinds = kinds
        self._weights = [WEIGHTS[name] for name in kinds]
        self._rng = random.Random(f"{world.seed} faults")

    def go_on(self, seconds):
        """Injects faults for `seconds`, and until one of them was a kill."""
        end = time.monotonic() + seconds
        pause = threading.Event()
        before = -1
        while not self._is_over(end) and not self._world.problems:
            pause.wait(self._rng.uniform(*PAUSE_S))
            accepted = self._world.accepted
            if accepted == before:
                if ended := self._world.link_ended:
                    self._world.report(ended)
                continue
            before = accepted
            name = self._rng.choices(list(self._kinds), self._weights)[0]
            if self._kinds[name]() is not False:
                self._world.figures[name] += 1

    def _is_over(self, end):
        killed = any(n for name, n in self._world.figures.items() if name.startswith("kill"))
        return time.monotonic() >= (end if killed else end + PATIENCE_S)
