import json

import pytest
from click.testing import CliRunner

from ackq.cli.commands import ackq
from ackq.cli.failure import ExitStatus
from ackq.client import Admin, close_channels
from ackq_broker import embedded


@pytest.fixture(scope="module")
def endpoint():
    """One real broker for the tests of a module; each test names its own queues."""
    with embedded(sync=False) as running:
        yield running.endpoint
        close_channels()


@pytest.fixture
def admin(endpoint):
    return Admin(endpoint)


def read(result, status=0):
    """The data of a command's JSON output, without its envelope."""
    assert result.exit_code == status, result.output
    document = json.loads(result.stdout)
    assert document.keys() == {"version", "data"}
    assert document["version"] == 1
    return document["data"]


def failed(result, status=ExitStatus.REFUSED):
    """The error output of a command, after checking its exit status."""
    assert result.exit_code == status, result.output
    return result.stderr


@pytest.fixture
def run(endpoint):
    """Returns a function that runs `ackq` with arguments against the broker."""

    def invoke(*arguments, **options):
        return CliRunner().invoke(ackq, ["--endpoint", endpoint, *arguments], **options)

    return invoke
