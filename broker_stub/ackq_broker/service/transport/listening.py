"""Addresses to listen on: HOST:PORT, or `unix:PATH` for the processes of this machine and user.

Invariant: an address that another process serves is refused, never shared and never taken over; a
socket that refuses connections was left by a process that died, and is removed.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import product
from pathlib import Path
from typing import Final

from ackq.errors import InvalidArgumentError

_CAUSES: Final = {
    errno.EADDRINUSE: "another process listens on this address, and must end first",
    errno.EADDRNOTAVAIL: "this machine does not have that address",
    errno.EEXIST: "a file of that name exists and is not a socket",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EROFS: "the file system is mounted read-only",
}
_UNIX: Final = "unix:"
_MAX_PORT: Final = 65_535
# Capacity of the kernel's sockaddr_un, without the terminating zero.
_MAX_PATH_BYTES: Final = 107
_FIRST_FREE_PORT: Final = 1024
# Only the owner has access, also in a folder that others can enter.
_PRIVATE_UMASK: Final = 0o177


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on: a host (in brackets for IPv6) and a port, or a socket's path."""

    host: str = ""
    port: int = 0
    path: Path | None = None

    def __str__(self) -> str:
        """The address as gRPC and clients write it."""
        return f"{self.host}:{self.port}" if self.path is None else f"{_UNIX}{self.path}"


def address(text: str) -> Address:
    """Parses HOST:PORT or `unix:PATH`; raises InvalidArgumentError."""
    if text.startswith(_UNIX):
        path = Path(text.removeprefix(_UNIX))
        if path.name and len(os.fsencode(path.absolute())) <= _MAX_PATH_BYTES:
            return Address(path=path.absolute())
        raise InvalidArgumentError(
            f"{text!r} is not unix:PATH with a path of at most {_MAX_PATH_BYTES} bytes.",
            listen=text,
        )
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not bare or (":" in bare) != (host == f"[{bare}]") or not _is_port(port):
        raise InvalidArgumentError(
            f"{text!r} is not HOST:PORT, [IPV6]:PORT or unix:PATH.", listen=text
        )
    return Address(host, int(port))


def check_apart(listen: Sequence[Address], http: Address | None) -> None:
    """Refuses addresses that need the same port: the later one could not be bound in the end.

    Raises:
        InvalidArgumentError: With the option to be changed.
    """
    given = [*((each, "--listen") for each in listen), *([(http, "--http")] if http else ())]
    for at, (later, option) in enumerate(given):
        for earlier, _ in given[:at]:
            if _overlap(earlier, later):
                raise InvalidArgumentError(
                    f"The broker cannot listen on {later}: it is to listen on {earlier}, too, which"
                    f" takes the same port. Choose another {option}.",
                    listen=later,
                )


def check_free(listen: Address, option: str = "--listen") -> None:
    """Refuses an address that cannot be bound, which gRPC would only log.

    Creates the folder of a socket, accessible by its owner alone. `option` is the option that named
    the address.

    Raises:
        InvalidArgumentError: With the cause and the remedy.
    """
    with explained(listen, option):
        if listen.path is None:
            _check_port(listen)
        else:
            _check_socket(listen.path)


@contextmanager
def explained(listen: Address, option: str) -> Iterator[None]:
    """Turns the OSError of an address that cannot be bound into an InvalidArgumentError."""
    try:
        yield
    except OSError as error:
        raise InvalidArgumentError(
            f"The broker cannot listen on {listen}: {_cause(error, listen, option)}", listen=listen
        ) from error


def bind(listen: Address, add_port: Callable[[str], int]) -> Address:
    """Binds an address with gRPC's `add_port`; returns it with the port that was bound.

    Raises:
        InvalidArgumentError: It was taken since `check_free`, or gRPC cannot bind it.
    """
    try:
        if listen.path is None:
            return Address(listen.host, add_port(str(listen)))
        with _private():
            add_port(str(listen))
    except RuntimeError as error:
        check_free(listen)
        raise InvalidArgumentError(
            f"The broker cannot listen on {listen}: {error}", listen=listen
        ) from error
    return listen


def _is_port(text: str) -> bool:
    return text.isdecimal() and int(text) <= _MAX_PORT


def _overlap(earlier: Address, later: Address) -> bool:
    """Whether an address cannot be bound after one of `--listen`."""
    if earlier.path is not None or later.path is not None:
        return earlier.path == later.path
    if not earlier.port or earlier.port != later.port:
        return False
    return any(
        # gRPC binds either wildcard for IPv4 and IPv6, but a later 0.0.0.0 leaves IPv6 to others.
        a == b or a.is_unspecified or (b.is_unspecified and b.version >= a.version)
        for a, b in product(_ips(earlier), _ips(later))
    )


def _ips(listen: Address) -> set[IPv4Address | IPv6Address]:
    """The addresses of a host, all of which gRPC binds; empty for an unknown one."""
    try:
        found = socket.getaddrinfo(listen.host.strip("[]"), None, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return set()
    return {ip_address(place[0]) for *_, place in found}


def _check_port(listen: Address) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(
        listen.host.strip("[]"), listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def _check_socket(path: Path) -> None:
    if path.parent.exists() and not path.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path.parent))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no permission", str(path))
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise FileExistsError(errno.EEXIST, "not a socket", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise OSError(errno.EADDRINUSE, "in use", str(path))


def _cause(error: OSError, listen: Address, option: str) -> str:
    """Explains why an address cannot be bound, and the remedy."""
    if isinstance(error, socket.gaierror):
        return f"no host has the name {listen.host}. Name one of this machine's addresses."
    if error.errno == errno.EACCES:
        return (
            f"no permission to make a socket in {listen.path.parent}. Choose another {option}."
            if listen.path
            else f"ports below {_FIRST_FREE_PORT} are for the system's administrator. Choose a"
            f" higher one with {option}, or give the process the capability CAP_NET_BIND_SERVICE."
        )
    cause = _CAUSES.get(error.errno or 0, error.strerror or str(error))
    return f"{cause}. Choose another {option}."


@contextmanager
def _private() -> Iterator[None]:
    """Context in which created files are accessible by their owner alone, from their creation."""
    before = os.umask(_PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(before)
