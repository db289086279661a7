"""A broker whose clock was once years ahead (Q8)."""

import asyncio
import re
import shutil
import time
from pathlib import Path

import pytest

from ackq.client import Admin, Publisher, close_channels
from ackq_broker import embedded
from ackq_broker.core import commands
from ackq_broker.engine import recovery
from tests.wire.brokers.streams import until
from tests.wire.operations.processes import run

# Written while the machine's clock was in the year 2100.
GOLDEN = Path(__file__).with_name("golden") / "format-2"
SOON_S = 30
SILENCE_S = 0.5


@pytest.fixture
def ahead(tmp_path):
    """A data directory with the time of the year 2100."""
    shutil.copytree(GOLDEN, tmp_path / "data")
    return tmp_path / "data"


def expires(broker):
    """Whether a message with a time to live of 50 ms goes within half a second."""
    with Admin(broker.endpoint) as admin, Publisher(broker.endpoint, routing_key="short") as out:
        admin.declare_queue("short")
        out.publish(b"a", ttl_ms=50).result(SOON_S)
        try:
            until(lambda: admin.queue("short").ready == 0, timeout_s=SILENCE_S)
        except AssertionError:
            return False
        finally:
            admin.delete_queue("short", force=True)
        return True


def test_a_clock_that_was_ahead_is_set_right(ahead):
    """Q8: its time stands still, it says so with the command, and that makes timers run again."""
    with embedded(ahead) as broker:
        log = broker.log_file.read_text()
        assert "the journal was written at 2100-" in log
        assert f"`ackq-broker set-clock --data {ahead}`" in log
        assert not expires(broker)
        status, _, errors = run("set-clock", "--data", ahead)
        assert (status, "in use by process" in errors) == (2, True)
        broker.stop()
        close_channels()
        status, said, errors = run("set-clock", "--data", ahead)
        assert status == 0, errors
        (seconds,) = re.findall(
            r"^the broker's time was set back by (\d+) s, to now$", said, re.MULTILINE
        )
        assert int(seconds) > 50 * 365 * 24 * 3600
        assert run("verify", ahead)[0] == 0
        status, said, _ = run("set-clock", "--data", ahead)
        assert (status, "nothing was changed" in said) == (0, True)
        broker.restart()
        assert expires(broker)
        with Admin(broker.endpoint) as admin:
            assert admin.queue("q").ready == 6
    close_channels()


def test_a_kill_behind_the_record(ahead, tmp_path):
    """Q8, Q7, I2: the record alone sets the time, before any snapshot has it."""

    async def set_and_die():
        async with recovery.offline(ahead) as recovered:
            await recovered.engine.call(commands.SetClock(time.time_ns() // 1000))
            shutil.copytree(ahead, tmp_path / "killed")

    asyncio.run(set_and_die())
    assert run("verify", tmp_path / "killed")[0] == 0
    with embedded(tmp_path / "killed") as broker:
        assert expires(broker)
        broker.kill()
        broker.restart()
        assert expires(broker)
        assert "the journal was written at" not in broker.log_file.read_text()
    close_channels()
