"""Publishers of a scripted broker, on threads and on a loop, and a script without answers."""

from itertools import chain

from ackq.client import AsyncPublisher, Publisher
from ackq.errors import WindowFullError
from tests.fakes import scripted_broker as fake
from tests.unit.client.threads import OnLoop

# Longer than a test takes: everything goes out at a flush, or at the close.
LINGER_MS = 1_000_000


class PublisherOnLoop(OnLoop):
    """An `AsyncPublisher`, with the methods of a `Publisher`."""

    def __init__(self, endpoint, **options):
        super().__init__(lambda: AsyncPublisher(endpoint, **options))

    def publish(self, *arguments, **options):
        return self._thread.run(self._publish(*arguments, **options))

    async def _publish(self, *arguments, **options):
        while True:
            try:
                return self.it.publish_nowait(*arguments, **options)
            except WindowFullError:
                await self.it.drain()

    def publish_batch(self, *arguments, **options):
        return self._thread.submit(self.it.publish_batch(*arguments, **options))


# The kinds of publisher, for tests of both.
KINDS = {"threads": Publisher, "asyncio": PublisherOnLoop}


def publisher(broker, *, kind=Publisher, **options):
    return kind(broker.endpoint, routing_key="orders", **options)


def never_answer(requests):
    next(requests)
    yield fake.opened()
    yield from fake.ignore_all(requests)


def holding(release):
    """A script that confirms nothing before the event is set."""
    return fake.answering(fake.held(release), confirmed)


def confirmed(request):
    return fake.confirm(fake.last_number(request))


def requests(broker):
    """The requests of all streams, in order."""
    return list(chain(*broker.publishing.streams))


def sent(broker):
    """The bodies that the broker received, in order."""
    return list(chain(*(fake.bodies(each) for each in fake.data_frames(requests(broker)))))
