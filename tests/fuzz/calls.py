"""Targets: a broker process, by gRPC and HTTP: typed errors only; it stays up, and reopens.

The broker belongs to this process and starts with the first example. It is restarted now and then,
so that everything that hostile requests left in its journal is read back.
"""

import atexit
import json
import secrets
import socket
import tempfile
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

import grpc
import psutil

from ackq.v1 import admin_pb2, links_pb2, messages_pb2, sessions_pb2
from ackq.wire import frame
from ackq_broker import embedded
from tests.fakes.raw_client import DETAIL_KEY, Client
from tests.fuzz.blocks import hostile_block, link_header, sound_block
from tests.fuzz.mutations import TEXTS, Filler, changed_value, mutated, some_bytes
from tests.fuzz.targets import METHODS, target

# After a drain or a backup request it serves no more examples.
LEFT_OUT = ("Drain", "Backup")
TIMEOUT_S = 60
WAITS_S = 0.5
RESTART_EVERY = 2_000
LOOK_EVERY = 50
MOST_BYTES = 1 << 30
IDS = (b"a" * 16, b"b" * 16, b"c" * 16)
GIVEN = {
    "queue": ("q", "r", "dead", "none"),
    "queues": ("q", "r", "dead"),
    "exchange": ("", "x", "t"),
    "session": ("s1", "s2"),
    "link": ("l1", "l2"),
    "source": ("there",),
    "subscription": (1, 2, 3),
    "proven": (0, 1, 2),
    "writer": ("w1", "w2"),
    "run_id": ("r1", "r2"),
    "query_id": ("q1",),
    "consumer": ("c1", "c2"),
    **dict.fromkeys(("publisher_id", "channel_id", "stage_id", "transaction_id"), IDS),
    **dict.fromkeys(("stage_ids", "token"), IDS),
    "batch_id": (0, 1, 2),
    "epoch": (1, 2),
    "wait_ms": (0, 1),
    "dead_letter_queue": ("", "dead"),
    "delivery_tag": (1, 2, 50),
    "first_tag": (1, 2, 50),
}


class Running:
    """A broker with HTTP, and the number of its examples."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.broker = embedded(Path(self._folder.name, "data"), sync=False, http=True)
        self.broker.__enter__()
        atexit.register(self.broker.stop)
        self.examples = count(1)
        self._logged = 0
        self.connect()

    def connect(self):
        self.client = Client(self.broker.endpoint)
        for name in ("q", "r", "dead"):
            self.client.declare(name)
        for name, kind in (("x", 2), ("t", 3)):
            self.client.admin.DeclareExchange(
                admin_pb2.DeclareExchangeRequest(exchange=name, type=kind, durable=True)
            )

    def looked_at(self):
        """Checks that the process is well, and restarts it now and then."""
        number = next(self.examples)
        if number % LOOK_EVERY == 0:
            assert self.broker.alive(), f"the broker ended: {self.log()}"
            used = psutil.Process(self.broker.pid).memory_info().rss
            assert used < MOST_BYTES, f"the broker takes {used >> 20} MiB"
            logged = self.log()
            assert "Traceback" not in logged, logged
            self.client.admin.ServerInfo(admin_pb2.ServerInfoRequest(), timeout=TIMEOUT_S)
        if number % RESTART_EVERY == 0:
            self.restart()

    def restart(self):
        """Restarts the broker on the data that the examples left."""
        self.client.channel.close()
        self.broker.restart()
        self.connect()

    def log(self):
        """The log written since the last check."""
        with self.broker.log_file.open(errors="replace") as opened:
            opened.seek(self._logged)
            new = opened.read()
            self._logged = opened.tell()
        return new


@cache
def running():
    return Running()


@contextmanager
def serving():
    """Runs examples on a broker that is up, which at the end reopens the data that they left."""
    now = running()
    yield
    now.restart()
    assert "Traceback" not in now.log()


@target(50, serving)
def call(rng):
    """P8, A3, I2, I6: a call of any method with hostile requests: answered, or a typed error."""
    now = running()
    path = rng.choice([path for path in METHODS if not path.endswith(LEFT_OUT)])
    method = METHODS[path]
    made = requests(method, rng)
    shape = f"{'stream' if method.client_streaming else 'unary'}_"
    shape += "stream" if method.server_streaming else "unary"
    make = getattr(now.client.channel, shape)(path, None, None)
    said = "answered"
    try:
        found = make(iter(made) if method.client_streaming else made[0], timeout=TIMEOUT_S)
        if method.server_streaming:
            for number, _ in enumerate(found):
                if number > 30:
                    found.cancel()
                    break
    except grpc.RpcError as error:
        said = refusal(error, path)
    finally:
        now.looked_at()
    return said


def refusal(error, path):
    """The code of the error that a call ended with, which must be a typed one."""
    sent = dict(error.trailing_metadata() or ())
    assert DETAIL_KEY in sent, f"{path}: {error.code()} {error.details()}"
    detail = messages_pb2.ErrorDetail.FromString(sent[DETAIL_KEY])
    assert detail.code != "internal", f"{path}: {detail}"
    assert detail.message.isprintable()
    return detail.code


def requests(method, rng):
    """Serialised requests of a call: an opening, mostly sound, and further requests."""
    filler, made = Filler(rng, GIVEN), []
    framed = "block" in method.input_type.fields_by_name
    for number in range(rng.randrange(1, 6) if method.client_streaming else 1):
        request = filler.message(method.input_type)
        if number == 0 and method.client_streaming and rng.random() < 0.9:
            opening(method, request, rng)
        elif framed and rng.random() < 0.6:
            announce(method, request.header, rng)
        if framed and number and rng.random() < 0.7:
            held = rng.choice((hostile_block, sound_block))(rng)
            data = frame.encode(request.header.SerializeToString(), held)
        else:
            data = request.SerializeToString()
        made.append(mutated(data, rng) if rng.random() < 0.15 else data)
    return made


def announce(method, header, rng):
    """Makes a frame announce a plausible number of rows."""
    rows = rng.choice((1, 2, 3, 4, 100))
    if method.name == "Link":
        header.deliveries.CopyFrom(link_header(rng, rows))
    else:
        header.data.rows = rows


def opening(method, request, rng):
    """Makes the first request of a stream one that opens it."""
    fresh = rng.choice((*IDS, secrets.token_bytes(16)))
    if method.name == "Publish":
        request.header.open.publisher_id = fresh
        request.header.open.mode = rng.choice((1, 1, 2))
    elif method.name == "Stage":
        request.header.open.stage_id = fresh
        request.header.open.writer = rng.choice(GIVEN["writer"])
    elif method.name == "Consume":
        request.open.channel_id = fresh
        request.open.window_messages = rng.choice((0, 1, 100, 1 << 20))
    elif method.name == "Link":
        request.header.open.CopyFrom(
            links_pb2.LinkOpen(
                link=rng.choice(GIVEN["link"]),
                holder=sessions_pb2.Holder(token=rng.choice(IDS)),
                source="there",
                queue=rng.choice(("q", "r")),
                ack=rng.choice((1, 2)),
            )
        )
    elif method.name == "StageOutcomes":
        request.stage_id = fresh


# --- HTTP ---

PATHS = (
    *("/", "/livez", "/readyz", "/metrics", "/metrics/queues", "/dashboard.js", "/none"),
    *(f"/api/{name}" for name in ("broker", "queues", "queue", "sessions", "publishers")),
    *(f"/api/{name}" for name in ("dead_letters", "peek", "purge", "redrive", "release")),
)
QUERIES = ("", "?queue=q", "?name=q", "?queue=q&from=0&count=5", "?offset=1&limit=5&sort=age")
BODY = {"queue": "q", "confirm": "q", "session": "s1", "fence": True, "max_messages": 5}


@target(50, serving)
def http(rng):
    """M1, M5: a request by HTTP: an answer that is no server failure, or a closed connection."""
    now = running()
    host, _, port = now.broker.http_endpoint.rpartition(":")
    # The server waits for the rest of a request that is incomplete by its own headers.
    with socket.create_connection((host, int(port)), timeout=WAITS_S) as opened:
        opened.sendall(raw_request(now.broker.http_endpoint, rng))
        answer = b""
        with suppress(TimeoutError, ConnectionResetError):
            while part := opened.recv(65_536):
                answer += part
                opened.settimeout(WAITS_S)
    now.looked_at()
    if not answer:
        return "closed"
    status = int(answer.split(b" ", 2)[1])
    assert status < 500 or status == 503, answer[:500]
    return str(status)


def raw_request(host, rng):
    method = rng.choice(("GET", "GET", "POST", "POST", "HEAD", "PUT", "\0", "OPTIONS"))
    path = rng.choice(PATHS) + rng.choice((*QUERIES, "?" + "a=1&" * 500))
    if rng.random() < 0.3:
        odd = mutated(path.encode(), rng).replace(b" ", b"%20").replace(b"\n", b"%0a")
        path = odd.replace(b"\r", b"").decode("latin-1")
    body = json.dumps(changed_value(BODY, rng)).encode()
    if rng.random() < 0.15:
        body = rng.choice((b"[" * 100_000, mutated(body, rng), some_bytes(rng, 100), b"9" * 5000))
    headers = {
        "Host": host,
        "Content-Type": rng.choice(("application/json", "application/json", "text/plain", "x")),
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    if rng.random() < 0.3:
        # Not Expect: aiohttp fails to name an unknown one in UTF-8, and answers 500.
        name = rng.choice((*headers, "Authorization", "Origin", "Sec-Fetch-Site"))
        value = rng.choice((*TEXTS, "-1", "9" * 30, "gzip", "null", "http://["))
        headers[name] = value.translate({10: None, 13: None})
    if rng.random() < 0.1:
        headers["Content-Encoding"] = rng.choice(("gzip", "deflate", "br", "zstd"))
    if rng.random() < 0.05:
        headers["Transfer-Encoding"] = "chunked"
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    raw = f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1", "replace") + body
    return mutated(raw, rng) if rng.random() < 0.1 else raw
