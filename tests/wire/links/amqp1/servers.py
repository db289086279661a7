"""A Java broker of the suite's own that speaks AMQP 1.0: its process, ports and folder.

Invariant: it shares nothing with another one, and ends with the suite, by its process id.
"""

import signal
import subprocess
from abc import ABC, abstractmethod
from contextlib import closing

from tests.eventually import eventually
from tests.ports import free_ports

START_S = 120
_STOP_S = 60
# For the fastest start: no second compiler, one collector thread.
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
USER, PASSWORD = "link", "secret"
# Each test uses one queue.
QUEUES = [f"q.{number}" for number in range(40)]
# In Artemis: a queue with little room, which refuses further messages.
SMALL = "small"
# In Artemis: a queue that drops a message at its tenth delivery, without dead-lettering it.
BARE = "bare"
# In Artemis: queues whose dead-letter address does not exist, or has no queue.
LOSING = ("lost.1", "lost.2")
DEAD_LETTERS = "dead"
# In Artemis: addresses of which each receiver has a copy of what comes while it is there; at the
# second one, as at names that begin like it, Artemis creates queues as by its default settings.
TOPIC, OPEN_TOPIC = "topic", "open.topic"
# In Qpid: an exchange.
EXCHANGE = "amq.topic"


def connect(endpoint, timeout_s):
    """A connection of Proton's own client."""
    from proton.utils import BlockingConnection

    user = {"user": USER, "password": PASSWORD, "allowed_mechs": "PLAIN"}
    return BlockingConnection(endpoint, timeout=timeout_s, **user)


class Server(ABC):
    """A context manager that starts and stops a broker in a folder."""

    name = ""

    def __init__(self, folder, authority):
        folder.mkdir(parents=True)
        self.folder = folder
        self.authority = authority
        self.port, self.tls_port = free_ports(2)
        self._classpath = None
        self._log = folder / "server.log"
        self._process = None

    def __enter__(self):
        self._classpath = self.jars()
        self.configure()
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    @abstractmethod
    def jars(self):
        """The broker's class path."""

    @abstractmethod
    def configure(self):
        """Writes the broker's configuration files."""

    @property
    @abstractmethod
    def arguments(self):
        """The command's arguments after the class path."""

    def start(self):
        """Starts the broker on its existing data."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *_JVM, "-cp", self._classpath, *self.arguments],
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        eventually(self.name, self._ready, within_s=START_S)

    def kill(self):
        """Kills the broker by SIGKILL."""
        self._process.kill()
        self._process.wait(_STOP_S)

    def stop(self):
        """Stops the broker."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def _ready(self):
        """Whether a queue can be used, which is later than the port is open."""
        from proton import ProtonException

        ended = self._process.poll()
        assert ended is None, f"{self.name} ended ({ended}):\n{self._log.read_text()[-4000:]}"
        try:
            with closing(connect(f"127.0.0.1:{self.port}", 5)) as connection:
                connection.create_sender(QUEUES[0])
        except ProtonException:
            return False
        return True
