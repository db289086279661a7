"""Starts brokers and links of tests as forks of a process that has imported both.

Most of a broker's start is imports, a second of CPU. A fork is a process of its own, with its own
pid, signals, files and exit status. Invariant: a broker whose environment changes what Python
imports is started as a user starts it.

`python -m tests.prefork FD` is that process; FD is its socket.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NoReturn

from ackq_broker import cli
from ackq_broker.embedding import start_child as start_alone

_MESSAGE_BYTES: Final = 1 << 20
_ENDED_WITHOUT_STATUS: Final = b"9"
_lock = threading.Lock()


class Forked:
    """A forked process, with the part of `subprocess.Popen` that `ackq_broker.embedding` uses."""

    def __init__(self, link: socket.socket, stdin: IO[bytes], stdout: IO[bytes] | None) -> None:
        self.returncode: int | None = None
        self.stdin, self.stdout = stdin, stdout
        self._link = link
        self.pid = int(link.recv(16))

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit status.

        Raises:
            subprocess.TimeoutExpired: The process still runs after `timeout` seconds.
        """
        if self.returncode is None:
            if not select.select([self._link], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("ackq-broker", timeout or 0)
            status = self._link.recv(16) or _ENDED_WITHOUT_STATUS
            self.returncode = os.waitstatus_to_exitcode(int(status))
            self._link.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL, unless the process has ended."""
        self.send_signal(signal.SIGKILL)


def start_child(
    command: Sequence[str],
    log: IO[bytes],
    *,
    stdout: IO[bytes] | int = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
) -> Forked | subprocess.Popen[bytes]:
    """Starts `ackq-broker` with a command, as `ackq_broker.embedding.start_child` does."""
    if "PYTHONPATH" in (env or {}):
        return start_alone(command, log, stdout=stdout, env=env)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stdin, to_stdin = os.pipe()
    from_stdout, to_stdout = (
        os.pipe() if stdout == subprocess.PIPE else (None, os.dup(stdout.fileno()))
    )
    request = json.dumps([list(command), {**os.environ, **(env or {})}, str(Path.cwd())]).encode()
    fds = [stdin, to_stdout, log.fileno(), theirs.fileno()]
    with _lock:
        socket.send_fds(_server(os.getpid()), [request], fds)
    theirs.close()
    os.close(stdin)
    os.close(to_stdout)
    return Forked(ours, os.fdopen(to_stdin, "wb"), from_stdout and os.fdopen(from_stdout, "rb"))


@functools.cache
def _server(_: int) -> socket.socket:
    """The socket of the forking process of this process; it ends when the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.prefork", str(theirs.fileno())],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve(control: socket.socket) -> None:
    """Forks a process for each request, and reports its pid and its exit status."""
    sys.meta_path.insert(0, cli._WithoutPandas())
    os.environ["GRPC_VERBOSITY"] = "NONE"
    importlib.import_module("ackq_broker.cli.commands")
    with contextlib.suppress(ModuleNotFoundError):  # the extra of links may be missing
        importlib.import_module("ackq_link.runner")

    links: dict[int, socket.socket] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        while links:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            with links.pop(pid) as link, contextlib.suppress(OSError):
                link.send(b"%d" % status)
        if control in ready:
            request, fds, *_ = socket.recv_fds(control, _MESSAGE_BYTES, 4)
            if not request:
                return
            pid = os.fork()
            if not pid:
                _run(json.loads(request), fds)
            links[pid] = socket.socket(fileno=fds.pop())
            links[pid].send(b"%d" % pid)
            for fd in fds:
                os.close(fd)


def _run(request: tuple[list[str], dict[str, str], str], fds: list[int]) -> NoReturn:
    """Runs `ackq-broker` in a forked process, and ends it."""
    arguments, environment, folder = request
    status: object = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for target, fd in enumerate(fds[:3]):
            os.dup2(fd, target)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = ["ackq-broker", *arguments]
        cli.main()
        status = 0
    except SystemExit as ended:
        status = ended.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:  # noqa: BLE001 - the interpreter prints it
        traceback.print_exc()
    finally:
        threading._shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
