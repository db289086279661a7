"""The broker's threads as fibers, of which the scheduler runs one at a time.

It replaces what `threading`, `queue` and `concurrent.futures` offer.

A main thread that waits (the event loop of the broker, for a lock) runs the fibers meanwhile. In a
process that has ended every wait raises `EndedError`, so that its threads unwind.
"""

import concurrent.futures
import threading
from collections import deque
from functools import partial
from typing import NamedTuple

from tests.crash.simulation.kernel import EndedError


class _Worker:
    """A thread of the operating system that runs one fiber after another."""

    idle = []  # noqa: RUF012 - of all worlds

    def __init__(self):
        self.lock = threading.Lock()
        self.lock.acquire()
        self.fiber = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            self.lock.acquire()
            fiber = self.fiber
            try:
                if not fiber.life.ended:
                    fiber.run()
            except EndedError:
                pass
            except BaseException as error:  # noqa: BLE001 - it fails the world
                if not fiber.life.ended:
                    fiber.kernel.fail(error)
            fiber.end()
            main = fiber.kernel.main
            # No reference to a world stays here after its end.
            fiber = self.fiber = None
            self.idle.append(self)
            main.release()


class Fiber:
    """A thread of a simulated process."""

    __slots__ = ("done", "kernel", "life", "on_end", "run", "waits", "worker")

    def __init__(self, kernel, life, run):
        self.kernel = kernel
        self.life = life
        self.run = run
        self.done = self.waits = False
        self.on_end = []
        self.worker = _Worker.idle.pop() if _Worker.idle else _Worker()
        self.worker.fiber = self
        life.fibers.append(self)
        kernel.runnable.append(self)

    def hand_over(self):
        """Gives the baton back, and returns when this fiber gets it again."""
        worker = self.worker
        self.kernel.main.release()
        worker.lock.acquire()
        if self.life.ended:
            raise EndedError

    def wait(self):
        """Waits for `Kernel.wake`."""
        if self.life.ended:
            raise EndedError
        self.waits = True
        self.hand_over()

    def end(self):
        self.done = True
        self.life.fibers.remove(self)
        for callback in self.on_end:
            callback()


class _Job(NamedTuple):
    """Pool work that runs in one step."""

    life: object
    run: object


class Threads:
    """The names of the three modules that the product uses, for one world.

    Args:
        kernel: The scheduler.
        inline_chance: Chance that a job of a pool of several threads runs in one step, as a fiber
        costs more.
    """

    def __init__(self, kernel, inline_chance):
        self._kernel = kernel
        bound = {"kernel": kernel}
        self.Lock = type("Lock", (_Lock,), bound)
        self.Condition = type("Condition", (_Condition,), {**bound, "lock_of": self.Lock})
        self.Event = type("Event", (_Event,), {**bound, "condition_of": self.Condition})
        self.Thread = type("Thread", (_Thread,), bound)
        self.SimpleQueue = type("SimpleQueue", (_SimpleQueue,), {"event_of": self.Condition})
        self.Future = type("Future", (_Future,), bound)
        self.ThreadPoolExecutor = type(
            "ThreadPoolExecutor",
            (_Executor,),
            {**bound, "future_of": self.Future, "inline_chance": inline_chance},
        )


class _Lock:
    def __init__(self):
        self._held = False
        self._waiting = deque()

    def acquire(self):
        kernel = self.kernel
        kernel.point()
        while self._held:
            fiber = kernel.fiber
            if fiber is None:
                kernel.run_until(lambda: not self._held)
            else:
                self._waiting.append(fiber)
                fiber.wait()
        self._held = True
        kernel.held += kernel.fiber is None
        return True

    def release(self):
        self._held = False
        self.kernel.held -= self.kernel.fiber is None
        while self._waiting:
            self.kernel.wake(self._waiting.popleft())

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()


class _Condition:
    def __init__(self):
        self._lock = self.lock_of()
        self._waiting = deque()

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()

    def wait(self, timeout=None):
        """Whether the condition was notified in time; only fibers may wait."""
        fiber, kernel = self.kernel.fiber, self.kernel
        assert fiber is not None, "the main thread does not wait for conditions"
        token = [fiber]
        self._waiting.append(token)
        self._lock.release()
        if timeout is not None:
            kernel.at(kernel.now_s + timeout, self._expire, token)
        fiber.wait()
        notified = token[0] is None
        token[0] = None
        self._lock.acquire()
        return notified

    def wait_for(self, predicate, timeout=None):
        ends_s = None if timeout is None else self.kernel.now_s + timeout
        while not (found := predicate()):
            left_s = None if ends_s is None else ends_s - self.kernel.now_s
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
        return found

    def notify(self):
        while self._waiting:
            token = self._waiting.popleft()
            if token[0] is not None:
                fiber, token[0] = token[0], None
                self.kernel.wake(fiber)
                return

    def notify_all(self):
        while self._waiting:
            self.notify()

    def _expire(self, token):
        if token[0] is not None:
            self._waiting.remove(token)
            self.kernel.wake(token[0])


class _Event:
    def __init__(self):
        self._changed = self.condition_of()
        self._set = False

    def is_set(self):
        return self._set

    def set(self):
        with self._changed:
            self._set = True
            self._changed.notify_all()

    def clear(self):
        self._set = False

    def wait(self, timeout=None):
        with self._changed:
            if not self._set:
                self._changed.wait(timeout)
        return self._set


class _Thread:
    def __init__(self, target, **_):
        self._target = target
        self._fiber = None

    @property
    def ident(self):
        return None if self._fiber is None else id(self._fiber)

    def start(self):
        self._fiber = Fiber(self.kernel, self.kernel.life, self._target)

    def join(self):
        fiber, kernel = self.kernel.fiber, self.kernel
        if fiber is None:
            kernel.run_until(lambda: self._fiber.done)
        elif not self._fiber.done:
            self._fiber.on_end.append(lambda: kernel.wake(fiber))
            fiber.wait()


class _SimpleQueue:
    def __init__(self):
        self._changed = self.event_of()
        self._items = deque()

    def __class_getitem__(cls, _):
        return cls

    def put(self, item):
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def get(self):
        with self._changed:
            while not self._items:
                self._changed.wait()
            return self._items.popleft()


class _Future(concurrent.futures.Future):
    def result(self, timeout=None):  # noqa: ARG002 - none is given
        self._wait()
        return super().result(0)

    def exception(self, timeout=None):  # noqa: ARG002 - none is given
        self._wait()
        return super().exception(0)

    def _wait(self):
        kernel = self.kernel
        fiber = kernel.fiber
        if fiber is None:
            kernel.run_until(self.done)
        elif not self.done():
            self.add_done_callback(lambda _: kernel.wake(fiber))
            fiber.wait()


class _Executor:
    def __init__(self, max_workers, _name=""):
        self._most = self._free = max_workers
        self._workers = self._in_one_step = 0
        self._jobs = deque()
        self._idle = self.future_of()
        self._idle.set_result(None)

    def submit(self, work, *args):
        future = self.future_of()
        kernel = self.kernel
        if self._most > 1 and kernel.random() < self.inline_chance:
            self._in_one_step += 1
            kernel.jobs.append(_Job(kernel.life, partial(self._run_here, future, work, args)))
            return future
        self._jobs.append((future, work, args))
        if self._free:
            self._free -= 1
            if self._idle.done():
                self._idle = self.future_of()
            self._workers += 1
            Fiber(self.kernel, self.kernel.life, self._run)
        return future

    def shutdown(self, *, cancel_futures=False):
        if cancel_futures:
            while self._jobs:
                self._jobs.popleft()[0].cancel()
        if self._in_one_step:
            self.kernel.run_until(lambda: not self._in_one_step)
        self._idle.result()

    def _run_here(self, future, work, args):
        try:
            _run(future, work, args)
        finally:
            self._in_one_step -= 1

    def _run(self):
        try:
            while self._jobs:
                future, work, args = self._jobs.popleft()
                _run(future, work, args)
                self.kernel.point()
        finally:
            self._free += 1
            self._workers -= 1
            if not self._workers:
                self._idle.set_result(None)


def _run(future, work, args):
    """Resolves a future with the result of its work, unless it was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work(*args)
    except EndedError:
        raise
    except BaseException as error:  # noqa: BLE001 - it is the future's
        future.set_exception(error)
    else:
        future.set_result(result)
