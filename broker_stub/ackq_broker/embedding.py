"""A broker for programs, tests and notebooks: a child process on a free port.

Invariant: the child ends when the process that started it does, however that process ends.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from ackq.errors import BrokerUnavailableError

_READY: Final = re.compile(rb"listening on (\S+:\d+) data=")
_HTTP: Final = re.compile(rb" http=(\S+:\d+)\n\Z")
_START_S: Final = 60.0
_STOP_S: Final = 30.0
_LOG_TAIL_BYTES: Final = 4096
_EMPTY_LOG: Final = (
    "Its log is empty, as when a resource limit of this process or container ends it: `ulimit -a` "
    "shows the limits. It needs about 1 GiB of address space (`ulimit -v`) and 512 MiB of memory: "
    "raise the limit."
)


class EmbeddedBroker:
    """A broker in a child process; a context manager that starts and stops it.

    Attributes:
        data_dir: Its data directory.
        log_file: Its log, next to the data directory.

    Args:
        data: Data directory, kept afterwards. None: a temporary one, removed at the end.
        sync: False does not sync to disk: for tests of other things.
        env: Added to the child's environment.
        http: Whether the broker also serves HTTP, on a free port.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        sync: bool = True,
        env: Mapping[str, str] | None = None,
        http: bool = False,
    ) -> None:
        self._temporary = data is None
        chosen = (
            Path(tempfile.mkdtemp(prefix="ackq-broker-"), "data") if data is None else Path(data)
        )
        self.data_dir = chosen.absolute()
        self.log_file = self.data_dir.with_name(self.data_dir.name + ".log")
        self._sync = sync
        self._env = dict(env or {})
        self._listen = "127.0.0.1:0"
        self._http = "127.0.0.1:0" if http else ""
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        """The broker's address, HOST:PORT; the same after a restart."""
        assert not self._listen.endswith(":0"), "the broker was not started"
        return self._listen

    @property
    def http_endpoint(self) -> str:
        """The address of the broker's HTTP server, HOST:PORT; empty without one."""
        return self._http

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._child is not None, "the broker was not started"
        return self._child.pid

    def alive(self) -> bool:
        """Whether the child runs."""
        return self._child is not None and self._child.poll() is None

    def wait_dead(self, timeout_s: float) -> bool:
        """Waits until the child has ended; False when it still runs after `timeout_s`."""
        assert self._child is not None, "the broker was not started"
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kills the child with SIGKILL, to simulate a crash of the broker."""
        assert self._child is not None, "the broker was not started"
        self._child.kill()
        self._reap()

    def start(self) -> Self:
        """Starts the broker if it does not run; `stop` ends it.

        For a notebook, where `with` cannot span cells and a cell is run again.

        Raises:
            BrokerUnavailableError: It did not start; the message has the end of its log.
        """
        if self.alive():
            return self
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def restart(self, env: Mapping[str, str] | None = None) -> None:
        """Restarts the broker on the same port and data; first shuts it down cleanly if it runs.

        Args:
            env: Replaces the additions to the child's environment; None keeps them.

        Raises:
            BrokerUnavailableError: It did not start; the message has the end of its log.
        """
        self._shut_down()
        if env is not None:
            self._env = dict(env)
        self._start()

    def stop(self) -> None:
        """Shuts the broker down cleanly, and removes a temporary data directory."""
        self._shut_down()
        if self._temporary:
            shutil.rmtree(self.data_dir.parent, ignore_errors=True)

    def _start(self) -> None:
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        options = ["--data", str(self.data_dir), "--listen", self._listen, "--stop-at-eof"]
        options += [] if self._sync else ["--no-sync"]
        options += ["--http", self._http] if self._http else []
        with self.log_file.open("ab") as log:
            self._child = start_child(["serve", *options], log, env=self._env)
        line = self._first_line()
        ready = _READY.search(line)
        if ready is None:
            cause = "" if self.alive() else end_in_words(self._child.returncode)
            self.kill()
            raise BrokerUnavailableError(
                f"The embedded broker on {self.data_dir} did not start{cause}. "
                + (f"Its log ends:\n{tail}" if (tail := self._log_tail()) else _EMPTY_LOG),
                data=self.data_dir,
            )
        self._listen = ready[1].decode()
        if self._http and (served := _HTTP.search(line)):
            self._http = served[1].decode()

    def _first_line(self) -> bytes:
        """The line that the child prints when it serves; empty if it ended or took too long."""
        assert self._child is not None
        assert self._child.stdout is not None
        deadline = time.monotonic() + _START_S
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return b""
                part = os.read(self._child.stdout.fileno(), 4096)
                if not part:
                    self._child.wait(_STOP_S)
                    return b""
                line += part
        return line

    def _shut_down(self) -> None:
        if self._child is None:
            return
        if self.alive():
            self._child.send_signal(signal.SIGTERM)
        end_child(self._child)

    def _reap(self) -> None:
        assert self._child is not None
        _reap(self._child)

    def _log_tail(self) -> str:
        data = self.log_file.read_bytes()
        return data[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()


def end_in_words(status: int) -> str:
    """The end of a child in words: its exit status, or the name of the signal that killed it."""
    if status >= 0:
        return f" (exit status {status})"
    return f" (killed by {signal.Signals(-status).name})"


def start_child(
    command: Sequence[str],
    log: IO[bytes],
    *,
    stdout: IO[bytes] | int = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts `ackq-broker` with a command that has --stop-at-eof, as a child of this process."""
    # The child imports from this process's path, so it also works where nothing is installed.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(  # noqa: S603 - this interpreter, this package
        [sys.executable, "-m", "ackq_broker", *command],
        # The other end of this pipe closes with this process: then the child shuts down.
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=log,
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
        # An interrupt at a terminal must reach the parent alone: it needs its children to the end.
        start_new_session=True,
    )


def end_child(child: subprocess.Popen[bytes]) -> None:
    """Waits for a child that was asked to end; kills it when it takes too long."""
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
    _reap(child)


def _reap(child: subprocess.Popen[bytes]) -> None:
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
