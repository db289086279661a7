"""Real NATS servers with JetStream, of the wheel that has them, and streams on them."""

import asyncio
import base64
import contextlib
import json
import subprocess
import sys
import time
import uuid
from pathlib import Path

import nats

from tests.eventually import eventually
from tests.ports import free_ports
from tests.wire.links.managed.node import password_file

PROGRAM = Path(sys.prefix) / "bin/nats-server"
PASSWORD = "quiet-secret"
START_S = 60
_API = "$JS.API."
# Of an answer: JetStream is temporarily unavailable.
_NO_LEADER = 503
# Users who lack a permission, with the subjects that they may not publish to.
DENIED = {
    "no_api": "$JS.API.>",
    "no_pull": "$JS.API.CONSUMER.MSG.NEXT.>",
    "no_publish": "denied.>",
    "no_ack": "$JS.ACK.>",
}
_CONFIGURATION = """
listen: 127.0.0.1:{port}
server_name: {name}
jetstream {{ store_dir: "{store}", max_file: 1G{sync} }}
tls {{ cert_file: "{cert}", key_file: "{key}", timeout: {patience} }}
allow_non_tls: true
no_auth_user: nobody
authorization {{ timeout: {patience}, users = [
  {{ user: nobody, password: "" }}
  {{ user: link, password: "{password}" }}
  {denied}
] }}
{more}
"""


async def _answer(client, subject, data):
    """JetStream's answer to a request, asked again while the cluster has no leader to give it."""
    deadline = time.monotonic() + START_S
    while True:
        found = None
        with contextlib.suppress(nats.errors.TimeoutError):
            found = json.loads((await client.request(_API + subject, data, 10)).data)
            if found.get("error", {}).get("code") != _NO_LEADER:
                return found
            await asyncio.sleep(0.1)
        assert time.monotonic() < deadline, found


class NatsServer:
    """A server with its own store, on a loopback port; killed by its process id."""

    def __init__(self, folder, authority, name="alone", more="", port=None, *, sync=False):
        folder.mkdir()
        self.name = name
        self.port = port or free_ports(1)[0]
        identity = authority.issue("127.0.0.1")
        user = '{{ user: {}, password: "{}", permissions: {{ publish: {{ deny: "{}" }} }} }}'
        denied = "\n".join(user.format(name, PASSWORD, no) for name, no in DENIED.items())
        self._log = folder / "log"
        self._configuration = folder / "server.conf"
        own = {"port": self.port, "name": name, "store": folder / "store", "more": more}
        own |= {"cert": identity.cert, "key": identity.key, "denied": denied}
        own["sync"] = ", sync_interval: always" if sync else ""
        text = _CONFIGURATION.format(password=PASSWORD, patience=START_S, **own)
        self._configuration.write_text(text)
        self._process = None

    def start(self):
        with self._log.with_name("errors").open("ab") as errors:
            self._process = subprocess.Popen(
                [PROGRAM, "-c", self._configuration, "-l", self._log], stderr=errors
            )

    def ready(self):
        """Waits until the server answers, also for JetStream."""
        eventually("JetStream", self._answers, within_s=START_S)
        return self

    def _answers(self):
        files = (self._log, self._log.with_name("errors"))
        assert self._process.poll() is None, [each.read_text() for each in files if each.exists()]
        try:
            return self.ask("INFO")
        except (AssertionError, TimeoutError, OSError, nats.errors.Error):
            return None

    def send_signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def restart(self):
        self.kill()
        self.start()
        self.ready()

    @property
    def pid(self):
        return self._process.pid

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def call(self, work):
        """The result of a coroutine function that is given a connection."""

        async def done():
            async def failed(error):
                if not client.is_connected:
                    raise error

            client = nats.NATS()
            await client.connect(
                self.url, allow_reconnect=False, error_cb=failed, connect_timeout=START_S
            )
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(done())

    def ask(self, subject, **question):
        """The answer of JetStream's API."""

        async def work(client):
            data = json.dumps(question).encode() if question else b""
            return await _answer(client, subject, data)

        found = self.call(work)
        assert "error" not in found, found["error"]
        return found


@contextlib.contextmanager
def cluster(folder, authority, *, sync=False):
    """Three running servers of one cluster, with their folders in a folder."""
    ports = free_ports(6)
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports[3:])
    servers = []
    try:
        for number, (port, listen) in enumerate(zip(ports[:3], ports[3:], strict=True)):
            name = f"n{number}"
            more = f"cluster {{ name: c, listen: 127.0.0.1:{listen}, routes: [{routes}] }}"
            server = NatsServer(folder / name, authority, name, more, port, sync=sync)
            server.start()
            servers.append(server)
        for server in servers:
            server.ready()
        yield servers
    finally:
        for server in servers:
            server.kill()


class Stream:
    """A stream with a work queue's retention and a durable pull consumer `link`."""

    in_order, drops_repeated = False, True

    def __init__(self, server, stream=None, **consumer):
        self.server = server
        self.typed = {"headers": {"a": "b", "Content-Type": "text/plain"}}  # for `publish`
        self.endpoint = f"127.0.0.1:{server.port}"
        self.name = f"S{uuid.uuid4().hex[:8]}"
        self.make(stream, **consumer)

    def at(self, endpoint):
        """The URL for a link, by this endpoint."""
        return f"nats://link@{endpoint}"

    def keys(self, *, direction, folder):
        """The keys of a link that are about this stream."""
        there = {"protocol": "nats", "broker": self.at(self.endpoint)}
        there["password_file"] = password_file(folder, PASSWORD)
        if direction == "in":
            return {**there, "broker_queue": f"{self.name}/link"}
        return {**there, "broker_queue": self.name, "routing_key": f"{self.name}.x"}

    def make(self, stream=None, **consumer):
        own = {"name": self.name, "subjects": [f"{self.name}.>"], "retention": "workqueue"}
        own |= {"storage": "file", "num_replicas": 1, **(stream or {})}
        self.server.ask(f"STREAM.CREATE.{self.name}", **own)
        kind = {"ack_policy": "explicit", "ack_wait": 10**9, "max_ack_pending": 1000, **consumer}
        subject = f"CONSUMER.DURABLE.CREATE.{self.name}.link"
        config = {"durable_name": "link", **kind}
        self.server.ask(subject, stream_name=self.name, config=config)

    def make_anew(self):
        """Deletes the stream, and makes another one of its name."""
        self.server.ask(f"STREAM.DELETE.{self.name}")
        self.make()

    def publish(self, ids, headers=None, subject="x"):
        """Publishes messages with these numbers as ids and bodies."""

        async def work(client):
            js = client.jetstream(timeout=START_S)
            for each in ids:
                told = {"Nats-Msg-Id": str(each), **(headers or {})}
                await js.publish(f"{self.name}.{subject}", str(each).encode(), headers=told)

        self.server.call(work)

    @property
    def state(self):
        return self.server.ask(f"STREAM.INFO.{self.name}")["state"]

    @property
    def held(self):
        """The numbers of the deliveries that are not acknowledged, and of redelivered ones."""
        found = self.server.ask(f"CONSUMER.INFO.{self.name}.link")
        return found["num_ack_pending"], found["num_redelivered"]

    @property
    def deliveries(self):
        """The number of deliveries so far, also of redelivered messages."""
        found = self.server.ask(f"CONSUMER.INFO.{self.name}.link")
        return found["delivered"]["consumer_seq"]

    @property
    def messages(self):
        """The messages of the stream, as the API gives them, in order."""

        async def work(client):
            found, sequence = [], 0
            while True:
                question = {"seq": sequence + 1, "next_by_subj": f"{self.name}.>"}
                data = json.dumps(question).encode()
                answer = await _answer(client, f"STREAM.MSG.GET.{self.name}", data)
                message = answer.get("message")
                if message is None:
                    return found
                sequence = message["seq"]
                found.append(message)

        return self.server.call(work)

    @property
    def left(self):
        """The number of messages in the stream."""
        return self.state["messages"]

    @property
    def ids(self):
        """The bodies of the stream's messages, as numbers."""
        return [int(base64.b64decode(each.get("data", ""))) for each in self.messages]

    @property
    def contents(self):
        """The messages, as (id, body, header `a`, address for replies, durability)."""
        found = []
        for each in self.messages:
            lines = base64.b64decode(each["hdrs"]).decode().split("\r\n")[1:-2]
            told = dict(line.split(": ", 1) for line in lines)
            body, number = base64.b64decode(each["data"]), int(told["Nats-Msg-Id"])
            found.append((number, body, told.get("a"), told.get("Reply-To"), True))
        return found
