import json

import pytest
from click.testing import CliRunner

from ackq.cli.commands import ackq
from ackq.cli.failure import ExitStatus
from ackq.client import Admin, Session, close_channels, holder
from ackq.v1 import sessions_pb2
from ackq_broker import embedded


@pytest.fixture(scope="module")
def endpoint():
    """One real broker for the tests of a module; each names its own queues."""
    with embedded(sync=False) as running:
        yield running.endpoint
        close_channels()


@pytest.fixture
def admin(endpoint):
    return Admin(endpoint)


@pytest.fixture
def open_lease(endpoint):
    """Leases what is ready in a queue to a session that has the queue's name."""

    def opened(name):
        session = Session(endpoint)
        opening = {"session": name, "queues": [name], "holder": holder("test")}
        incarnation = session.advance(sessions_pb2.AdvanceRequest(**opening)).incarnation
        session.advance(sessions_pb2.AdvanceRequest(**opening, incarnation=incarnation))

    return opened


def read(result, status=0):
    """What a command printed for programs, out of its envelope."""
    assert result.exit_code == status, result.output
    document = json.loads(result.stdout)
    assert document.keys() == {"version", "data"}
    assert document["version"] == 1
    return document["data"]


def failed(result, status=ExitStatus.REFUSED):
    """What a command that ended with this status said."""
    assert result.exit_code == status, result.output
    return result.stderr


@pytest.fixture
def run(endpoint):
    """Runs `ackq` with arguments against the broker."""

    def invoke(*arguments, **options):
        return CliRunner().invoke(ackq, ["--endpoint", endpoint, *arguments], **options)

    return invoke
