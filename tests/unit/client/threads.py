"""The client's threads and log records in a test process."""

import asyncio
import inspect
import subprocess
import sys
import textwrap
import threading
import weakref

from ackq import errors
from tests.eventually import SOON_S


def client_threads():
    """The client's threads, without the workers of a broker's engine in this process."""
    return [
        each
        for each in threading.enumerate()
        if each.name.startswith("ackq-") and not each.name.startswith("ackq-worker")
    ]


def no_threads_are_left():
    """Waits for the end of the client's threads."""
    for thread in client_threads():
        thread.join(SOON_S)
    assert client_threads() == []


def refusals(*calls):
    """The messages of those calls that a callback may not make."""
    found = []
    for call in calls:
        try:
            call()
        except errors.PreconditionFailedError as error:
            found.append(str(error))
    return found


def logged(caplog):
    """The log records of ackq, without those of the server in this process."""
    return [each for each in caplog.records if each.name.startswith("ackq")]


def refuse_threads(monkeypatch, name):
    """Makes threads of this name fail to start, but no others."""
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


def run_program(program):
    """Runs a client program in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SOON_S, check=True)


class LoopThread:
    """An event loop on a thread of its own, for a client of coroutines with blocking methods."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="loop", daemon=True)
        self._thread.start()

    def submit(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work):
        return self.submit(work).result()

    def end(self):
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(SOON_S)
            self.loop.close()


class Blocking:
    """An object on an event loop, whose coroutines are blocking methods.

    Attributes:
        it: The object.
    """

    def __init__(self, it, thread):
        self.it = it
        self._thread = thread

    def __getattr__(self, name):
        found = getattr(self.it, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *given, **options: self._thread.run(found(*given, **options))


class OnLoop(Blocking):
    """A client of coroutines on an event loop of its own, with blocking methods."""

    def __init__(self, make):
        thread = LoopThread()
        weakref.finalize(self, thread.end)
        super().__init__(thread.run(self._made(make)), thread)

    async def _made(self, make):
        return make()

    def close(self, timeout_s=None):
        self._end(self.it.close(timeout_s))

    def _end(self, work):
        try:
            self._thread.run(work)
        finally:
            self._thread.end()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._end(self.it.__aexit__(*error))
