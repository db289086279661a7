"""A NATS server for all tests of the folder, with one stream for each."""

from functools import partial

import pytest

from tests.fakes.certificates import Authority
from tests.wire.links.jetstream.nats_server import PASSWORD, NatsServer, Stream
from tests.wire.links.managed.node import password_file


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
def linked(links, edge, tmp_path):
    """Returns a function that starts a link between the edge's queue and a stream."""

    def start(stream, **keys):
        return links(
            **{
                "edge": edge.endpoint,
                "protocol": "nats",
                "broker": f"nats://link@127.0.0.1:{stream.server.port}",
                "password_file": password_file(tmp_path, PASSWORD),
                "queue": "q",
                "prefetch": 50,
                **keys,
            }
        )

    return start


@pytest.fixture
def inbound(linked):
    """Returns a function that starts a link from a stream to the edge's queue."""

    def start(stream, **keys):
        return linked(stream, **{"direction": "in", "broker_queue": f"{stream.name}/link", **keys})

    return start


@pytest.fixture
def outbound(linked):
    """Returns a function that starts a link from the edge's queue to a stream."""

    def start(stream, **keys):
        keys = {"broker_queue": stream.name, "routing_key": f"{stream.name}.x", **keys}
        return partial(linked, direction="out")(stream, **keys)

    return start
