"""Queues of a remote broker next to a driver: an edge and its links, which run as its children.

    from ackq_broker.links import embedded

    orders = {"name": "orders", "direction": "in", "queue": "orders", "broker-queue": "orders",
              "broker": "amqp://link@rabbit.example", "password-file": "/run/secrets/rabbit",
              "ack": "stored"}
    with embedded("/var/lib/ackq/orders", [orders]) as edge:
        spark.readStream.format("ackq").option("endpoint", edge.endpoint)...

Invariant: broker and links are separate processes, and end when this one does, however that ends:
the messages they held are in the data directory, and the next start goes on from them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ackq import extras
from ackq.errors import BrokerUnavailableError, InvalidArgumentError, QueueNotFoundError
from ackq_broker.embedding import EmbeddedBroker, end_child, end_in_words, start_child

if TYPE_CHECKING:
    from ackq_link.configuration import Link

_CLEARED: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - those are refused
_FLEETING: Final = {
    "tmpfs": "in memory",
    "ramfs": "in memory",
    "overlay": "in the writable layer of a container",
    "aufs": "in the writable layer of a container",
}
_MOUNTS: Final = Path("/proc/self/mountinfo")


_CONNECT_S: Final = 60.0
_POLL_S: Final = 0.05
_LOG_TAIL_BYTES: Final = 1 << 16


def embedded(
    data: str | os.PathLike[str],
    links: Sequence[Mapping[str, Any]] = (),
    *,
    config: str | os.PathLike[str] | None = None,
    temporary: bool = False,
    connect_s: float = _CONNECT_S,
) -> EmbeddedLinks:
    """A broker and links in child processes, for a `with` statement.

    Only this machine can reach the broker. For a driver whose executors are on other machines run
    `ackq-broker serve` and `ackq-broker link`.

    Args:
        data: The broker's data directory, which must outlive the driver. It holds messages that
            the remote broker may have deleted (`ack=stored`), and the data needed to recognise
            redelivered messages.
        links: Each with the keys of a table `[[link]]` (`ackq-broker link`).
        config: Instead of `links`: a TOML file with any number of links; its `[edge]` is ignored.
        temporary: Accept a directory that does not last: its messages are lost with it.
        connect_s: The longest time for the links to reach the remote broker at the start.

    Raises:
        InvalidArgumentError: The directory is temporary, a link has a wrong key, or none is given.
    """
    folder = Path(data).absolute()
    why = "" if temporary else why_temporary(folder)
    if why:
        raise InvalidArgumentError(
            f"The data directory {folder} does not outlive the driver: {why}. It holds messages "
            "that the remote broker may have deleted, and the data to recognise redelivered "
            "messages. Name a directory on a disk or volume that persists; or set temporary=True, "
            "and lose both with the directory."
        )
    return EmbeddedLinks(folder, _described(links, config), connect_s)


class EmbeddedLinks:
    """A broker and links in child processes; a context manager that starts and stops them.

    Attributes:
        broker: The edge.
        log_file: The links' log, next to the data directory; JSON lines.

    Args:
        data: The broker's data directory.
        commands: The arguments of each link process, with the links that it runs.
        connect_s: As in `embedded`.
    """

    def __init__(
        self, data: Path, commands: Sequence[tuple[list[str], list[Link]]], connect_s: float
    ) -> None:
        self.broker = EmbeddedBroker(data)
        self.log_file = data.with_name(data.name + ".links.log")
        self._commands = commands
        self._connect_s = connect_s
        self._children: list[subprocess.Popen[bytes]] = []
        self._log_start = 0

    def __enter__(self) -> Self:
        try:
            self.broker.__enter__()
            self._declare()
            self.start_links()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        """The address of the edge, HOST:PORT."""
        return self.broker.endpoint

    @property
    def guarantees(self) -> list[str]:
        """The guarantee of each link, a line each."""
        return [link.guarantee for _, links in self._commands for link in links]

    def check(self) -> None:
        """Raises BrokerUnavailableError when a link, or the edge, has ended by itself."""
        if not self.broker.alive():
            raise BrokerUnavailableError(
                f"The embedded broker on {self.broker.data_dir} ended; see {self.broker.log_file}.",
                data=self.broker.data_dir,
            )
        for child in self._children:
            if child.poll() is not None:
                raise BrokerUnavailableError(
                    f"A link ended{end_in_words(child.returncode)}: {self._last_words()}",
                    log=self.log_file,
                )

    def stop(self) -> None:
        """Stops the links, and then the broker."""
        self.stop_links()
        self.broker.stop()

    def stop_links(self) -> None:
        """Stops the links, which first acknowledge what is permitted; the broker keeps running."""
        children, self._children = self._children, []
        for child in children:
            child.terminate()
        for child in children:
            end_child(child)

    def start_links(self) -> None:
        """Starts the links, and returns when each has reached the remote broker.

        Raises:
            BrokerUnavailableError: A link did not connect in time, or ended; names the reason.
        """
        assert not self._children, "the links run"
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            for arguments, _ in self._commands:
                options = ("--edge-endpoint", self.endpoint, "--log-format", "json")
                command = ["link", *arguments, *options, "--stop-at-eof"]
                self._children.append(start_child(command, log, stdout=log))
        names = {link.name for _, links in self._commands for link in links}
        if not self._until(lambda: names <= self._connected()):
            raise BrokerUnavailableError(
                f"{', '.join(sorted(names - self._connected()))}: not connected to the remote "
                f"broker within {self._connect_s:g} s. {self._last_words()}",
                log=self.log_file,
            )

    def _declare(self) -> None:
        """Declares the links' queues that do not exist at the edge, as durable queues."""
        # Imported late: a program that only stops a broker does not need the client.
        from ackq.client import Admin  # noqa: PLC0415

        with Admin(self.endpoint) as admin:
            for queue in {link.edge.queue: None for _, links in self._commands for link in links}:
                try:
                    admin.queue(queue)
                except QueueNotFoundError:
                    admin.declare_queue(queue)

    def _until(self, done: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + self._connect_s
        while not done():
            self.check()
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _connected(self) -> set[str]:
        """The links that have connected since they were started."""
        events = (_event(line) for line in self._lines())
        return {each["link"] for each in events if each.get("event") == "link_connected"}

    def _last_words(self) -> str:
        """The last message in the links' log, for an error text."""
        lines = self._lines()
        return _event(lines[-1]).get("message", lines[-1]) if lines else "It has no log."

    def _lines(self) -> list[str]:
        """The last lines of the log, since this start of the links only."""
        with self.log_file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()


def _event(line: str) -> dict[str, Any]:
    """The event of a line of the log; empty when the line is not a JSON object."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _described(
    links: Sequence[Mapping[str, Any]], config: str | os.PathLike[str] | None
) -> list[tuple[list[str], list[Link]]]:
    """Checks links; returns the arguments of each link process, with the links that it runs."""
    try:
        from ackq_link import configuration  # noqa: PLC0415 - aiormq may be missing
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(extras.missing(error, "A link", "amqp")) from None
    if bool(links) == (config is not None):
        raise InvalidArgumentError("Give links, or config with a file that has them, not both.")
    if config is not None:
        path = Path(config).absolute()
        return [(["--config", str(path)], configuration.read(path))]
    found = [(_flags(keys), configuration.of_flags(keys)) for keys in links]
    names = [link.name for _, run in found for link in run]
    if len(set(names)) < len(names):
        raise InvalidArgumentError("Two links have the same name; give each its own.")
    return found


def _flags(keys: Mapping[str, Any]) -> list[str]:
    """The keys of a link as flags of a command line; a boolean is a flag, or left out."""
    return [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in keys.items()
        if value is not None and value is not False
    ]


def why_temporary(directory: Path) -> str:
    """Why a directory, which need not exist yet, does not survive this machine's next start.

    A directory in memory, in the writable layer of a container, or in a place that a machine clears
    at its start does not. A directory on a disk may still be temporary: an empty text only means
    that no reason was found.
    """
    path = directory.absolute().resolve()
    for cleared in dict.fromkeys((*_CLEARED, tempfile.gettempdir())):
        if path.is_relative_to(Path(cleared).resolve()):
            return f"it is under {cleared}, which is for temporary files"
    kind = _file_system(path, _mounts())
    if kind in _FLEETING:
        return f"its file system, {kind}, is {_FLEETING[kind]}"
    return ""


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # another system than Linux
        return ""


def _file_system(path: Path, mounts: str) -> str:
    """The type of the file system of a resolved path; empty when it is unknown."""
    found, depth = "", -1
    for line in mounts.splitlines():
        mount, separator, source = line.partition(" - ")
        fields = mount.split(" ")
        if not separator or len(fields) < 5:  # noqa: PLR2004 - the fifth is the mount point
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]))
        # Of two mounts at one path the later covers the earlier.
        if path.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = source.split(" ")[0], len(point.parts)
    return found
