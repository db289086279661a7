"""Starts brokers, links and Spark's Python workers of tests as forks of a process.

Most of such a start is imports, a second of CPU; the process has imported them. A fork is a
process of its own, with its own pid, signals, files and exit status. Invariant: a broker whose
environment changes what Python imports is started as a user starts it.

`python -m tests.prefork FD MODULE ...` is that process; FD is the socket where it listens, and it
ends with its standard input. A request has three descriptors (input, output, errors) and texts
that zero bytes separate: the folder, the number of arguments, the arguments (`ackq-broker ...`,
`-m MODULE ...` or `-c CODE`), and the environment. The answers are the pid and, at the end, the
exit status. A process is killed when its requester closes the connection.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from ackq_broker import cli
from ackq_broker.embedding import start_child as start_alone
from tests.ports import free_ports

_MESSAGE_BYTES: Final = 1 << 20
_ANY: Final = "127.0.0.1:0"
_ENDED_WITHOUT_STATUS: Final = b"9"
PYTHON: Final = str(Path(__file__).with_name("preforked_python"))
_SPARK: Final = (
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyarrow.compute",
    "google.protobuf.descriptor_pb2",
    "encodings.idna",
    "ackq.client",
    "ackq.spark",
)
_PROGRAMS: Final = frozenset(("ackq.spark.reader_process",))
_BROKERS: Final = ("ackq_broker.cli.commands", "ackq_link.runner")


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

    def terminate(self) -> None:
        """Sends SIGTERM, unless the process has ended."""
        self.send_signal(signal.SIGTERM)

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
    stdin, to_stdin = os.pipe()
    from_stdout, to_stdout = (
        os.pipe() if stdout == subprocess.PIPE else (None, os.dup(stdout.fileno()))
    )
    environment = [f"{name}={value}" for name, value in {**os.environ, **(env or {})}.items()]
    parts = [str(Path.cwd()), str(len(command) + 1), "ackq-broker", *command, *environment]
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(_server(os.getpid(), *_BROKERS))
    socket.send_fds(link, ["\0".join(parts).encode()], [stdin, to_stdout, log.fileno()])
    os.close(stdin)
    os.close(to_stdout)
    return Forked(link, os.fdopen(to_stdin, "wb"), from_stdout and os.fdopen(from_stdout, "rb"))


def start_embedded(
    command: Sequence[str], log: IO[bytes], **options: Any
) -> Forked | subprocess.Popen[bytes]:
    """Starts an embedded broker as `start_child` does, on ports of `tests.ports`.

    It gives them up when it is killed or restarted, and binds them again.
    """
    chosen = [f"127.0.0.1:{free_ports(1)[0]}" if each == _ANY else each for each in command]
    return start_child(chosen, log, **options)


def listen_for_python() -> None:
    """Names the socket for `PYTHON` to this process and to those that it starts."""
    os.environ["ACKQ_PREFORK"] = _server(os.getpid(), *_SPARK)


def use_python() -> None:
    """Makes a Spark that this process starts next start its workers as forks, if one listens."""
    if "ACKQ_PREFORK" in os.environ:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = PYTHON


@functools.cache
def _server(_: int, *modules: str) -> str:
    """The socket's path of this process's forking process, which ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="prefork")
    path = f"{folder.name}/socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen(100)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.prefork", str(listening.fileno()), *modules],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=[listening.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        process.communicate()
        folder.cleanup()

    atexit.register(end)
    return path


def serve(listening: socket.socket, *modules: str) -> None:
    """Forks a process for each request, and reports its pid and its exit status."""
    links: dict[int, socket.socket] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while 0 not in (ready := select.select([0, listening, woken, *links.values()], [], [])[0]):
        for pid in [pid for pid, link in links.items() if link in ready]:
            os.kill(pid, signal.SIGKILL)
            links.pop(pid).close()
        if woken in ready:
            os.read(woken, 4096)
        for pid, status in _ended():
            if pid in links:
                with links.pop(pid) as link, contextlib.suppress(OSError):
                    link.send(b"%d" % status)
        if listening in ready:
            link, _ = listening.accept()
            _import(*modules)
            pid = _fork(link)
            links[pid] = link


@functools.cache
def _import(*modules: str) -> None:
    for name in modules:
        with contextlib.suppress(ModuleNotFoundError):  # the extra of links may be missing
            module = importlib.import_module(name)
            for below in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
                if below.name not in _PROGRAMS:
                    importlib.import_module(below.name)
    gc.freeze()


def _ended() -> Iterator[tuple[int, int]]:
    """The pids and statuses of the processes that have ended since the last call."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


def _fork(link: socket.socket) -> int:
    """Receives a request, and forks the process that it asks for; returns the pid."""
    request, fds, *_ = socket.recv_fds(link, _MESSAGE_BYTES, 3)
    folder, count, *parts = request.decode().split("\0")
    arguments, environment = parts[: int(count)], parts[int(count) :]
    pid = os.fork()
    if not pid:
        _run(folder, arguments, dict(each.split("=", 1) for each in environment), fds)
    link.send(b"%d" % pid)
    for fd in fds:
        os.close(fd)
    return pid


def _run(
    folder: str, arguments: list[str], environment: dict[str, str], fds: list[int]
) -> NoReturn:
    """Runs `ackq-broker` or a module in a forked process, and ends it."""
    status: object = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = arguments[:]
        if arguments[0] == "ackq-broker":
            os.setsid()
            cli.main()
        else:
            sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
            del sys.argv[:1]
            if arguments[0] == "-m":
                runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
            else:
                exec(arguments[1], {"__name__": "__main__"})  # noqa: S102 - as `python -c` does
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
    if _BROKERS[0] in sys.argv:
        sys.meta_path.insert(0, cli._WithoutPandas())
        os.environ["GRPC_VERBOSITY"] = "NONE"
    serve(socket.socket(fileno=int(sys.argv[1])), *sys.argv[2:])
