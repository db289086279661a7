"""An event loop whose clock jumps to the next timer: hours of virtual time pass at once."""

import asyncio
import selectors


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that never waits: where a loop would sleep, its clock moves on."""

    def __init__(self):
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout=None):
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing will ever happen any more"
            self.now_s += max(timeout, 0)
        return found


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self):
        return self._jumping.now_s


class LoopTime:
    """In place of the module `time`: the clock of the running loop, after pauses of a process."""

    paused_s = 0

    def monotonic(self):
        return asyncio.get_running_loop().time() + self.paused_s


def run(main):
    """Runs a coroutine as `asyncio.run` does, on a loop in virtual time."""
    with asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner:
        return runner.run(main)
