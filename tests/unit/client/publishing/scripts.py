"""Publishers of a scripted broker, on threads and on a loop, and a script without answers."""

import asyncio
import threading

from ackq.client import AsyncPublisher, Publisher
from ackq.errors import WindowFullError
from tests.eventually import SOON_S
from tests.fakes import scripted_broker as fake

# Longer than a test takes: everything goes out at a flush, or at the close.
LINGER_MS = 1_000_000


class OnLoop:
    """An `AsyncPublisher` on an event loop of its own, with the methods of a `Publisher`."""

    def __init__(self, endpoint, **options):
        self.out = AsyncPublisher(endpoint, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop", daemon=True)
        self._thread.start()

    def publish(self, *arguments, **options):
        return self._run(self._publish(*arguments, **options))

    async def _publish(self, *arguments, **options):
        while True:
            try:
                return self.out.publish_nowait(*arguments, **options)
            except WindowFullError:
                await self.out.drain()

    def publish_batch(self, *arguments, **options):
        batch = self.out.publish_batch(*arguments, **options)
        return asyncio.run_coroutine_threadsafe(batch, self._loop)

    def flush(self, timeout_s=None):
        self._run(self.out.flush(timeout_s))

    def close(self, timeout_s=None):
        try:
            self._run(self.out.close(timeout_s))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(SOON_S)
            self._loop.close()

    def __getattr__(self, name):
        return getattr(self.out, name)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(None if kind is None else 0)

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


# The kinds of publisher, for tests of both.
KINDS = {"threads": Publisher, "asyncio": OnLoop}


def publisher(broker, *, kind=Publisher, **options):
    return kind(broker.endpoint, routing_key="orders", **options)


def never_answer(requests):
    next(requests)
    yield fake.opened()
    yield from fake.ignore_all(requests)
