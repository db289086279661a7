"""The brokers under test, each started once, and the rule table printed at the end."""

from contextlib import ExitStack, closing

import grpc
import pytest

import ackq_broker
from ackq.client import close_channels
from ackq.errors import InUseError
from ackq.v1 import admin_pb2, links_pb2, sessions_pb2
from tests import servers
from tests.eventually import eventually
from tests.fakes.raw_client import Client, error_of, holder
from tests.fakes.relay import Relay
from tests.wire.bench import Bench
from tests.wire.brokers import ackq as ackq_target
from tests.wire.brokers import rabbitmq as rabbitmq_target
from tests.wire.brokers import rabbitmq_server
from tests.wire.table import BROKERS, Table

_table = Table()


@pytest.fixture
def broker(broker):
    """The test's own broker, to which no client keeps a connection afterwards."""
    yield broker
    close_channels()


@pytest.fixture
def churning(tmp_path):
    """A broker with small segments and backups, and queue `churn` (see `churn.py`)."""
    env = {"ACKQ_BROKER_SEGMENT_SIZE": "16MiB", "ACKQ_BROKER_BACKUP_DIR": str(tmp_path / "b")}
    with ackq_broker.embedded(tmp_path / "data", env=env) as running:
        with Client(running.endpoint) as raw:
            raw.declare("churn")
        yield running
    close_channels()


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory):
    """A broker process for the tests of a module that neither kill nor restart it."""
    with ackq_broker.embedded(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def client(shared_broker):
    """Raw stubs on the shared broker, with a durable queue `q`; all is deleted afterwards."""
    with Client(shared_broker.endpoint) as raw:
        raw.declare()
        yield raw
        for info in raw.sessions.ListSessions(sessions_pb2.ListSessionsRequest()).sessions:
            raw.sessions.ReleaseSession(
                sessions_pb2.ReleaseSessionRequest(session=info.session, fence=True)
            )
        for info in raw.links.ListLinks(links_pb2.ListLinksRequest()).links:
            request = links_pb2.RemoveLinkRequest(link=info.link, forget=True)
            eventually("the end of the link", lambda request=request: _removed(raw, request))
        for info in raw.admin.ListExchanges(admin_pb2.ListExchangesRequest()).exchanges:
            raw.admin.DeleteExchange(admin_pb2.DeleteExchangeRequest(exchange=info.exchange))
        for info in raw.admin.ListQueues(admin_pb2.ListQueuesRequest()).queues:
            raw.admin.DeleteQueue(admin_pb2.DeleteQueueRequest(queue=info.queue, force=True))


def _removed(raw, request):
    """Whether a link could be removed, which is refused while its process counts as live."""
    try:
        return raw.links.RemoveLink(request) is not None
    except grpc.RpcError as refused:
        error, _ = error_of(refused)
        assert isinstance(error, InUseError)
        return False


@pytest.fixture
def relay_to():
    """Returns a function that makes relays to an endpoint, which end with the test."""
    with ExitStack() as relays:
        yield lambda endpoint: relays.enter_context(closing(Relay(endpoint)))
        close_channels()


@pytest.fixture
def reader():
    """The holder of a session."""
    return holder()


@pytest.fixture
def own(broker):
    """Raw stubs on a broker of the test's own, which it may kill, with a durable queue `q`."""
    with Client(broker.endpoint) as raw:
        raw.declare()
        yield raw


@pytest.fixture(scope="session")
def ackq_dialect(tmp_path_factory):
    """The ackq broker under test."""
    with ackq_target.target(tmp_path_factory.mktemp("ackq")) as dialect:
        yield dialect


@pytest.fixture(scope="session")
def rabbitmq_dialect(tmp_path_factory):
    """A RabbitMQ node of the suite's own."""
    if missing := rabbitmq_server.missing():
        servers.absent(missing, rabbitmq_server.REMEDY)
    with rabbitmq_target.target(tmp_path_factory.mktemp("rabbitmq") / "node") as dialect:
        yield dialect


@pytest.fixture(params=BROKERS)
def bench(request):
    """The bench of a scenario on each broker in turn: both must behave alike."""
    yield from _bench(request, request.getfixturevalue(f"{request.param}_dialect"))


@pytest.fixture
def ackq(request, ackq_dialect):
    """The bench of a scenario on the ackq broker, for rules that RabbitMQ does not have."""
    yield from _bench(request, ackq_dialect)


def _bench(request, dialect):
    bench = Bench(dialect, request.node.originalname)
    try:
        yield bench
    finally:
        bench.tidy()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Notes each test outcome in the rule table."""
    report = yield
    _table.add(item, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Fails a passed scenario that did not check every difference listed for it."""
    result = yield
    bench = pyfuncitem.funcargs.get("bench") or pyfuncitem.funcargs.get("ackq")
    if bench is not None:
        bench.judged()
    return result


def pytest_terminal_summary(terminalreporter):
    """Prints the rule table."""
    lines = list(_table.lines())
    if lines:
        terminalreporter.section("conformance: rule x broker")
        for line in lines:
            loud = "NOT RUN" in line or "FAILED" in line
            terminalreporter.line(line, red=loud, bold=loud)
