"""One managed RabbitMQ node for all modules, and queues of it."""

import uuid

import pytest

from tests import servers
from tests.fakes.certificates import Authority
from tests.wire.brokers import rabbitmq_server
from tests.wire.links.managed.node import ManagedNode, password_file


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """The managed node."""
    if missing := rabbitmq_server.missing():
        servers.absent(missing, rabbitmq_server.REMEDY)
    authority = Authority(tmp_path_factory.mktemp("managed") / "authority")
    with ManagedNode(tmp_path_factory.mktemp("managed") / "node", authority) as started:
        yield started


@pytest.fixture
def rabbitmq_port(node):
    """The managed node's port without TLS."""
    return node.port


@pytest.fixture
def user_of(node):
    """Returns a function that makes users of the node, which are deleted after the test."""
    made = []

    def make(**rights):
        made.append(f"user-{uuid.uuid4().hex[:8]}")
        node.add_user(made[-1], **rights)
        return made[-1]

    yield make
    for each in made:
        node.delete("users", each)


@pytest.fixture
def inbound(node, linked, tmp_path):
    """Returns a function that starts a link of a user from a remote queue to the edge's."""

    def start(queue, user, **keys):
        given = {"broker": f"amqp://{user}@{queue.endpoint}", "prefetch": 20}
        given["password_file"] = password_file(tmp_path)
        return linked(queue, direction="in", management=node.api, **given, **keys)

    return start
