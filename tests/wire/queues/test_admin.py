"""Administration over the wire, by raw stubs, against a real broker process."""

from grpc_health.v1 import health_pb2, health_pb2_grpc

from ackq import errors
from ackq.v1 import admin_pb2
from tests.fakes.raw_client import TIMEOUT_S, reflected, refused_with, refused_with_status

SERVICES = ("Admin", "Consuming", "Links", "Publishing", "Sessions")


def test_declarations(client):
    """Q1: a passive declare creates nothing, and fails for a missing queue.

    Declaring an exchange without a type is refused as invalid (Q2).
    """
    request = admin_pb2.DeclareQueueRequest(queue="q", passive=True)
    assert client.admin.DeclareQueue(request, timeout=TIMEOUT_S).created is False
    request.queue = "nowhere"
    refused_with_status(errors.QueueNotFoundError, "NOT_FOUND", client.admin.DeclareQueue, request)
    request = admin_pb2.DeclareExchangeRequest(exchange="x")
    refused_with(errors.InvalidArgumentError, client.admin.DeclareExchange, request)


def test_bytes_that_are_no_request(client):
    """I6: bytes that are no request are refused with a status, without a traceback."""
    call = client.channel.unary_unary("/ackq.v1.AdminService/ListQueues")
    refused_with(errors.MalformedBlockError, call, b"\xff\xff\xff")


def test_health_and_reflection(client):
    """Design 4: gRPC health is served for the broker and each service; reflection names them."""
    (answer,) = reflected(client)
    names = {service.name for service in answer.list_services_response.service}
    services = {f"ackq.v1.{name}Service" for name in SERVICES}
    assert names >= {*services, "grpc.health.v1.Health"}
    stub = health_pb2_grpc.HealthStub(client.channel)
    for name in ("", *services):
        request = health_pb2.HealthCheckRequest(service=name)
        answer = stub.Check(request, timeout=TIMEOUT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
