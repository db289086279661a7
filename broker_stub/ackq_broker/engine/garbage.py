"""Control of Python's garbage collector for a large state: old objects are rarely scanned.

A queue is some thirty objects that the collector knows: to scan 10,000 empty queues takes 200 ms,
in which the broker serves nobody, and Python does it whenever there are a quarter more objects.

Invariant: after a collection that found most objects alive, as the state has grown, later ones
leave these out. All objects are scanned when nobody is kept waiting, or when many of them may be
garbage.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Final

# The collector runs when there are this many new objects: to scan them takes 1 to 7 ms. Nearly all
# are garbage where calls made them, and alive where queues were declared.
_YOUNG_OBJECTS: Final = 10_000
_OLDEST: Final = 2  # generation
# Everything is scanned after a quiet time; and, although clients wait, after a long time or when
# this many streams have ended: one that was alive at a collection may be a hundred objects of
# garbage.
_QUIET_S: Final = 10.0
_APART_S: Final = 600.0
_MOST_S: Final = 3600.0
_STREAMS: Final = 5_000


class GarbageCollector:
    """The collector of this process, from `start` to `stop`.

    Args:
        done: A number that changes whenever the broker decides something.
        ended: The number of streams that have ended.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        done: Callable[[], int],
        ended: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._done = done
        self._ended = ended
        self._clock = clock
        self._last_done = done()
        self._last_ended = ended()
        self._quiet_since_s = self._walked_s = clock()
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Freezes existing objects (gc.freeze) so later collections skip them."""
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS)
        if _leave_out not in gc.callbacks:
            gc.callbacks.append(_leave_out)

    def stop(self) -> None:
        """Restores the collector's previous settings."""
        if _leave_out in gc.callbacks:  # another one in this process may have stopped first
            gc.callbacks.remove(_leave_out)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def poll(self) -> None:
        """Runs a full collection when it is due; to be called every second or so."""
        now_s, done, ended = self._clock(), self._done(), self._ended()
        if done != self._last_done:
            self._last_done, self._quiet_since_s = done, now_s
        since_s = now_s - self._walked_s
        quiet = now_s - self._quiet_since_s >= _QUIET_S and since_s >= _APART_S
        if quiet or since_s >= _MOST_S or ended - self._last_ended >= _STREAMS:
            self._walked_s, self._last_ended = now_s, ended
            gc.unfreeze()
            gc.collect()


def _leave_out(phase: str, info: Mapping[str, int]) -> None:
    """Hook of the collector: freezes the objects that a collection has found alive, if most are.

    Those of the oldest generation are frozen in any case. It refers to no broker, so that a broker
    that is given up without `stop` can be collected.
    """
    if phase == "stop" and (
        info["generation"] == _OLDEST or info["collected"] < _YOUNG_OBJECTS // 2
    ):
        gc.freeze()
