"""Publishers of a scripted broker, on threads and on a loop, and a script without answers."""

from ackq.client import AsyncPublisher, Publisher
from ackq.errors import WindowFullError
from tests.fakes import scripted_broker as fake
from tests.unit.client.threads import LoopThread

# Longer than a test takes: everything goes out at a flush, or at the close.
LINGER_MS = 1_000_000


class OnLoop:
    """An `AsyncPublisher` on an event loop of its own, with the methods of a `Publisher`."""

    def __init__(self, endpoint, **options):
        self.out = AsyncPublisher(endpoint, **options)
        self._thread = LoopThread()

    def publish(self, *arguments, **options):
        return self._thread.run(self._publish(*arguments, **options))

    async def _publish(self, *arguments, **options):
        while True:
            try:
                return self.out.publish_nowait(*arguments, **options)
            except WindowFullError:
                await self.out.drain()

    def publish_batch(self, *arguments, **options):
        return self._thread.submit(self.out.publish_batch(*arguments, **options))

    def flush(self, timeout_s=None):
        self._thread.run(self.out.flush(timeout_s))

    def close(self, timeout_s=None):
        try:
            self._thread.run(self.out.close(timeout_s))
        finally:
            self._thread.end()

    def __getattr__(self, name):
        return getattr(self.out, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        try:
            self._thread.run(self.out.__aexit__(*error))
        finally:
            self._thread.end()


# The kinds of publisher, for tests of both.
KINDS = {"threads": Publisher, "asyncio": OnLoop}


def publisher(broker, *, kind=Publisher, **options):
    return kind(broker.endpoint, routing_key="orders", **options)


def never_answer(requests):
    next(requests)
    yield fake.opened()
    yield from fake.ignore_all(requests)
