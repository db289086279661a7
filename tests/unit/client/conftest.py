import pytest

from ackq.client import close_channels
from tests.fakes.scripted_broker import FakeBroker
from tests.unit.client.channels import SOON_S, channel_threads


@pytest.fixture(autouse=True)
def no_threads_of_others():
    """What an earlier test forsook ends in its own time; no test finds it among its own threads."""
    for thread in channel_threads():
        thread.join(SOON_S)


@pytest.fixture
def broker():
    fake = FakeBroker()
    yield fake
    close_channels()
    fake.close()
