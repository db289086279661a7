"""A broker whose clock was years ahead once (Q8)."""

import shutil
from pathlib import Path

import pytest

from ackq.client import Admin, Channel, Publisher, close_channels
from ackq_broker import embedded
from tests.eventually import SOON_S, eventually

# Written while the machine's clock was in the year 2100.
GOLDEN = Path(__file__).with_name("golden") / "format-2"
# How long to wait for an expiry that must not come.
SILENCE_S = 0.5


@pytest.fixture
def ahead(tmp_path):
    """A data directory with the time of the year 2100."""
    shutil.copytree(GOLDEN, tmp_path / "data")
    return tmp_path / "data"


def expires(broker):
    """Whether a message with a TTL of 50 ms expires within half a second."""
    with Admin(broker.endpoint) as admin, Publisher(broker.endpoint, routing_key="short") as out:
        admin.declare_queue("short")
        out.publish(b"a", ttl_ms=50).result(SOON_S)
        try:
            eventually("the expiry", lambda: not admin.queue("short").ready, within_s=SILENCE_S)
        except AssertionError:
            return False
        finally:
            admin.delete_queue("short", force=True)
        return True


def test_a_clock_that_was_ahead(ahead):
    """Q8: a broker whose clock was ahead says so with the remedy, expires nothing, and delivers."""
    with embedded(ahead) as broker:
        log = broker.log_file.read_text()
        assert "the journal was written at 2100-" in log
        assert "start the broker on a new data directory" in log
        assert not expires(broker)
        with Channel(broker.endpoint) as channel:
            for message in channel.get("q", 6):
                message.accept().result(SOON_S)
        with Admin(broker.endpoint) as admin:
            assert (admin.queue("q").ready, admin.queue("q").unacked) == (0, 0)
    close_channels()
