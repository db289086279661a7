"""The environments of K9: commands of connector/docs/spark.md, with names and paths replaced.

Each moves messages from queue to queue: source, sink, the sink's commit, and the last batch
acknowledged.
"""

from collections import Counter

import pytest

import ackq_broker
from ackq.client import Admin
from tests.ports import free_ports
from tests.spark import cluster
from tests.spark.ledger import counted, ids, once, publish

pytestmark = [pytest.mark.servers, pytest.mark.timeout(cluster.TEST_S)]

SECTION = cluster.readme_section("Where it runs")
(RELAY,) = cluster.readme_blocks(SECTION, "python")
COMMANDS = cluster.readme_blocks(SECTION, "bash")
IDS = ids(0, 99)
SPECULATING = cluster.ROOT / "tests/spark/speculating.py"
SORTING = cluster.ROOT / "tests/spark/sorting.py"
DYING = cluster.ROOT / "tests/spark/dying.py"
SPECULATION = " ".join(
    f"--conf spark.speculation{setting}"
    for setting in ("=true", ".interval=100ms", ".quantile=0.4", ".minTaskRuntime=500ms")
)


def the(part):
    """The one command of the README that contains this part."""
    (found,) = [command for command in COMMANDS if part in command]
    return found


@pytest.fixture(scope="module")
def standalone(tmp_path_factory):
    with cluster.standalone(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture(scope="module")
def connect(tmp_path_factory):
    """The README's command for a program, at a server that the README's command has started."""
    (port,) = map(str, free_ports(1))
    folder = tmp_path_factory.mktemp("connect")
    *_, client = the("SPARK_REMOTE").splitlines()
    with cluster.connect_server(the("SparkConnectServer"), folder, port):
        yield client.replace("SERVER:15002", f"{cluster.HOSTS[0]}:{port}")


class Bench:
    """Two queues with a program that moves one to the other, and a queue for rejected messages.

    Each of several brokers has these queues, and its part of the messages.
    """

    def __init__(self, folder, *brokers):
        self.folder = folder
        self.endpoint = ",".join(each.endpoint for each in brokers)
        self.admins = [Admin(each.endpoint) for each in brokers]
        self.admin = self.admins[0]
        part = len(IDS) // len(brokers)
        for first, (broker, admin) in enumerate(zip(brokers, self.admins, strict=True)):
            for queue in ("invoices", "refused"):
                admin.declare_queue(queue)
            admin.declare_queue("orders", dead_letter_queue="refused")
            publish(broker.endpoint, "orders", IDS[first * part :][:part])

    def run(self, command, **names):
        """Runs a command of the README, with this test's names in place of the README's."""
        self._run(command, self.folder, cluster.environment(), names)

    def submit(self, command, standalone):
        """Runs a command on a standalone cluster, from its driver's folder."""
        names = {"MASTER:7077": standalone.master, "connector/": f"{cluster.ROOT}/connector/"}
        env = cluster.environment(PYSPARK_PYTHON=str(standalone.python), PYTHONPATH="")
        self._run(command, standalone.driver, env, names)

    def _run(self, command, folder, env, names):
        (folder / "relay.py").write_text(RELAY)
        names |= {"BROKER:5775": self.endpoint, "/data/checkpoint": f"{self.folder}/cp"}
        for name, here in names.items():
            command = command.replace(name, here)
        cluster.shell(command, folder, env)

    def check(self, refused=(), *, told=True, last=0):
        """Checks that no message is lost or doubled, and none waits for an acknowledgement."""
        good = [name for name in IDS if name not in refused]
        for queue, names in (("invoices", good), ("refused", refused)):
            found = [counted(admin, queue) for admin in self.admins]
            assert sum(found, Counter()) == once(names)
        infos = [admin.queue("orders") for admin in self.admins]
        assert [(info.ready, info.unacked) for info in infos] == [(0, 0)] * len(infos)
        assert sum(info.accepted for info in infos) == len(good)
        for admin in self.admins:
            (session,) = admin.sessions()
            assert session.floor_tag == len(IDS) // len(self.admins)
            assert (session.batch_id, bool(session.query_id)) == (last, told)


@pytest.fixture
def bench(broker, tmp_path):
    return Bench(tmp_path, broker)


@pytest.fixture
def edges(broker, tmp_path):
    """Two brokers, which a program has as one endpoint."""
    with ackq_broker.embedded(tmp_path / "second" / "data") as second:
        yield Bench(tmp_path, broker, second)


def test_local(bench):
    """K9: the README's program in one local process."""
    bench.run(the("'local[*]' relay.py"))
    bench.check()


def test_local_cluster(edges):
    """K9, S12, K14: the README's program for two brokers, executors in processes of their own."""
    edges.run(the("local-cluster["))
    edges.check()


def test_standalone(bench, standalone):
    """K9: the README's program on two hosts without ackq, which is sent as a zip."""
    bench.submit(the("--py-files"), standalone)
    bench.check()


def test_an_executor_is_killed_between_edges(edges, standalone):
    """S12, K14, K2: from two edges to two edges on two hosts; an executor dies with a batch."""
    again = edges.folder / "again"
    again.mkdir()
    command = the("--py-files").replace("relay.py", str(DYING))
    edges.submit(f"{command.rstrip()} {again}", standalone)
    tasks = {path.name for path in again.iterdir()}
    assert "1-0" in tasks
    assert {task[:2] for task in tasks} == {"1-"}
    edges.check(last=2)
    written = [admin.queue("invoices") for admin in edges.admins]
    assert [(info.ready > 0, info.staged) for info in written] == [(True, 0)] * 2


def test_the_commands_of_a_standalone_cluster(standalone):
    """The README starts a cluster with the commands that these tests use."""
    started = the("deploy.master").splitlines()
    assert [line.split()[:2] for line in started] == [
        list(cluster.MASTER_COMMAND),
        list(cluster.WORKER_COMMAND),
    ]
    assert started[1].endswith("spark://MASTER:7077")
    assert standalone.master


def test_connect(bench, connect):
    """K9: Spark Connect with ackq at the server, and the unchanged program at the client."""
    bench.run(connect)
    bench.check()


def test_settling_at_edges_through_connect(edges, connect):
    """S12, K14, K8, K9: outcomes and a guarded write, each at the edge of its message.

    In a foreachBatch that runs at the server, with the session named.
    """
    edges.run(connect.replace("relay.py", str(SORTING)))
    # With Spark Connect, the tasks of a foreachBatch do not know their query and batch.
    edges.check(IDS[1::2], told=False)


def test_speculation(bench, standalone):
    """K3, S6: of two attempts of a task that have both sent all rows, only one counts.

    In a query that writes, and in one that rejects the messages written by the first.
    """
    bench.admin.declare_queue("checked", dead_letter_queue="refused")
    attempts = bench.folder / "attempts"
    attempts.mkdir()
    command = the("--py-files").replace("relay.py", f"{SPECULATION} {SPECULATING}")
    command = command.replace("invoices", "checked")
    bench.submit(f"{command.rstrip()} {attempts}", standalone)
    parts = ("0-0", "0-1", "1-0")
    each = {f"{query}-{part}" for query in ("settle", "write") for part in parts}
    # A busy machine may make Spark run the other partition twice as well.
    more = {"settle-1-1", "write-1-1"}
    assert {path.name for path in attempts.iterdir()} - more == each
    # The dead letters are the written messages, each once.
    assert counted(bench.admin, "refused") == once(IDS)
    for queue, accepted in (("orders", len(IDS)), ("checked", 0)):
        info = bench.admin.queue(queue)
        assert (info.ready, info.unacked, info.staged, info.accepted) == (0, 0, 0, accepted)
    sessions = bench.admin.sessions()
    assert [(each.floor_tag, each.batch_id) for each in sessions] == [(len(IDS), 1)] * 2
    assert all(each.query_id for each in sessions)
