"""One client asks for too much: others are served meanwhile, and the broker survives."""

import re
import resource
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import ackq_broker
from ackq import errors, limits
from ackq.v1 import admin_pb2
from ackq.wire import frame
from ackq_broker import server
from ackq_broker.service.transport import access
from tests.eventually import eventually, meanwhile
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import Client, delivered, publish_requests, refused, refused_with
from tests.wire.in_process import broker_here
from tests.wire.operations.processes import ANYWHERE, serving

# For a machine that may be busy: for a call, and for work that takes seconds on a quiet one.
LIMIT_S, LONG_S = 60, 900
MEMORY = limits.MIN_MEMORY_BYTES


def bind(client, exchange, kind, bindings):
    """Declares an exchange with (queue, binding key) pairs, and the queues."""
    client.admin.DeclareExchange(
        admin_pb2.DeclareExchangeRequest(exchange=exchange, type=kind, durable=True)
    )
    for queue, key in bindings:
        client.declare(queue)
        client.admin.Bind(admin_pb2.BindRequest(exchange=exchange, queue=queue, binding_key=key))


@contextmanager
def others_served(endpoint):
    """Publishes messages one by one during a test; yields the list of confirmed numbers."""
    confirmed = []

    def run(ended):
        with Client(endpoint) as client, client.publisher() as stream:
            for number in range(1, 1 << 20):
                if ended.is_set():
                    return
                stream.publish(number, b"x", routing_key="q")
                stream.confirmed(1, first=number)
                confirmed.append(number)

    with meanwhile(run):
        eventually("a confirm", lambda: confirmed, every_s=0.01)
        yield confirmed


def publish_keys(client, exchange, keys):
    """Publishes an empty message per key in one frame; returns the answers up to the last."""
    answers, answered = [], 0
    with client.publisher() as stream:
        block = encoded(body=[b""] * len(keys), routing_key=keys)
        stream.send_data(1, len(keys), block, exchange=exchange)
        while answered < len(keys):
            answer = stream.answer()
            answers.append(answer)
            last = max(answer.confirm.last_number, answer.nack.last_number)
            answered = max(answered, last)
    return answers


def test_many_keys_to_a_fanout(broker, own):
    """I5, I6: while 60,000 keys go to 300 queues another client is confirmed, in bounded memory."""
    bind(own, "fan", 2, [(f"q{number}", "") for number in range(300)])
    before = psutil.Process(broker.pid).memory_info().rss
    with others_served(broker.endpoint) as confirmed:
        (answer,) = publish_keys(own, "fan", [f"k{row}" for row in range(60_000)])
    assert answer.confirm.last_number == 60_000
    assert [own.queue(f"q{number}").ready for number in (0, 299)] == [60_000, 60_000]
    assert psutil.Process(broker.pid).memory_info().rss - before < 100 * limits.MIB
    assert confirmed


def test_hostile_topics_are_matched_between_other_work(broker, own):
    """Q2, I6: while keys take seconds to match, another client's publishes are confirmed.

    If matching were in one piece, only one confirm would come, which was already in flight.
    """
    patterns = ["#." + ".#.".join(f"{number:08b}") + ".#.end" for number in range(200)]
    bind(own, "top", 3, [("q", pattern) for pattern in patterns])
    words = [f"{row:014b}" for row in range(4_000)]
    with others_served(broker.endpoint) as confirmed:
        before = len(confirmed)
        answers = publish_keys(own, "top", [".".join(word) for word in words])
        after = len(confirmed)
    assert after - before > 5
    assert answers[-1].confirm.last_number == 4_000


def test_topics_with_too_many_words(own):
    """P8, Q2: a binding key of 22 words is refused; such a routing key is nacked alone."""
    bind(own, "top", 3, [("q", "#")])
    request = admin_pb2.BindRequest(exchange="top", queue="q", binding_key="#" + ".a" * 21)
    error = refused_with(errors.LimitError, own.admin.Bind, request)
    assert "22 words" in error.message
    nack, confirm = publish_keys(own, "top", ["a" + ".a" * 21, "a"])
    assert (nack.nack.last_number, confirm.confirm.last_number) == (1, 2)
    assert own.queue().ready == 1


@contextmanager
def descriptors(broker, more):
    """Limits the broker to `more` file descriptors above its current number."""
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    process = psutil.Process(broker.pid)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (process.num_fds() + more, hard))
    try:
        yield
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (hard, hard))


@pytest.mark.timeout(2 * LONG_S)
def test_a_journal_without_descriptors_waits(broker, own):
    """P8, I6: a journal that has no descriptor for a segment waits, and goes on later."""
    body = b"x" * (60 * limits.MIB)
    count = limits.SEGMENT_BYTES // len(body) + 2
    with own.publisher() as stream:
        with descriptors(broker, more=0):
            for number in range(1, count + 1):
                stream.publish(number, body, routing_key="q")
            said = "waits for a file descriptor"
            log = broker.log_file.read_text
            eventually("the wait", log, lambda text: said in text, within_s=LONG_S)
            assert broker.alive()
        assert stream.confirmed(count) == set(range(1, count + 1))
    assert own.queue().ready == count


def test_sockets_leave_descriptors_for_the_journal(tmp_path):
    """I6: a client that takes all descriptors it can get blocks neither journal nor others."""
    few = ("sh", "-c", 'ulimit -n 128; exec "$@"', "sh")
    with (
        serving(tmp_path / "data", *ANYWHERE, before=few) as (process, (endpoint,), _),
        ExitStack() as stack,
    ):
        client = stack.enter_context(Client(endpoint))
        client.declare()
        host, port = endpoint.split(":")
        sockets = [
            stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(300)
        ]
        body = b"x" * (60 * limits.MIB)
        for _ in range(limits.SEGMENT_BYTES // len(body) + 2):
            client.publish(body)
        assert psutil.Process(process.pid).num_fds() < 128 - 10
        assert "waits for a file descriptor" not in (tmp_path / "data.log").read_text()
        for each in sockets:
            each.close()
        with Client(endpoint) as other:
            other.admin.ServerInfo(admin_pb2.ServerInfoRequest(), wait_for_ready=True)
        assert process.poll() is None
        process.terminate()
        process.wait(LIMIT_S)


def test_silent_calls_are_ended(tmp_path, monkeypatch):
    """I6: a call of any method whose first request does not come is ended with a status."""
    # A call that is not silent has its request in time on a busy machine, too.
    monkeypatch.setattr(limits, "FIRST_REQUEST_MS", 3_000)

    with broker_here(tmp_path) as endpoint, Client(endpoint) as client:
        client.declare()
        stop = threading.Event()
        methods = (
            client.publishing.Publish,
            client.publishing.Stage,
            client.consuming.Consume,
            client.sessions.Hold,
            client.channel.stream_stream("/ackq.v1.AdminService/Browse", None, None),
            client.sessions.StageOutcomes.future,
            client.channel.stream_unary("/grpc.health.v1.Health/Check").future,
            client.channel.stream_stream("/grpc.health.v1.Health/Watch"),
        )
        for call in [method(iter(stop.wait, None)) for method in methods]:
            assert call.code() is grpc.StatusCode.UNAVAILABLE
            assert "did not come within 3000 ms" in call.details()
        stop.set()
        assert client.queue().ready == 0


def test_streams_leave_room_for_calls(tmp_path, monkeypatch):
    """I6: a stream above the broker's limit is refused, and unary calls are still answered."""
    monkeypatch.setattr(limits, "MAX_STREAMS", 5)

    with broker_here(tmp_path) as endpoint, ExitStack() as stack:
        client = stack.enter_context(Client(endpoint))
        for _ in range(5):
            stack.enter_context(client.publisher())
        with pytest.raises(grpc.RpcError) as failed, client.consume():
            pass
        assert "serves 5 streams, its limit" in failed.value.details()
        client.declare()


def test_silent_health_checks_leave_room_for_calls(tmp_path, monkeypatch):
    """A3, I6: health checks without a request, which need no token, keep no call out."""
    monkeypatch.setattr(limits, "MAX_STREAMS", 5)
    monkeypatch.setattr(server, "_CALLS", 5)
    monkeypatch.setattr(access, "_CHECKS", 4)

    with broker_here(tmp_path) as endpoint, Client(endpoint) as client:
        stop = threading.Event()
        check = client.channel.stream_unary("/grpc.health.v1.Health/Check")
        calls = [check.future(iter(stop.wait, None)) for _ in range(20)]
        try:
            eventually("the end of the oldest", lambda: sum(each.done() for each in calls) >= 16)
            client.declare()
            stub = health_pb2_grpc.HealthStub(client.channel)
            assert stub.Check(health_pb2.HealthCheckRequest()).status == 1
        finally:
            for call in calls:
                call.cancel()
            stop.set()


def test_compressed_requests_are_refused(own):
    """I6: compressed requests are refused, as 70 kB on the wire can be 70 MB in memory."""
    request = admin_pb2.ServerInfoRequest()
    with pytest.raises(grpc.RpcError) as failed:
        own.admin.ServerInfo(request, compression=grpc.Compression.Gzip)
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


def flood(client, frames):
    """Sends large frames as fast as the broker accepts them; returns the confirms, and the end."""
    confirmed = 0
    try:
        for answer in client.publishing.Publish(publish_requests(*frames), timeout=LONG_S):
            confirmed += answer.header.HasField("confirm")
    except grpc.RpcError as error:
        return confirmed, error.code().name
    return confirmed, None


def settle_next(channel, tags):
    """Accepts one more message, and adds its tag to `tags`."""
    while not (response := channel.response()).header.HasField("settled"):
        (message,) = delivered(response)
        tags.add(message.tag)
        channel.transport_ack(message.tag)
        channel.settle(message.tag)


def peak_bytes(pid):
    """The peak memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * limits.KIB


@pytest.mark.timeout(2 * LONG_S)
def test_many_streams_of_large_frames(tmp_path):
    """P14, I6: of 1 GB of frames at once memory holds what its limit allows; accepts go on."""
    with ackq_broker.embedded(
        tmp_path / "data", env={"ACKQ_BROKER_MEMORY_LIMIT": f"{MEMORY}"}
    ) as broker:
        with Client(broker.endpoint) as client:
            client.declare("sink", max_length=1, overflow=admin_pb2.OVERFLOW_DROP_HEAD)
            client.declare()
            client.publish(*[b"m"] * 10_000)
            info = client.admin.ServerInfo(admin_pb2.ServerInfoRequest())
            assert (info.memory_limit_bytes, info.blocked) == (MEMORY, "")
            assert 0 < info.memory_used_bytes < MEMORY
            settled = set()
            large = encoded(body=[b"x" * (8 * limits.MIB)], routing_key="sink")
            frames = [({"first_number": number, "rows": 1}, large) for number in (1, 2)]
            with client.consume() as channel, ExitStack() as stack, ThreadPoolExecutor(60) as pool:
                channel.subscribe(prefetch=1)
                clients = [stack.enter_context(Client(broker.endpoint)) for _ in range(4)]
                floods = [pool.submit(flood, clients[each % 4], frames) for each in range(60)]
                while not all(each.done() for each in floods):
                    settle_next(channel, settled)
            peak = peak_bytes(broker.pid)
        confirmed, ends = zip(*(each.result() for each in floods), strict=True)
        ended = [each for each in ends if each is not None]
        assert len(settled) > 2
        assert peak < MEMORY
        assert set(ended) <= {"UNAVAILABLE"}
        assert sum(confirmed) + 2 * len(ended) >= 60


def publish_bytes(client, data):
    """The error of a publish stream whose second request is these bytes."""
    (opened,) = publish_requests()
    call = client.channel.stream_stream("/ackq.v1.PublishingService/Publish")
    requests = (opened.SerializeToString(), data)
    return refused(lambda: list(call(iter(requests), timeout=LIMIT_S)))[0]


def test_requests_that_would_grow_in_memory(broker, own):
    """I6, P8: requests that would grow in memory are refused unparsed: objects and numbers."""
    before = peak_bytes(broker.pid)
    many = 8 * limits.MIB
    messages = frame.encode(b"\x1a" + frame.varint(2 * many) + b"\x32\x00" * many)
    numbers = b"\x1a" + frame.varint(many) + b"\x01" * many
    settle = own.channel.unary_unary("/ackq.v1.SessionsService/SettleSession")
    with others_served(broker.endpoint) as confirmed:
        assert type(publish_bytes(own, messages)) is errors.LimitError
        assert type(publish_bytes(own, b"\x10\x00" * many)) is errors.MalformedBlockError
        assert type(refused(settle, numbers)[0]) is errors.LimitError
        served = len(confirmed)
    assert served
    assert peak_bytes(broker.pid) - before < 150 * limits.MIB
