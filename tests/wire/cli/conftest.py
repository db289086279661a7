import json
import subprocess
import sys

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


@pytest.fixture
def orders(admin, request):
    """A queue of the test's own."""
    admin.declare_queue(request.node.name)
    return request.node.name


def command(endpoint, *arguments):
    """The command `ackq` as a process."""
    program = "from ackq.cli import main; main()"
    return [sys.executable, "-c", program, "--endpoint", endpoint, *arguments]


def ended(arguments, **options):
    """Runs a process to its end, with its outputs as texts."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.run(arguments, check=False, timeout=120, **given)


def ackq_on(endpoint):
    """Returns a function that runs `ackq` with arguments against a broker."""

    def invoke(*arguments, **options):
        return CliRunner().invoke(ackq, ["--endpoint", endpoint, *arguments], **options)

    return invoke


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
    return ackq_on(endpoint)
