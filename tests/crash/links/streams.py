"""From NATS JetStream to NATS JetStream over two links and Spark, exactly once under faults.

    python -m tests.crash.links.streams --minutes 60 [--seed N] [--ack stored] [--sync]

Three servers have the streams, with three replicas. A publisher without ids fills a work queue; a
link moves it to the local broker, a Spark query from there to a second queue, giving each message
an id (its body), and a link out to a second stream. Links, local broker, Spark's driver and the
servers, the stream's leader among them, are killed; links and servers pause; connections are reset
at any byte. In the end each message that JetStream had confirmed is in the second stream once; one
whose publish had no answer at most once.
"""

import asyncio
import random
import signal
import sys
import threading
import time
from contextlib import suppress

import nats

from tests.crash.links.fault_run import (
    CALM_S,
    PREFETCH,
    QueryRun,
    burnt,
    command_line,
    delivered,
    delivered_lines,
)
from tests.fakes.certificates import Authority
from tests.wire.links.jetstream.nats_server import PASSWORD, Stream, cluster
from tests.wire.links.managed.node import password_file

PAUSE_S = 0.02
AHEAD = 2_000
# Seconds for which a link or a server is silent: about AckWait, and far beyond it.
SILENT_S = (5, 40)
ACK_WAIT_S = 10
_SECOND = 10**9


class Publishing(threading.Thread):
    """Publishes numbers without ids by any server, each once: an unanswered one is not repeated."""

    def __init__(self, servers, subject, arrived):
        super().__init__(name="publishing", daemon=True)
        self._servers, self._subject, self._arrived = servers, subject, arrived
        self.confirmed, self.unanswered = set(), set()
        self.over = threading.Event()

    def run(self):
        while not self.over.is_set():
            with suppress(nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError):
                asyncio.run(self._publish())
            self.over.wait(0.2)

    async def _publish(self):
        async def quiet(_error):
            """The publish itself fails."""

        client = nats.NATS()
        urls = [server.url for server in self._servers]
        await client.connect(urls, allow_reconnect=False, error_cb=quiet, connect_timeout=5)
        try:
            js = client.jetstream(timeout=5)
            while not self.over.is_set():
                await asyncio.sleep(PAUSE_S)
                number = len(self.confirmed) + len(self.unanswered)
                if number - self._arrived() > AHEAD:
                    continue
                self.unanswered.add(number)
                await js.publish(self._subject, str(number).encode())
                self.unanswered.remove(number)
                self.confirmed.add(number)
        finally:
            with suppress(nats.errors.Error, OSError, TimeoutError):
                await client.close()


class Streams(QueryRun):
    """Messages without ids from a stream to another one, each exactly once.

    Args:
        seed: Seed of all decisions.
        folder: Folder for data and logs.
        ack: When the link acknowledges: `settled` or `stored`.
        sync: Whether the servers sync each write.
    """

    id_of_body = True

    def __init__(self, seed, folder, ack="settled", *, sync=False):
        super().__init__(seed, folder)
        self.ack, self.sync = ack, sync
        self.rng = random.Random(f"{seed} streams")

    def links(self, stack):
        servers = cluster(self.folder, Authority(self.folder / "authority"), sync=self.sync)
        self.servers = stack.enter_context(servers)
        replicated, window = {"num_replicas": 3}, {"duplicate_window": 600 * _SECOND}
        self.first = Stream(
            self.servers[0], replicated, ack_wait=ACK_WAIT_S * _SECOND, max_ack_pending=2 * PREFETCH
        )
        self.second = Stream(self.servers[0], {**replicated, **window, "retention": "limits"})
        # As a load balancer does, the relay sends new connections to a server that lives.
        there = self.relay(stack, "there", f"127.0.0.1:{self.servers[0].port}")
        both = {"protocol": "nats", "broker": f"nats://link@127.0.0.1:{there.port}"}
        both |= {"password-file": password_file(self.folder, PASSWORD)}
        inbound = {"broker-queue": f"{self.first.name}/link", "ack": self.ack}
        outbound = {"broker-queue": self.second.name, "routing-key": f"{self.second.name}.x"}
        return {**both, **inbound}, {**both, **outbound}

    def run(self, seconds):
        """Runs faults for `seconds`; returns the content of the second stream."""
        subject = f"{self.first.name}.x"
        self.burn(Publishing(self.servers, subject, lambda: self.figures["written"]), seconds)
        names = self._asked(lambda: self.second.ids)
        return delivered(names, self.publishing.confirmed, self.publishing.unanswered)

    def left_there(self):
        left = self.given_back()
        return f"{left} in the first stream" if left else ""

    def given_back(self):
        return self._asked(lambda: self.first.state["messages"])

    # --- faults ---

    def kinds(self):
        return {
            **super().kinds(),
            "kill leader": lambda: self._kill_server(self._leader()),
            "kill server": lambda: self._kill_server(self.rng.choice(self.servers)),
            "pause link": lambda: self._pause(self._link.send_signal),
            "pause server": lambda: self._pause(self._leader().send_signal),
        }

    def _kill_server(self, server):
        """Kills a server; new connections go to another one, and it starts again."""
        server.kill()
        other = self.rng.choice([each for each in self.servers if each is not server])
        self.relays["there"].lead_to(f"127.0.0.1:{other.port}")
        time.sleep(self.rng.choice((0, 1, 5)))
        server.start()

    def _pause(self, send):
        """Stops a process by SIGSTOP for a while."""
        send(signal.SIGSTOP)
        try:
            time.sleep(self.rng.uniform(*SILENT_S))
        finally:
            send(signal.SIGCONT)

    def _leader(self):
        """The server that leads the first stream; any, while there is none."""
        found = self._asked(lambda: self.first.server.ask(f"STREAM.INFO.{self.first.name}"))
        name = found.get("cluster", {}).get("leader", "")
        return next((each for each in self.servers if each.name == name), self.servers[0])

    def _asked(self, question):
        """The answer of the first server that answers."""
        deadline = time.monotonic() + CALM_S
        while True:
            for server in self.servers:
                self.first.server = self.second.server = server
                with suppress(AssertionError, TimeoutError, OSError, nats.errors.Error):
                    return question()
            assert time.monotonic() < deadline, "no server answers"
            time.sleep(0.5)


def burn(said, seconds, folder):
    """A run; returns (violations, content of the second stream, the run)."""
    return burnt(Streams(said.seed, folder, said.ack, sync=said.sync), seconds)


OPTIONS = {
    "--ack": {"choices": ("settled", "stored"), "default": "settled"},
    "--sync": {"action": "store_true", "help": "servers sync each write"},
}

if __name__ == "__main__":
    sys.exit(command_line(__doc__, burn, delivered_lines, OPTIONS))
