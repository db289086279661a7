"""A RabbitMQ node of the suite's own: a free port, a data folder, and optional plugins.

Invariant: it shares nothing with another node of the machine (name, port mapper, cookie, data), and
its processes end with the suite, by their process ids.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any, Self

import pika

from tests.eventually import eventually
from tests.ports import free_ports

# Debian's scripts in /usr/sbin switch to their own user and folder; these do not.
_SCRIPTS = Path("/usr/lib/rabbitmq/bin")
REMEDY = "apt-get install rabbitmq-server"
_START_S = 180.0
_STOP_S = 60.0
# A node waits for a client's login in milliseconds, a client for the node in seconds.
_LOGIN = "handshake_timeout = 60000\n"
_CONNECT_S = 60.0
# Queues tell of themselves, and of their policies, once a second instead of every five.
_FIGURES = "-rabbit collect_statistics_interval 1000 quorum_tick_interval 1000"


def missing() -> str:
    """Names the programs that a node needs and that are not installed; empty if none is missing."""
    needs = {
        "rabbitmq-server": (_SCRIPTS / "rabbitmq-server").exists(),
        **{each: shutil.which(each) is not None for each in ("epmd", "erl_call")},
    }
    return ", ".join(name for name, here in needs.items() if not here)


def parameters(port: int, **more: Any) -> pika.ConnectionParameters:
    """The parameters of a client's connection to a node of this machine, which may be starved."""
    given = {"socket_timeout": _CONNECT_S, "stack_timeout": _CONNECT_S, **more}
    return pika.ConnectionParameters("127.0.0.1", port, **given)


class RabbitMqServer:
    """A context manager that starts and stops a node in a folder.

    Args:
        folder: For its data and log.
        name: The node's, before the `@`.
        beside: A node that it shares port mapper and cookie with, and which runs as long.
        config: The text of its configuration file.
        plugins: The names of the enabled plugins.
    """

    def __init__(self, folder, *, name="ackq-conformance", beside=None, config="", plugins=()):
        self._folder = folder
        self.node = f"{name}@localhost"
        self.port, self._distribution_port, self._mapper_port = free_ports(3)
        self._home = folder / "home"
        self._config = config
        self._plugins = plugins
        self._shares = beside is not None
        if beside is not None:
            self._mapper_port, self._home = beside._mapper_port, beside._home
        self._log = folder / "server.log"
        self._mapper: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.launch()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The node's process id."""
        assert self._server is not None
        return self._server.pid

    def launch(self) -> None:
        """Starts a new node, and its port mapper unless shared; does not wait until it serves."""
        for each in (self._home, self._folder / "data", self._folder / "log"):
            each.mkdir(parents=True, exist_ok=True)
        (self._folder / "enabled_plugins").write_text(f"[{','.join(self._plugins)}].")
        (self._folder / "rabbitmq.conf").write_text(_LOGIN + self._config)
        if not self._shares:
            self._mapper = self._spawn("epmd", "-port", str(self._mapper_port))
            eventually("epmd", lambda: _listens(self._mapper_port), within_s=_START_S)
        self._launch()

    def start(self) -> None:
        """Starts the node on its existing data."""
        self._launch()
        self.wait_ready()

    def _launch(self) -> None:
        self._server = self._spawn(_SCRIPTS / "rabbitmq-server")

    def wait_ready(self) -> None:
        """Waits until the node serves clients."""
        eventually("the node", self._ready, within_s=_START_S)

    def kill(self) -> None:
        """Kills the node by SIGKILL."""
        assert self._server is not None
        self._server.kill()
        self._server.wait(_STOP_S)
        # The mapper frees the node's name when it sees the node's connection end.
        eventually("a free node name", lambda: not self._named())

    def stop(self) -> None:
        """Ends the node and its port mapper, by SIGKILL: an orderly end takes seconds."""
        for process in (self._server, self._mapper):
            if process is not None:
                process.kill()
                process.wait(_STOP_S)

    def control(self, *command: str) -> str:
        """Runs `rabbitmqctl` on this node; returns its output."""
        done = self._run(_SCRIPTS / "rabbitmqctl", "--quiet", *command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def evaluate(self, expressions: str) -> str:
        """Evaluates Erlang on this node, without the second of CPU that `rabbitmqctl` takes.

        Returns:
            The value's text.
        """
        cookie = (self._home / ".erlang.cookie").read_text()
        told = f"{expressions.strip()}\n"
        done = self._run("erl_call", "-sname", self.node, "-c", cookie, "-e", input=told)
        found = done.stdout.strip()
        assert found.startswith("{ok, "), done
        return found.removeprefix("{ok, ").removesuffix("}")

    def _spawn(self, *command: Path | str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(command, env=self._env, stdout=log, stderr=log)

    def _run(self, *command: Path | str, **more: Any) -> subprocess.CompletedProcess[str]:
        more |= {"check": False, "capture_output": True, "text": True, "timeout": _START_S}
        return subprocess.run(command, env=self._env, **more)  # noqa: PLW1510 - in `more`

    @property
    def _env(self) -> dict[str, str]:
        folder = self._folder
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self._home),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            # Not the configuration of the machine.
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            # The script becomes the node instead of its parent: its process id is the node's. The
            # port mapper is started separately, or it would outlive the node.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-noinput -start_epmd false +S 1:1 {_FIGURES}",
        }

    def _ready(self) -> bool:
        assert self._server is not None
        ended = self._server.poll()
        assert ended is None, f"rabbitmq-server ended ({ended}):\n{self._log.read_text()[-4000:]}"
        return _speaks_amqp(self.port)

    def _named(self) -> bool:
        names = self._run("epmd", "-port", str(self._mapper_port), "-names").stdout
        return f"name {self.node.partition('@')[0]} " in names


def _speaks_amqp(port: int) -> bool:
    """Whether the node listens on the port: it answers a client's greeting with a method."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as client:
            client.sendall(b"AMQP\x00\x00\x09\x01")
            return client.recv(1) == b"\x01"
    except OSError:
        return False


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
