"""Administration over the wire, by raw stubs, against a real broker process."""

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from ackq import __version__, errors
from ackq.v1 import admin_pb2
from tests.fakes.raw_client import TIMEOUT_S, refused


def test_passive_declare(client):
    """Q1: a passive declare creates nothing, and fails for a missing queue."""
    request = admin_pb2.DeclareQueueRequest(queue="q", passive=True)
    assert client.admin.DeclareQueue(request, timeout=TIMEOUT_S).created is False
    request.queue = "nowhere"
    error, status = refused(client.admin.DeclareQueue, request)
    assert (type(error), status) == (errors.QueueNotFoundError, "NOT_FOUND")


def test_an_exchange_needs_a_type(client):
    """Q2: declaring an exchange without a type is refused as invalid."""
    request = admin_pb2.DeclareExchangeRequest(exchange="x")
    assert type(refused(client.admin.DeclareExchange, request)[0]) is errors.InvalidArgumentError


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


def test_server_info(client):
    """Q8: `ServerInfo` has the broker's history, and the sequence that is on disk."""
    info = client.admin.ServerInfo(admin_pb2.ServerInfoRequest(), timeout=TIMEOUT_S)
    assert (info.version, info.sync_mode, len(info.history_id)) == (__version__, "fdatasync", 32)
    assert info.synced >= info.sequence > 0
    assert (info.history_cause, info.held_back) == ("", 0)


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
