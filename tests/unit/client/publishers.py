"""Publishers for tests, and what they leave behind."""

import threading

from ackq.client import Publisher
from tests.fakes import scripted_broker as fake

SOON_S = 10


def publisher(broker, **options):
    return Publisher(broker.endpoint, routing_key="orders", **options)


def publisher_threads():
    return [each for each in threading.enumerate() if each.name.startswith("ackq-")]


def never_answer(requests):
    next(requests)
    yield fake.opened()
    for _ in requests:
        pass
