import pytest

import ackq_broker
from ackq.v1 import admin_pb2, sessions_pb2
from tests.fakes.raw_client import Client


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory):
    """A broker process for the tests of a module that neither kill nor restart it."""
    with ackq_broker.embedded(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def client(shared_broker):
    """Raw stubs on the shared broker, with a durable queue `q`; everything goes afterwards."""
    with Client(shared_broker.endpoint) as raw:
        raw.declare()
        yield raw
        for info in raw.sessions.ListSessions(sessions_pb2.ListSessionsRequest()).sessions:
            raw.sessions.ReleaseSession(
                sessions_pb2.ReleaseSessionRequest(session=info.session, fence=True)
            )
        for info in raw.admin.ListExchanges(admin_pb2.ListExchangesRequest()).exchanges:
            raw.admin.DeleteExchange(admin_pb2.DeleteExchangeRequest(exchange=info.exchange))
        for info in raw.admin.ListQueues(admin_pb2.ListQueuesRequest()).queues:
            raw.admin.DeleteQueue(admin_pb2.DeleteQueueRequest(queue=info.queue, force=True))


@pytest.fixture
def own(broker):
    """Raw stubs on a broker of the test's own, which it may kill, with a durable queue `q`."""
    with Client(broker.endpoint) as raw:
        raw.declare()
        yield raw
