"""A publisher of a scripted broker, and a script that never answers it."""

from ackq.client import Publisher
from tests.fakes import scripted_broker as fake

SOON_S = 10


def publisher(broker, **options):
    return Publisher(broker.endpoint, routing_key="orders", **options)


def never_answer(requests):
    next(requests)
    yield fake.opened()
    yield from fake.ignore_all(requests)
