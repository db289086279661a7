"""Targets: texts that people write and programs keep.

Files of settings and users, definitions, lines to publish, checkpoints, options.
"""

import json
from io import StringIO
from pathlib import Path

from ackq import limits
from ackq.cli import definitions, json_lines
from ackq.client import Admin
from ackq.client.blocks import encoding
from ackq.client.publishing.base import Defaults
from ackq.spark.options import options
from ackq.spark.options.table import Use
from ackq.spark.source.offset import EDGES_VERSION, Offsets
from ackq_broker.cli.settings import settings
from ackq_broker.security.users import load
from tests.fuzz.mutations import TEXTS, changed_value, mutated
from tests.fuzz.targets import folder, outcome_of, target

HASH = "0" * 64
USERS = f"""
[users.app]
tokens = ["{HASH}"]
role = "observer"
write = "orders\\\\..*"
read = "a|b"
limits = {{connections = 5, streams = 10, queues = 3, staged_bytes = 1000}}

[users.other]
configure = ".*"
"""
CONFIG = """
data = "/data"
listen = ["127.0.0.1:0", "unix:/run/socket"]
no-sync = true
memory-limit = "1GiB"
segment-size = "64MiB"
log-level = "info"
"""
DEFINITIONS = {
    "format": 1,
    "queues": [
        {"queue": "dead", "properties": {"durable": True}},
        {
            "queue": "orders",
            "properties": {
                "durable": True,
                "max_length": 10,
                "overflow": "drop-head",
                "dead_letter_queue": "dead",
                "message_ttl_ms": 5000,
            },
        },
    ],
    "exchanges": [{"exchange": "events", "type": "topic", "durable": True}],
    "bindings": [{"exchange": "events", "queue": "orders", "binding_key": "order.*"}],
}
LINE = {
    "body": "text",
    "routing_key": "orders",
    "exchange": "events",
    "message_id": "m1",
    "content_type": "text/plain",
    "headers": {"tenant": "blue"},
    "ttl_ms": 5000,
    "persistent": True,
    "published_at": "2013-01-01T05:15:00+00:00",
    "version": 1,
    "delivery_tag": 5,
}
OFFSET = {"v": 1, "session": "s", "incarnation": "0" * 32, "tag": 50}
OPTIONS = {
    "endpoint": "127.0.0.1:5775",
    "queue": "orders",
    "session": "s",
    "maxMessagesPerTrigger": "1000",
    "maxBytesPerTrigger": "64MB",
    "sessionTimeout": "5m",
    "retryTimeout": "60s",
}
OF_A_SOURCE = ("session", "maxMessagesPerTrigger", "maxBytesPerTrigger", "sessionTimeout")


def json_of(document, rng):
    """A changed document, sometimes as text that is no JSON."""
    text = json.dumps(changed_value(document, rng) if rng.random() < 0.8 else document)
    if rng.random() < 0.2:
        return mutated(text.encode(), rng)
    if rng.random() < 0.02:
        return rng.choice((b"[" * 100_000, b'{"a":' * 100_000, b'{"body":' + b"9" * 5000 + b"}"))
    return text.encode()


def file_with(data):
    path = Path(folder().name, "file")
    path.write_bytes(data)
    return path


def toml_of(text, rng):
    if rng.random() < 0.02:
        return rng.choice((b"x=" + b"[" * 100_000, b"x=" + b"9" * 5000, b"x.y" + b".z" * 10_000))
    return mutated(text.encode(), rng, (USERS.encode(), CONFIG.encode()))


@target(40)
def users_file(rng):
    """A1: a users file with mistakes."""
    path = file_with(toml_of(USERS, rng))
    return outcome_of(lambda: load(path))[0]


@target(100)
def config_file(rng):
    """O1: a file of settings with mistakes."""
    path = file_with(toml_of(CONFIG, rng))
    return outcome_of(lambda: settings({"config": str(path)}, {}))[0]


class Deaf(Admin):
    """An admin that makes requests and does not send them."""

    def __init__(self):
        super().__init__("127.0.0.1:1")

    def _call(self, _method, request, response, _timeout_s=None):
        request.SerializeToString()
        return response()


@target(100)
def definitions_file(rng):
    """O7: definitions with mistakes: refused, or made of requests that can be sent."""
    text = json_of(DEFINITIONS, rng).decode(errors="surrogateescape")

    def imported():
        wanted = definitions._read(named(text))
        assert definitions._differences(Deaf(), wanted) == []
        definitions._make(Deaf(), {kind: list(each.values()) for kind, each in wanted.items()})

    return outcome_of(imported)[0]


def named(text):
    file = StringIO(text)
    file.name = "file"
    return file


@target(100)
def published_line(rng):
    """P8: a line of JSON to publish: reported as bad, or a message that a block can hold."""
    line = json_of(LINE, rng)
    usual = Defaults(exchange="", routing_key="", mandatory=True, persistent=True)

    def published():
        given = json_lines.properties(line)
        _, message, _ = usual.prepare(given.pop("body"), limits.MAX_MESSAGE_BYTES, given)
        encoding.encode_messages([message], routing_key="", persistent=True)

    return outcome_of(published)[0]


@target(100)
def checkpoint(rng):
    """K1: an offset in a checkpoint: accepted and written identically, or refused."""
    try:
        raw = json.loads(json_of(OFFSET, rng))
    except (ValueError, RecursionError):
        return "no JSON"  # Spark reads it
    edges = ["a:1", "b:1"] if isinstance(raw, dict) and raw.get("v") == EDGES_VERSION else ["a:1"]
    said, found = outcome_of(lambda: Offsets.from_dict(raw, edges))
    if found is not None:
        assert found.to_dict(edges) == raw
    return said


@target(100)
def query_options(rng):
    """Options of a query, in every use of the format."""
    given = {name: OPTIONS[name] for name in OPTIONS if rng.random() < 0.7}
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice((*OPTIONS, "settle", "delay", "guarantee", "txnVersion", "x"))
        value = rng.choice([*TEXTS, "-1", "9" * 400, "1e400", "nan", "5m", "never", "٣", "0x10"])
        given[name] = (
            value
            if rng.random() < 0.8
            else mutated(given.get(name, "").encode(), rng).decode(errors="replace")
        )
    use = rng.choice(
        (
            options.source,
            options.source,
            options.browse,
            lambda given: options.sink(given, Use.SINK),
            lambda given: options.sink(given, Use.BATCH),
            lambda given: options.settle({"settle": "accepted", **given}),
        )
    )
    if use is not options.source and rng.random() < 0.8:
        given = {name: value for name, value in given.items() if name not in OF_A_SOURCE}
    return outcome_of(lambda: use(given))[0]
