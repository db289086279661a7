"""Options of `ackq-broker serve`, each declared once: a field of `ServeOptions`.

A field `log_level` is the flag `--log-level`, the environment variable `ACKQ_BROKER_LOG_LEVEL` and
the key `log-level` of the file that `--config` names; `settings` reads them. Parsers take the text
of any of the three; their errors are prefixed with the origin of the text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

from ackq import limits
from ackq.errors import InvalidArgumentError
from ackq.units import SIZES, byte_count
from ackq_broker.cli.log import FORMATS, LEVELS
from ackq_broker.service.transport.listening import Address, address

_DEFAULT_ADDRESS: Final = address(limits.DEFAULT_ENDPOINT)


class Option(NamedTuple):
    """Declaration of an option: its help and its parser.

    Attributes:
        metavar: Placeholder for its value in the help.
        help: Help text, a sentence or two.
        parse: Parses its value from text; raises InvalidArgumentError.
    """

    metavar: str
    help: str
    parse: Callable[[str], Any]


def size(text: str, *, least: int = 1) -> int:
    """Parses a size such as 512MiB, 2g or 1000000000; returns bytes."""
    try:
        return byte_count(text, option="", least_bytes=least)
    except InvalidArgumentError as error:
        bound = f" of {least} bytes or more" if least > 1 else ""
        raise InvalidArgumentError(f"{text!r} is not a size{bound}, such as {SIZES}.") from error


def switch(text: str) -> bool:
    """Parses a boolean such as `true` or `no`."""
    words = {"true": True, "yes": True, "on": True, "1": True}
    words |= {"false": False, "no": False, "off": False, "0": False}
    if text.lower() not in words:
        raise InvalidArgumentError(f"{text!r} is not true or false.")
    return words[text.lower()]


def level(text: str) -> str:
    """Parses a level of the log."""
    if text.lower() not in LEVELS:
        raise InvalidArgumentError(f"{text!r} is not one of {', '.join(LEVELS)}.", log_level=text)
    return text.lower()


def log_format(text: str) -> str:
    """Parses a format of the log."""
    if text.lower() not in FORMATS:
        raise InvalidArgumentError(f"{text!r} is not one of {', '.join(FORMATS)}.", log_format=text)
    return text.lower()


def http_address(text: str) -> Address:
    """Parses an address HOST:PORT; refuses other kinds, which a browser cannot open."""
    found = address(text)
    if found.path is not None:
        raise InvalidArgumentError(f"{text!r} is not HOST:PORT.", http=text)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `serve`, in the order of its help.

    A default of False makes a switch, a tuple an option that can be given several times. None is
    the default of an option that may be left unset.
    """

    data: Annotated[Path, Option("DIR", "Data directory; created if it does not exist.", Path)]
    listen: Annotated[
        tuple[Address, ...],
        Option(
            "ADDRESS",
            "Address to listen on, HOST:PORT or unix:PATH; repeatable. Port 0 takes a free port.",
            address,
        ),
    ] = (_DEFAULT_ADDRESS,)
    memory_limit: Annotated[
        int | None,
        Option(
            "SIZE",
            "Memory that the broker may use, such as 1GiB; near this limit publishers are "
            "blocked. By default half of the memory of the machine or the cgroup.",
            partial(size, least=limits.MIN_MEMORY_BYTES),
        ),
    ] = None
    users: Annotated[
        Path | None,
        Option(
            "FILE",
            "Users file: only its users may call the broker, each with its permissions. "
            "`ackq-broker user add` creates the file.",
            Path,
        ),
    ] = None
    tls_cert: Annotated[
        Path | None, Option("FILE", "Certificate and its chain, in PEM, to serve TLS with.", Path)
    ] = None
    tls_key: Annotated[
        Path | None,
        Option("FILE", "Private key of the TLS certificate, in PEM, not encrypted.", Path),
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        Option(
            "FILE",
            "Certificate authorities, in PEM; only clients with a certificate of one of them may "
            "connect.",
            Path,
        ),
    ] = None
    insecure: Annotated[
        bool,
        Option("", "Let other machines connect without TLS or without users.", switch),
    ] = False
    segment_size: Annotated[
        int,
        Option(
            "SIZE",
            "Size of a journal file; a broker takes at least this much disk space.",
            partial(size, least=limits.MIN_SEGMENT_BYTES),
        ),
    ] = limits.SEGMENT_BYTES
    reserve: Annotated[
        int | None,
        Option(
            "SIZE",
            "Free disk space below which requests that fill the disk are refused. By default "
            "256MiB plus two segments; at least three segments.",
            size,
        ),
    ] = None
    backup_dir: Annotated[
        Path | None,
        Option(
            "DIR",
            "Directory for the backups of `ackq broker backup`. On the file system of the data "
            "directory, a backup at first takes almost no space.",
            Path,
        ),
    ] = None
    log_level: Annotated[
        str, Option("LEVEL", f"Lowest level that is logged: {', '.join(LEVELS)}.", level)
    ] = "info"
    log_format: Annotated[
        str, Option("FORMAT", f"Format of the log: {', '.join(FORMATS)}.", log_format)
    ] = FORMATS[0]
    port_file: Annotated[
        Path | None, Option("FILE", "File to write the port to, once the broker serves.", Path)
    ] = None
    http: Annotated[
        Address | None,
        Option(
            "HOST:PORT",
            "Address of the HTTP server for dashboard, health and metrics; port 0 takes a free "
            "port.",
            http_address,
        ),
    ] = None
    http_port_file: Annotated[
        Path | None,
        Option("FILE", "File to write the port of --http to, once the broker serves.", Path),
    ] = None
    stop_at_eof: Annotated[bool, Option("", "Shut down when standard input ends.", switch)] = False
    no_sync: Annotated[
        bool,
        Option(
            "",
            "Do not sync to disk: for tests only, because a power cut then loses confirmed "
            "messages.",
            switch,
        ),
    ] = False


def reserve(options: ServeOptions) -> int:
    """The disk reserve in bytes; raises InvalidArgumentError when it is too small to drain from."""
    segment_bytes = options.segment_size
    if options.reserve is None:
        return limits.SNAPSHOT_EVERY_BYTES + 2 * segment_bytes
    if options.reserve < 3 * segment_bytes:
        raise InvalidArgumentError(
            f"a reserve of {options.reserve} bytes is less than three segments of {segment_bytes} "
            "bytes, which the broker needs to serve requests that drain it. Choose a larger "
            "--reserve, or a smaller --segment-size."
        )
    return options.reserve


# By the name of the flag, without the dashes in front.
OPTIONS: Final[dict[str, Option]] = {
    name.replace("_", "-"): hint.__metadata__[0]
    for name, hint in get_type_hints(ServeOptions, include_extras=True).items()
}
DEFAULTS: Final[dict[str, Any]] = {
    each.name.replace("_", "-"): None if each.default is MISSING else each.default
    for each in fields(ServeOptions)
}
