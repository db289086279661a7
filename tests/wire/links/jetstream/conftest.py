"""A NATS server for all tests of the folder, with one stream for each."""

import pytest

from tests.fakes.certificates import Authority
from tests.wire.links.jetstream.nats_server import NatsServer, Stream


@pytest.fixture(scope="session")
def nats_authority(tmp_path_factory):
    """The authority that signs the servers' certificates."""
    return Authority(tmp_path_factory.mktemp("authority") / "ca")


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory, nats_authority):
    """A running server."""
    server = NatsServer(tmp_path_factory.mktemp("nats") / "node", nats_authority)
    server.start()
    try:
        yield server.ready()
    finally:
        server.kill()


@pytest.fixture
def stream(nats_server):
    """A stream of the test's own."""
    return Stream(nats_server)


@pytest.fixture
def remote(stream):
    """The remote stream of scenarios."""
    return stream
