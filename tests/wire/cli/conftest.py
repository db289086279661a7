import pytest
from click.testing import CliRunner

from ackq.cli.commands import ackq
from ackq.client import Admin, close_channels
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
def run(endpoint):
    """Runs `ackq` with arguments against the broker."""

    def invoke(*arguments, **options):
        return CliRunner().invoke(ackq, ["--endpoint", endpoint, *arguments], **options)

    return invoke
