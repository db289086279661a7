import pytest

from ackq.client import close_channels
from tests.fakes.scripted_broker import FakeBroker
from tests.unit.client.threads import no_threads_are_left


@pytest.fixture(autouse=True)
def no_threads_of_others():
    """Waits for client threads of earlier tests, so that no test counts them as its own."""
    no_threads_are_left()


@pytest.fixture
def broker():
    fake = FakeBroker()
    yield fake
    close_channels()
    fake.close()
