"""Administration, channels and the health check: what is sent, and what errors become."""

import socket
import subprocess
import sys

import grpc
import pytest

from ackq import errors
from ackq.client import Admin, Security, close_channels, grpc_channel, wait_ready
from ackq.client.connection import retry
from ackq.v1 import admin_pb2, consuming_pb2, sessions_pb2
from ackq.wire import columns
from tests.fakes.scripted_broker import FakeBroker
from tests.unit.client.blocks.test_decoding import content, runs


@pytest.fixture
def admin(broker):
    with Admin(broker.endpoint) as client:
        yield client


def test_declare_sends_every_property(broker, admin):
    """Q1: the properties are part of the queue's identity."""
    admin.declare_queue("q", durable=False, max_length=5, overflow="drop-head", delivery_limit=3)
    assert broker.admin.queues["q"].properties == admin_pb2.QueueProperties(
        max_length=5, overflow=admin_pb2.OVERFLOW_DROP_HEAD, delivery_limit=3
    )
    assert not admin.declare_queue("q").created


def test_redrive_goes_on_until_the_range_is_done(broker, admin):
    """Q6: a record is bounded; the calls keep to the number and to the first one's end."""
    answers = ((3, 7, True), (3, 4, True), (1, 3, False))
    broker.admin.redrives.extend(
        admin_pb2.RedriveResponse(messages=messages, left=left, more=more, last_position=90)
        for messages, left, more in answers
    )
    done = admin.redrive("dead", first_position=5, max_messages=7)
    assert (done.messages, done.left) == (7, 3)
    asked = [
        (each.first_position, each.last_position, each.max_messages)
        for each in broker.admin.redriven
    ]
    assert asked == [(5, 0, 7), (5, 90, 4), (5, 90, 1)]


def test_unknown_choice_names_the_known_ones(admin):
    with pytest.raises(errors.InvalidArgumentError, match="one of reject-publish, drop-head"):
        admin.declare_queue("q", overflow="explode")
    with pytest.raises(errors.InvalidArgumentError, match="one of direct, fanout, topic"):
        admin.declare_exchange("x", "headers")


def test_queue_by_name(broker, admin):
    broker.admin.queues["q"] = admin_pb2.QueueInfo(queue="q", ready=4)
    assert admin.queue("q").ready == 4
    assert [each.queue for each in admin.queues()] == ["q"]


def test_brokers_error_arrives_whole(broker, admin):
    """Code, message and fields cross the wire."""
    broker.admin.failures.append(errors.QueueNotFoundError("There is no queue 'q'.", queue="q"))
    with pytest.raises(errors.QueueNotFoundError) as failure:
        admin.queue("q")
    assert (str(failure.value), failure.value.fields) == ("There is no queue 'q'.", {"queue": "q"})


def test_call_the_server_does_not_have(admin):
    """An older broker, or none at all."""
    with pytest.raises(errors.UnsupportedError, match="does not offer this call"):
        admin.info()


def test_no_broker_names_the_endpoint():
    with pytest.raises(errors.BrokerUnavailableError, match=r"127\.0\.0\.1:1") as failure:
        Admin("127.0.0.1:1").purge_queue("q")
    assert "refused" in failure.value.fields["cause"]


def test_browse_gives_positions(broker, admin):
    """Q5: all columns when none are named."""
    broker.admin.browses = [
        admin_pb2.BrowseResponse(header=runs((3, 2)), block=content([b"a", b"b"]))
    ]
    (batch,) = admin.browse("q", first_position=3, max_messages=2)
    assert batch.schema.names == list(columns.BROWSED)
    assert batch.column("position").to_pylist() == [3, 4]
    (request,) = broker.admin.browse_requests
    assert (request.queue, request.first_position, request.max_messages) == ("q", 3, 2)
    (batch,) = admin.browse("q", columns=["leased", "body"])
    assert batch.schema.names == ["leased", "body"]


def test_settle_session_sends_ranges(broker, admin):
    """S8: an operator rejects or releases tags of a lease."""
    answer = sessions_pb2.SettleSessionResponse(settled=3, dead_lettered=3, epoch=4)
    broker.sessions.operations.append(answer)
    done = admin.settle_session("s", "rejected", [(5, 5), (7, 8)], reason="bad", fence=True)
    assert done == answer
    assert broker.sessions.operation_requests == [
        sessions_pb2.SettleSessionRequest(
            session="s",
            outcome=consuming_pb2.OUTCOME_REJECTED,
            first_tag=[5, 7],
            last_tag=[5, 8],
            reason="bad",
            fence=True,
        )
    ]
    with pytest.raises(errors.InvalidArgumentError, match="first tag"):
        admin.settle_session("s", "released", [(-1, 1)])
    with pytest.raises(errors.InvalidArgumentError, match="accepted, failed"):
        admin.settle_session("s", "nacked", [(1, 1)])


def test_browse_lease_gives_delivery_tags(broker, admin):
    """S8: all columns when none are named; the range and the limit go to the broker."""
    broker.sessions.lease_frames = [
        sessions_pb2.BrowseLeaseResponse(header=runs((3, 2)), block=content([b"a", b"b"]))
    ]
    (batch,) = admin.browse_lease("s", first_tag=3, last_tag=9, max_messages=2)
    assert batch.schema.names == list(columns.DELIVERED)
    assert batch.column("delivery_tag").to_pylist() == [3, 4]
    (request,) = broker.sessions.operation_requests
    assert (request.session, request.first_tag, request.last_tag) == ("s", 3, 9)
    assert request.max_messages == 2
    with pytest.raises(errors.SchemaError, match="colour"):
        admin.browse_lease("s", columns=["colour"])


def test_channel_is_shared_by_the_process(broker):
    """One channel per endpoint and security, until it is closed."""
    first = grpc_channel(broker.endpoint)
    assert grpc_channel(broker.endpoint, Security()) is first
    close_channels()
    assert grpc_channel(broker.endpoint) is not first


def test_fork_makes_its_own_channel(broker):
    """A channel made before a fork is never used after it."""
    program = f"""
import os
from ackq.client import grpc_channel
parent = grpc_channel({broker.endpoint!r})
child = os.fork()
if not child:
    os._exit(0 if grpc_channel({broker.endpoint!r}) is not parent else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True)


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ("localhost", "has no port"),
        ("localhost:", "has no port"),
        ("localhost:http", "has no port"),
        ("", "has no port"),
        ("localhost:\u00b2", "has no port"),
        ("localhost:65537", "has no port between 1 and 65535"),
        ("localhost:0", "has no port between 1 and 65535"),
        (":5775", "has no host"),
        ("http://localhost:5775", "is a URL"),
        (None, "is a NoneType"),
    ],
)
def test_endpoint_is_host_and_port(endpoint, problem):
    """What gRPC would misread is refused: it takes port 65537 for port 1."""
    with pytest.raises(errors.InvalidArgumentError, match=f"{problem}; write it as host:port"):
        grpc_channel(endpoint)


@pytest.mark.parametrize("endpoint", ["[::1]:5775", "unix:/tmp/x", "dns:///localhost:5775"])
def test_endpoint_may_have_another_form(endpoint):
    grpc_channel(endpoint)
    close_channels()


def test_admin_outlives_its_channel(broker):
    """A closed channel, or a parent's after a fork, is not used again."""
    admin = Admin(broker.endpoint)
    assert admin.queues() == []
    close_channels()
    assert admin.queues() == []
    assert list(admin.browse("q")) == []


def test_broker_that_is_back_is_found_at_once(broker):
    """However long it was gone: gRPC's own back-off would refuse calls for seconds more."""
    admin = Admin(broker.endpoint)
    broker.close()
    for _ in range(4):  # about 3 s
        with pytest.raises(errors.BrokerUnavailableError):
            admin.queues()
    back = FakeBroker(int(broker.endpoint.rpartition(":")[2]))
    assert admin.queues() == []
    close_channels()
    back.close()


def test_security_is_checked_at_once(tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="TLS is off"):
        Security(ca="ca.pem")
    with pytest.raises(errors.InvalidArgumentError, match="both the client's certificate and its"):
        Security(tls=True, cert="c.pem")
    missing = str(tmp_path / "ca.pem")
    with pytest.raises(errors.InvalidArgumentError, match="cannot be read: No such file"):
        grpc_channel("localhost:1", Security(tls=True, ca=missing))


def test_wait_ready_returns_when_the_broker_serves():
    """The standard health check; a broker that starts is asked until it serves."""
    answers = iter([b"\x08\x02", b"\x08\x01"])
    server = grpc.server(_pool())
    check = grpc.unary_unary_rpc_method_handler(lambda _request, _context: next(answers))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    wait_ready(f"127.0.0.1:{port}", 10)
    assert next(answers, None) is None
    close_channels()
    server.stop(0).wait()


def test_wait_ready_gives_up():
    with pytest.raises(errors.BrokerUnavailableError, match=r"127\.0\.0\.1:1 could not be reached"):
        wait_ready("127.0.0.1:1", 0.1)


def test_wait_ready_keeps_its_bound_when_nothing_is_said(monkeypatch):
    """A listener that accepts and stays silent takes all of the time once, not twice."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
        waits = []
        monkeypatch.setattr(retry.Patience, "wait_or_raise", lambda *told: waits.append(told))
        with pytest.raises(errors.BrokerUnavailableError, match=r"not be reached for 0\.5 s"):
            wait_ready(endpoint, 0.5)
    assert waits == []
    close_channels()


def test_importing_security_needs_no_grpc():
    """Spark imports options in processes that never talk to a broker."""
    program = (
        "import sys; from ackq.client import Security;"
        "raise SystemExit('grpc' in sys.modules or 'pyarrow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_every_public_name_exists():
    """The lazy table and the modules agree."""
    import ackq.client

    assert [name for name in ackq.client.__all__ if not hasattr(ackq.client, name)] == []


@pytest.mark.parametrize(("old", "new"), [("channel", "grpc_channel"), ("Hold", "LivenessStream")])
def test_old_names_work_and_say_the_new_one(old, new):
    """Programs that were written before the renaming go on."""
    import ackq.client

    with pytest.warns(DeprecationWarning, match=f"'{new}'"):
        assert getattr(ackq.client, old) is getattr(ackq.client, new)


def _pool():
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(2)
