"""Clients that do not read answers: the memory that each pins, and service for the others.

Channels with a large window, fetches of a lease, browses, scrapes of `/metrics/queues`: all are
requested and not read. The broker must stay below its memory limit, and a channel that reads and a
publisher must go on.
"""

import contextlib
import secrets
import socket
import tempfile
import time
from pathlib import Path

import pyarrow as pa

import ackq_broker
from ackq import limits
from ackq.client import Admin, Channel, Publisher
from ackq.v1 import admin_pb2, consuming_pb2, sessions_pb2
from tests.crash.overload import measured
from tests.fakes.raw_client import Client, holder

BODY = 10 * 1024
ROWS = 1000


def add_arguments(parser):
    """Options for the number of readers of each kind and the duration."""
    parser.add_argument("--readers", type=int, default=50, help="of each kind (50)")
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--messages", type=int, default=50_000, help="of 10 KiB (50000)")
    parser.add_argument("--queues", type=int, default=5_000, help="that a scrape lists (5000)")
    parser.add_argument("--memory", type=float, default=768, help="MiB that the broker may use")


def run(args):
    """Requests everything, reads nothing; prints the figures, returns whether all checks held."""
    env = {"ACKQ_BROKER_MEMORY_LIMIT": f"{int(args.memory * measured.MIB)}"}
    with (
        tempfile.TemporaryDirectory() as folder,
        ackq_broker.embedded(Path(folder) / "data", env=env, http=True) as broker,
    ):
        _fill(args, broker.endpoint)
        figures = [("before", measured.resident_bytes(broker.pid))]
        for ask in (_channels, _fetches, _browses, _scrapes):
            with contextlib.ExitStack() as asked:
                ended = ask(args, broker, asked)
                served = _served(broker.endpoint, args.seconds)
                kept = measured.resident_bytes(broker.pid)
                print(
                    f"{args.readers} {ask.__name__[1:]} unread for {args.seconds:g} s:"
                    f" {kept / measured.MIB:.0f} MiB, ended {ended()}, beside them"
                    f" {served} publishes were taken and accepted"
                )
                figures.append((ask.__name__, kept))
                if not served:
                    return False
        peak = measured.peak_bytes(broker.pid) / measured.MIB
        before = figures[0][1] / measured.MIB
        print(f"before {before:.0f} MiB, at most {peak:.0f} of {args.memory:g}")
        return peak < args.memory


def _fill(args, endpoint):
    with Admin(endpoint) as admin:
        for queue in ("full", "leased", "beside"):
            admin.declare_queue(queue)
        for number in range(args.queues):
            admin.declare_queue(f"list.{number}")
    batch = pa.record_batch({"body": pa.array([secrets.token_bytes(BODY) for _ in range(ROWS)])})
    for queue in ("full", "leased"):
        with Publisher(endpoint, routing_key=queue) as publisher:
            for _ in range(args.messages // ROWS):
                publisher.publish_batch(batch)
            publisher.flush(300)


def _served(endpoint, seconds):
    """The messages that one publisher and one channel carry meanwhile, one at a time."""
    taken, ends = 0, time.monotonic() + seconds
    with Publisher(endpoint, routing_key="beside") as publisher, Channel(endpoint) as channel:
        consumer = channel.consume("beside", mode="client")
        while time.monotonic() < ends:
            publisher.publish(b"b").result(30)
            consumer.receive(30).accept().result(30)
            taken += 1
    return taken


def _ended(calls):
    return lambda: sum(call.done() for call in calls)


def _channels(args, broker, stack):
    """Opens channels that send heartbeats and never read."""
    calls = []
    for _ in range(args.readers):
        client = stack.enter_context(Client(broker.endpoint))
        opening = consuming_pb2.ChannelOpen(
            channel_id=secrets.token_bytes(16), window_messages=limits.MAX_CHANNEL_WINDOW_MESSAGES
        )
        subscribe = consuming_pb2.Subscribe(consumer="c", queue="full")
        requests = _kept_open(
            consuming_pb2.ConsumeRequest(open=opening),
            consuming_pb2.ConsumeRequest(subscribe=subscribe),
        )
        calls.append(client.consuming.Consume(requests))
    return _ended(calls)


def _fetches(args, broker, stack):
    client = stack.enter_context(Client(broker.endpoint))
    reader = holder()
    opened = {"queues": ["leased"], "max_messages": args.messages}
    incarnation, lease = client.open(reader, **opened)
    request = sessions_pb2.FetchRequest(
        session="s", incarnation=incarnation, epoch=lease.epoch, last_tag=lease.end_tag
    )
    clients = [stack.enter_context(Client(broker.endpoint)) for _ in range(args.readers)]
    return _ended([each.sessions.Fetch(request) for each in clients])


def _browses(args, broker, stack):
    request = admin_pb2.BrowseRequest(queue="full", first_position=1, last_position=args.messages)
    clients = [stack.enter_context(Client(broker.endpoint)) for _ in range(args.readers)]
    return _ended([each.admin.Browse(request) for each in clients])


def _scrapes(args, broker, stack):
    host, port = broker.http_endpoint.split(":")
    sockets = []
    for _ in range(min(args.readers, limits.MAX_HTTP_CONNECTIONS_EACH)):
        each = stack.enter_context(socket.socket())
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        each.connect((host, int(port)))
        each.sendall(b"GET /metrics/queues HTTP/1.1\r\nHost: localhost\r\n\r\n")
        sockets.append(each)

    def ended():
        return sum(_reset(each) for each in sockets)

    return ended


def _reset(each):
    """Whether the broker has aborted a connection whose answer was not read."""
    each.settimeout(5)
    try:
        while each.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def _kept_open(*requests):
    """A channel's requests, then heartbeats without end."""
    yield from requests
    while True:
        time.sleep(limits.HEARTBEAT_SEND_MS / 1000)
        yield consuming_pb2.ConsumeRequest(heartbeat=consuming_pb2.ChannelHeartbeat())
