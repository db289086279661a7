"""The scheduler: one actor runs at a time, and a seed decides which one.

Actors are the event loops (one for the clients, one for each process lifetime of the broker), of
which a turn runs one callback, and the fibers of `tests.crash.simulation.threads`, which are the
broker's threads and run up to their next scheduling point: a call of the operating system, a lock,
a wait. Time is virtual, and advances only when no actor can run.

A fiber is a thread of the operating system that waits for the baton. Generators would need other
product code, and greenlets another dependency; the switch costs 10 us, and the baton changes hands
only where the seed decides so.
"""

import asyncio
import heapq
import random
import threading
import zlib
from collections import deque
from contextvars import copy_context

# A run with more steps counts as stuck.
_MOST_STEPS = 400_000


class EndedError(BaseException):
    """The broker's process is dead: code that runs in it ends at once and has no further effect."""


class StuckError(Exception):
    """No actor can ever run again, or the run does not end."""


class _Handle:
    """A scheduled callback; what `asyncio` needs of its own handle, at a third of the cost."""

    __slots__ = ("_when", "args", "callback", "cancelled", "context")

    def __init__(self, callback, args, context, when=0.0):
        self.callback = callback
        self.args = args
        self.context = context or copy_context()
        self.cancelled = False
        self._when = when

    def cancel(self):
        self.cancelled = True
        self.callback = self.args = self.context = None

    def when(self):
        return self._when


class _NumberedTask(asyncio.Task):
    """A task whose hash is its number and not its address, so that sets have a fixed order."""

    def __init__(self, coro, number, *, loop, context):
        self._number = number
        super().__init__(coro, loop=loop, name="task", context=context)

    def __hash__(self):
        return self._number

    def __eq__(self, other):
        return self is other


class Loop(asyncio.AbstractEventLoop):
    """An event loop without sockets, in virtual time; `life` is the process that it belongs to.

    Where `numbered`, sets of its tasks are ordered by creation.
    """

    def __init__(self, kernel, life=None, *, numbered=False):
        self._kernel = kernel
        self._numbered = numbered
        self.life = life
        self.ready = deque()
        self.closed = False
        # Kept until the end of the run: a task that is collected runs its `finally`.
        self._tasks = []

    def call_soon(self, callback, *args, context=None):
        handle = _Handle(callback, args, context)
        if not self.closed:
            self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self._kernel.now_s + delay, callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        handle = _Handle(callback, args, context, when)
        self._kernel.add_timer(when, self, handle)
        return handle

    def time(self):
        return self._kernel.now_s

    def create_future(self):
        return asyncio.Future(loop=self)

    def create_task(self, coro, *, name=None, context=None):
        if self._numbered:
            task = _NumberedTask(coro, len(self._tasks), loop=self, context=context)
        else:
            task = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor, func, *args):
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    def get_debug(self):
        return False

    def is_running(self):
        return True

    def is_closed(self):
        return self.closed

    def call_exception_handler(self, context):
        error = context.get("exception")
        if not self.closed and error is not None and not isinstance(error, EndedError):
            self._kernel.fail(error)

    def close(self):
        """Stops the loop, and drops the callbacks that wait."""
        self.closed = True
        self.ready.clear()


class Kernel:
    """Runs actors until `finish` is called or one of them fails.

    Args:
        seed: Decides the order of all turns.
        switch_chance: Chance that a scheduling point hands over the baton.
        step_s: Duration of a turn; with 0 the clock advances only when nothing can run.
    """

    def __init__(self, seed, switch_chance=0.3, step_s=0.0):
        self._step_s = step_s
        self._random = random.Random(f"{seed}/schedule").random
        self._switch_chance = switch_chance
        self._timers = []
        self._timer_count = 0
        self._finished = False
        self._running = None
        self.now_s = 1000.0
        self.steps = 0
        self.digest = 0
        self.failure = None
        self.loops = []
        self.runnable = []
        # Work of thread pools that runs in one step, without a fiber of its own.
        self.jobs = []
        # The locks that the main thread holds: such work runs in the main thread, and may need one.
        self.held = 0
        self.fiber = None
        # The process lifetime whose code runs; None for the clients.
        self.life = None
        # Set when a process lifetime ends; it is then buried between two steps.
        self.life_ended = False
        # A process lifetime that is stalled for a while.
        self.frozen = None
        # Called at a step where a process lifetime may end.
        self.alarm_step = _MOST_STEPS
        self.alarm = None
        # Called when a client has read an answer.
        self.on_answer = lambda: None
        self.main = threading.Lock()
        self.main.acquire()

    # --- time and choice ---

    def random(self):
        """A number from 0 to 1, from the generator of the schedule."""
        return self._random()

    def at(self, when, callback, *args):
        """Calls back at a virtual time, outside of all actors."""
        self.add_timer(when, None, (callback, args))

    def add_timer(self, when, loop, handle):
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, loop, handle))

    def note(self, data):
        """Adds bytes to the digest of the run."""
        self.digest = zlib.crc32(data, self.digest)

    def fail(self, error):
        """Ends the run with an error, unless one was set before."""
        if self.failure is None:
            self.failure = error

    def finish(self):
        """Ends the run."""
        self._finished = True

    # --- the schedule ---

    def run(self, on_end):
        """Runs to the end, calling back after each end of a process; raises what failed."""
        try:
            while not self._finished and self.failure is None:
                self.step()
                if self.life_ended:
                    self.life_ended = False
                    on_end()
        finally:
            asyncio._set_running_loop(None)
        if self.failure is not None:
            raise self.failure

    def step(self):
        """Runs one turn of one actor, or advances the clock."""
        actors = [loop for loop in self.loops if loop.ready]
        if self.runnable:
            actors += self.runnable
        if self.jobs:
            actors += self.jobs
        if self.frozen is not None:
            actors = [each for each in actors if each.life is not self.frozen]
        self.now_s += self._step_s
        if self._timers and (not actors or self._timers[0][0] <= self.now_s):
            actors.append(None)
        elif not actors:
            raise StuckError("nothing will ever happen any more")
        at = int(self._random() * len(actors)) if len(actors) > 1 else 0
        self._count()
        actor = actors[at]
        if actor is None:
            self._advance()
        elif type(actor) is Loop:
            self._turn(actor)
        elif actor in self.jobs:
            self._work(actor)
        else:
            self.resume(actor)

    def run_until(self, done):
        """Runs fibers and the clock alone until `done()`, for a main thread that waits for one."""
        while not done():
            if self.life is not None and self.life.ended:
                raise EndedError
            if self.runnable:
                self.resume(self.runnable[int(self._random() * len(self.runnable))])
            elif self.jobs and not self.held:
                self._work(self.jobs[0])
            else:
                self._advance()

    def point(self):
        """A scheduling point: the running fiber may hand over, and its process may end."""
        fiber, life = self.fiber, self.life
        if life is not None:
            if life.ended:
                raise EndedError
            self._count()
            if life.ended:
                raise EndedError
        if fiber is not None and self._random() < self._switch_chance and self._others_ready():
            self.runnable.append(fiber)
            fiber.hand_over()

    def _others_ready(self):
        """Whether any actor but the running fiber could go on."""
        return (
            self.runnable
            or self.jobs
            or (self._timers and self._timers[0][0] <= self.now_s)
            or any(loop.ready for loop in self.loops)
        )

    def resume(self, fiber):
        """Gives the baton to a fiber until the fiber hands it back."""
        self.runnable.remove(fiber)
        before, self.life = self.life, fiber.life
        self.fiber = fiber
        fiber.worker.lock.release()
        self.main.acquire()
        self.fiber, self.life = None, before

    def wake(self, fiber):
        """Makes a waiting fiber runnable."""
        if fiber.waits:
            fiber.waits = False
            self.runnable.append(fiber)

    def _work(self, job):
        self.jobs.remove(job)
        before, self.life = self.life, job.life
        try:
            job.run()
        except EndedError:
            pass
        finally:
            self.life = before

    def _count(self):
        self.steps += 1
        if self.steps >= self.alarm_step:
            if self.steps >= _MOST_STEPS:
                raise StuckError(f"{self.steps} steps, and no end")
            self.alarm()

    def _turn(self, loop):
        handle = loop.ready.popleft()
        if handle.cancelled:
            return
        self.life = loop.life
        if self._running is not loop:
            self._running = loop
            asyncio._set_running_loop(loop)
        try:
            handle.context.run(handle.callback, *handle.args)
        except EndedError:
            pass
        except BaseException as error:  # noqa: BLE001 - it fails the world
            self.fail(error)
        finally:
            self.life = None

    def _advance(self):
        """Runs the next timer, and moves the clock to its time."""
        if not self._timers:
            raise StuckError("nothing will ever happen any more")
        when, _, loop, handle = heapq.heappop(self._timers)
        if loop is None:
            self.now_s = max(self.now_s, when)
            callback, args = handle
            callback(*args)
        elif not loop.closed and not handle.cancelled:
            self.now_s = max(self.now_s, when)
            loop.ready.append(handle)
