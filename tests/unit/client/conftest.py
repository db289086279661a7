import pytest

from ackq.client import close_channels
from tests.unit.client.fake_broker import FakeBroker


@pytest.fixture
def broker():
    fake = FakeBroker()
    yield fake
    close_channels()
    fake.close()
