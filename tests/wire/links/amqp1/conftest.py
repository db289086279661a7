"""Artemis and Qpid, started once each, with one queue for each test."""

import pytest

from tests import servers
from tests.fakes.certificates import Authority
from tests.wire.links.amqp1.artemis import Artemis
from tests.wire.links.amqp1.qpid import Qpid
from tests.wire.links.amqp1.servers import QUEUES

_SERVERS = {each.name: each for each in (Artemis, Qpid)}


@pytest.fixture(scope="session")
def amqp1_authority(tmp_path_factory):
    """The authority that signs the brokers' certificates."""
    return Authority(tmp_path_factory.mktemp("authority") / "ca")


def _started(name, tmp_path_factory, authority):
    """Starts a broker; without Maven Central tests are skipped, except in the gate."""
    from tests.wire.links.amqp1.peer import Peer

    server = _SERVERS[name](tmp_path_factory.mktemp(name) / "node", authority)
    queues = iter(QUEUES)
    try:
        server.__enter__()
    except RuntimeError as error:
        servers.absent(name, str(error).partition("\n")[0])
    try:
        yield lambda queue=None: Peer(server, queue or next(queues))
    finally:
        server.stop()


@pytest.fixture(scope="session")
def artemis_queues(tmp_path_factory, amqp1_authority):
    """Returns a function that gives queues of an Artemis node."""
    yield from _started("artemis", tmp_path_factory, amqp1_authority)


@pytest.fixture(scope="session")
def qpid_queues(tmp_path_factory, amqp1_authority):
    """Returns a function that gives queues of a Qpid node."""
    yield from _started("qpid", tmp_path_factory, amqp1_authority)


@pytest.fixture(params=_SERVERS)
def peer(request):
    """A queue of each broker in turn."""
    return request.getfixturevalue(f"{request.param}_queues")()


@pytest.fixture
def artemis(artemis_queues):
    """A queue of Artemis."""
    return artemis_queues()


@pytest.fixture
def qpid(qpid_queues):
    """A queue of Qpid."""
    return qpid_queues()


@pytest.fixture
def remote(peer):
    """The remote queue of scenarios."""
    return peer
