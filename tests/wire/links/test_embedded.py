"""An edge and its links run by a driver: `links.embedded`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ackq.client import Admin, close_channels
from ackq.errors import BrokerUnavailableError, InvalidArgumentError
from ackq_broker import links
from tests.eventually import equals
from tests.wire.links.conftest import EdgeQueue, eventually
from tests.wire.operations.processes import environment

DRIVER = """
import sys
from ackq_broker import links
data, port, queue = sys.argv[1:]
keys = {"name": "in", "direction": "in", "broker": f"amqp://127.0.0.1:{port}",
        "broker-queue": queue, "queue": "q", "ack": "stored"}
with links.embedded(data, [keys], temporary=True) as edge:
    print(edge.broker.pid, *(child.pid for child in edge._children), flush=True)
    sys.stdin.read()
"""


def inbound(rabbit, **keys):
    there = {"broker": rabbit.at(rabbit.endpoint), "broker-queue": rabbit.queue}
    return {"name": "in", "direction": "in", "queue": "q", "ack": "stored", **there, **keys}


@pytest.fixture(autouse=True)
def _closed():
    """Closes the channels to each test's edge."""
    yield
    close_channels()


def test_it_comes_and_goes_with_the_driver(classic, tmp_path):
    """L9, L22: edge and links run with the driver, in and out, and continue at the next start."""
    back = {"name": "out", "direction": "out", "ack": None}
    classic.publish(range(50))
    with links.embedded(tmp_path / "edge", [inbound(classic)], temporary=True) as edge:
        assert "in" in edge.guarantees[0]
        queue = EdgeQueue(edge.endpoint)
        eventually("the remote messages", lambda: queue.ready, equals(50))
        edge.check()
    assert classic.ready == 0
    keys = {name: value for name, value in inbound(classic, **back).items() if value}
    with links.embedded(tmp_path / "edge", [keys], temporary=True) as edge:
        eventually("the messages", lambda: EdgeQueue(edge.endpoint).total, equals(0))
    assert [int(properties.message_id) for properties, _ in classic.take()] == [*range(50)]


def test_links_of_a_file(classic, tmp_path):
    """L9: links of a file use this edge, whatever the file says; an existing queue is kept."""
    lines = [f"{name} = '{value}'" for name, value in inbound(classic).items()]
    config = tmp_path / "links.toml"
    config.write_text("\n".join(["[edge]", "endpoint = '127.0.0.1:1'", "[[link]]", *lines]))
    classic.publish(range(5))
    with links.embedded(tmp_path / "edge", config=config, temporary=True) as edge:
        eventually("the messages", lambda: EdgeQueue(edge.endpoint).ready, equals(5))
        with Admin(edge.endpoint) as admin:
            admin.declare_queue("q", passive=True)


def test_links_are_checked_before_anything_is_started():
    """L13: invalid keys, duplicate names and visible passwords are refused before any start."""
    given = {"name": "a", "direction": "in", "queue": "q", "broker-queue": "q", "ack": "stored"}
    visible = {"broker": "amqp://a:secret@localhost"}
    for wrong, message in [
        ([], "Give links"),
        ([{**given, "broker": "amqp://localhost"}] * 2, "Two links have the same name"),
        ([{**given, **visible}], "password, which every user"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message) as raised:
            links.embedded("/srv/edge", wrong, temporary=True)
        assert "secret" not in raised.value.message


def test_a_link_that_cannot_start_says_why(classic, tmp_path):
    """L17: a link that cannot start raises the reason with the remedy, and no process remains."""
    nowhere = inbound(classic, **{"broker-queue": "nowhere"})
    edge = links.embedded(tmp_path / "edge", [nowhere], temporary=True)
    with pytest.raises(BrokerUnavailableError, match=r"there is no 'nowhere'.*Declare it"):
        edge.__enter__()
    assert not edge.broker.alive()


def test_a_link_that_ends_is_told(classic, tmp_path):
    """L17: `check` raises when a link's process has ended."""
    with links.embedded(tmp_path / "edge", [inbound(classic)], temporary=True) as edge:
        (child,) = edge._children
        child.kill()
        child.wait()
        with pytest.raises(BrokerUnavailableError, match=r"ended \(killed by SIGKILL"):
            edge.check()


def test_nothing_outlives_a_driver_that_is_killed(classic, tmp_path):
    """L9: broker and links end by themselves when the driver is killed."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, tmp_path / "edge", str(classic.port), classic.queue],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    eventually("their end", lambda: not any(alive(pid) for pid in pids))


def alive(pid):
    """Whether a process runs; a zombie counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
