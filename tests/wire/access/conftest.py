"""A broker with one user for each choice of permissions and role, and a master user."""

import itertools
import json
from contextlib import contextmanager
from typing import NamedTuple

import grpc
import pytest

import ackq_broker
from ackq.errors import UnauthenticatedError
from ackq.v1 import admin_pb2, consuming_pb2, links_pb2, publishing_pb2, sessions_pb2
from ackq_broker.embedding import EmbeddedBroker
from ackq_broker.security import users, users_editor
from ackq_broker.security.name_pattern import NamePattern
from tests.eventually import eventually
from tests.fakes.raw_client import Client, error_of, holder
from tests.fakes.raw_link import RawLink

_FILES = (admin_pb2, consuming_pb2, links_pb2, publishing_pb2, sessions_pb2)
# The methods of all services by their full names.
METHODS = {
    method.full_name: method
    for file in _FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
# The only names on which the table's users have permissions.
PATTERN = "q|x|dead"
AUDIT = " ackq.audit "
PERMISSIONS = users.PERMISSIONS
ROLES = users.ROLES


class Kind(NamedTuple):
    """A user of the table: its permissions on `PATTERN`, and its role."""

    permissions: frozenset
    role: str

    @property
    def name(self):
        return "-".join((*(each for each in PERMISSIONS if each in self.permissions), self.role))


KINDS = [
    Kind(frozenset(chosen), role)
    for count in range(len(PERMISSIONS) + 1)
    for chosen in itertools.combinations(PERMISSIONS, count)
    for role in ROLES
]


def add_user(path, name, *, role="none", configure="", write="", read="", **limits):
    """Adds a user to a users file; returns its token."""
    token = users.new_token()
    patterns = map(NamePattern, (configure, write, read))
    users_editor.add(
        path,
        users.User(name, (users.hash_of(token),), role, *patterns, users.UserLimits(**limits)),
    )
    return token


def add_master(path):
    """Adds a user with all permissions; returns its token."""
    return add_user(path, "master", role="operator", **all_on(".*"))


def all_on(pattern):
    """All permissions on the names of a pattern."""
    return dict.fromkeys(PERMISSIONS, pattern)


class Guarded(NamedTuple):
    """A broker with users: its process, the users file, and the token of each by name."""

    broker: EmbeddedBroker
    path: object
    tokens: dict

    def client(self, name):
        """Raw stubs as a user; "" has no token."""
        return Client(self.broker.endpoint, self.tokens.get(name))

    def knows(self, name):
        """Whether the broker knows a user by its token."""
        with self.client(name) as client:
            try:
                client.admin.ServerInfo(admin_pb2.ServerInfoRequest())
            except grpc.RpcError as failed:
                error, _ = error_of(failed)
                if isinstance(error, UnauthenticatedError):
                    return False
                raise
            return True

    def audit(self):
        """The entries of the audit log."""
        lines = self.broker.log_file.read_text().rpartition("\n")[0].splitlines()
        return [json.loads(each.partition(AUDIT)[2]) for each in lines if AUDIT in each]

    @contextmanager
    def changes(self):
        """Waits until the broker has read the users file after a change in the block.

        It asks the log: a login that fails waits for longer each time (A3).
        """

        def times_read():
            return self.broker.log_file.read_text().count(" of them new; ")

        before = times_read()
        yield
        eventually("the users", lambda: times_read() > before)

    def add(self, name, **rights):
        """Adds a user, and waits until the broker knows it."""
        with self.changes():
            self.tokens[name] = add_user(self.path, name, **rights)
        eventually(f"the user {name}", lambda: self.knows(name))


@contextmanager
def with_master(folder, **env):
    """Runs a broker with a master, to which further users can be added."""
    path = folder / "users.toml"
    tokens = {"master": add_master(path)}
    env["ACKQ_BROKER_USERS"] = str(path)
    with ackq_broker.embedded(folder / "data", sync=False, env=env) as broker:
        yield Guarded(broker, path, tokens)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A broker with all users of the table; `world` adds queues, exchange, session and writer."""
    with with_master(tmp_path_factory.mktemp("guarded")) as found:
        for kind in KINDS[:-1]:
            rights = dict.fromkeys(kind.permissions, PATTERN)
            found.tokens[kind.name] = add_user(found.path, kind.name, role=kind.role, **rights)
        found.add(KINDS[-1].name, role=KINDS[-1].role, **all_on(PATTERN))
        yield found


@pytest.fixture
def guarded(tmp_path):
    """A broker for one test, with a master; the test adds further users."""
    with with_master(tmp_path) as found:
        yield found


class World(NamedTuple):
    """The objects that the requests of the table name."""

    reader: object
    lease: object
    held_link: str


@pytest.fixture(scope="module")
def world(table):
    """Creates queues `q` and `dead`, exchange `x`, session `s` with a lease of `q`, and writer `w`.

    Also links `l`, of `q`, and one that holds a message of it, so that it cannot be removed. And
    session `past`, which reads `dead` and retains a batch of queue `hidden`, which nobody may read.
    """
    reader = holder()
    with table.client("master") as master:
        master.declare("dead")
        master.declare("q")
        master.admin.DeclareExchange(
            admin_pb2.DeclareExchangeRequest(exchange="x", type=2, durable=True)
        )
        master.publish(b"a", b"b", b"c")
        _, lease = master.open(reader, max_messages=2)
        master.commit(target="queue/q")
        RawLink(master).close()
        held = RawLink(master, link="held")
        held.deliver(held.subscribe(), 1, [1])
        held.stored()
        held.close()
        past, fields = holder(), {"session": "past", "retain_ms": 10**9}
        incarnation = master.advance(past, queues=["dead"], **fields).incarnation
        for at, queue in enumerate(("hidden", "dead")):
            master.declare(queue)
            master.publish(b"x", queue=queue)
            master.advance(past, incarnation=incarnation, start_tag=at, queues=[queue], **fields)
        master.advance(past, incarnation=incarnation, start_tag=2, queues=["dead"], **fields)
    return World(reader, lease, "held")
