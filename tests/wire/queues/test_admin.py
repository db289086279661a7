"""Administration over the wire, by raw stubs, against a real broker process."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from ackq import __version__, errors
from ackq.v1 import admin_pb2
from tests.fakes.raw_client import TIMEOUT_S, error_of, holder


def refused(call, request):
    with pytest.raises(grpc.RpcError) as failed:
        call(request, timeout=TIMEOUT_S)
    return error_of(failed.value)


def exchange(client, name, kind):
    return client.admin.DeclareExchange(
        admin_pb2.DeclareExchangeRequest(exchange=name, type=kind, durable=True), timeout=TIMEOUT_S
    )


def bind(client, name, queue, key):
    return client.admin.Bind(
        admin_pb2.BindRequest(exchange=name, queue=queue, binding_key=key), timeout=TIMEOUT_S
    )


def test_declare_is_idempotent(client):
    """Q1: the same declare again gives the same queue; its id is never reused."""
    first = client.declare("a", max_length=5)
    again = client.declare("a", max_length=5)
    assert (first.created, again.created, again.queue_id) == (True, False, first.queue_id)
    with pytest.raises(grpc.RpcError) as failed:
        client.declare("a", max_length=6)
    error, status = error_of(failed.value)
    assert (type(error), status) == (errors.PropertiesDifferError, "FAILED_PRECONDITION")
    assert error.fields["queue"] == "a"
    client.delete("a")
    assert client.declare("a").queue_id > first.queue_id


def test_passive_declare(client):
    """Q1: a passive declare creates nothing, and fails for a missing queue."""
    request = admin_pb2.DeclareQueueRequest(queue="q", passive=True)
    assert client.admin.DeclareQueue(request, timeout=TIMEOUT_S).created is False
    request.queue = "nowhere"
    error, status = refused(client.admin.DeclareQueue, request)
    assert (type(error), status) == (errors.QueueNotFoundError, "NOT_FOUND")


def test_bind_and_unbind_are_idempotent(client):
    """Q2: repeating a bind or an unbind is a success that says so."""
    exchange(client, "x", admin_pb2.EXCHANGE_TYPE_DIRECT)
    assert [bind(client, "x", "q", "k").created for _ in range(2)] == [True, False]
    request = admin_pb2.UnbindRequest(exchange="x", queue="q", binding_key="k")
    removed = [client.admin.Unbind(request, timeout=TIMEOUT_S).removed for _ in range(2)]
    assert removed == [True, False]


def test_delete_an_exchange(client):
    """Q2: an exchange is deleted with its bindings; deleting a missing one is an error."""
    exchange(client, "x", admin_pb2.EXCHANGE_TYPE_DIRECT)
    bind(client, "x", "q", "k")
    request = admin_pb2.DeleteExchangeRequest(exchange="x")
    assert client.admin.DeleteExchange(request, timeout=TIMEOUT_S).bindings == 1
    assert type(refused(client.admin.DeleteExchange, request)[0]) is errors.ExchangeNotFoundError


def test_an_exchange_needs_a_type(client):
    """Q2: declaring an exchange without a type is refused as invalid."""
    request = admin_pb2.DeclareExchangeRequest(exchange="x")
    assert type(refused(client.admin.DeclareExchange, request)[0]) is errors.InvalidArgumentError


def test_purge_and_delete_are_answered_with_counts(client):
    """Q4: a purge removes ready messages only; a delete refuses a queue in use unless forced."""
    client.publish(b"a", b"b", b"c")
    client.open(holder(), max_messages=1)
    purge = client.admin.PurgeQueue(admin_pb2.PurgeQueueRequest(queue="q"), timeout=TIMEOUT_S)
    assert purge.purged == 2
    request = admin_pb2.DeleteQueueRequest(queue="q")
    assert type(refused(client.admin.DeleteQueue, request)[0]) is errors.InUseError
    request.force = True
    deleted = client.admin.DeleteQueue(request, timeout=TIMEOUT_S)
    assert (deleted.ready, deleted.unacked) == (0, 1)


def test_plan_browse(client):
    """Q5: the chunks of a browse plan cover the queue exactly once."""
    client.publish(b"a", b"b")
    client.publish(b"c")
    request = admin_pb2.PlanBrowseRequest(queue="q")
    chunks = client.admin.PlanBrowse(request, timeout=TIMEOUT_S).chunks
    found = [
        body
        for chunk in chunks
        for body in client.browse(
            first_position=chunk.first_position, last_position=chunk.last_position
        )[0]
    ]
    assert found == [b"a", b"b", b"c"]
    assert sum(chunk.messages for chunk in chunks) == 3


def test_an_unknown_queue_is_named(client):
    """Q5: an error about a missing queue names it."""
    error, status = refused(client.admin.PlanBrowse, admin_pb2.PlanBrowseRequest(queue="nowhere"))
    assert (type(error), status, error.fields["queue"]) == (
        errors.QueueNotFoundError,
        "NOT_FOUND",
        "nowhere",
    )
    with pytest.raises(grpc.RpcError) as failed:
        client.browse("nowhere")
    assert type(error_of(failed.value)[0]) is errors.QueueNotFoundError


def test_server_info(client):
    """Q8: `ServerInfo` has the broker's history, and the sequence that is on disk."""
    info = client.admin.ServerInfo(admin_pb2.ServerInfoRequest(), timeout=TIMEOUT_S)
    assert (info.version, info.sync_mode, len(info.history_id)) == (__version__, "fdatasync", 32)
    assert info.synced >= info.sequence > 0
    assert (info.history_cause, info.held_back) == ("", 0)


def test_accepting_a_history_that_nothing_waits_for(client):
    """Q8: accepting a history when nothing waits for it is a success."""
    info = client.admin.ServerInfo(admin_pb2.ServerInfoRequest(), timeout=TIMEOUT_S)
    accepted = client.admin.AcceptHistory(admin_pb2.AcceptHistoryRequest(), timeout=TIMEOUT_S)
    assert accepted == admin_pb2.AcceptHistoryResponse(history_id=info.history_id)


def test_bytes_that_are_no_request(client):
    """I6: bytes that are no request are refused with a status, without a traceback."""
    call = client.channel.unary_unary("/ackq.v1.AdminService/ListQueues")
    assert type(refused(call, b"\xff\xff\xff")[0]) is errors.MalformedBlockError


def test_health(client):
    """Design 4: gRPC health is served for the broker and for each service."""
    stub = health_pb2_grpc.HealthStub(client.channel)
    for name in ("", "ackq.v1.ConsumingService", "ackq.v1.SessionsService"):
        request = health_pb2.HealthCheckRequest(service=name)
        answer = stub.Check(request, timeout=TIMEOUT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection(client):
    """Design 4: gRPC reflection names every service."""
    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=TIMEOUT_S)
    names = {service.name for service in answer.list_services_response.service}
    assert names >= {
        "ackq.v1.AdminService",
        "ackq.v1.ConsumingService",
        "ackq.v1.LinksService",
        "ackq.v1.PublishingService",
        "ackq.v1.SessionsService",
        "grpc.health.v1.Health",
    }
