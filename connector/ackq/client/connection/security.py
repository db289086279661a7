"""Transport security and token of a client; importable without gRPC.

Invariant: no `repr`, message or log shows a token, and no token leaves the machine in plain text
unless `insecure` asks for it.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ackq.errors import InvalidArgumentError

# A token that an `authorization` header can carry: visible ASCII characters.
_TOKEN: Final = re.compile(r"[!-~]*")
# Fields of `Security` with the path of a PEM file; those with "_pem" at the end have its text.
PEMS: Final = ("ca", "cert", "key")


@dataclass(frozen=True, slots=True)
class Security:
    """Transport security of a connection and the client's token; the default is plain text.

    Files are read again when they change: a token for the next call, certificates for the next
    connection.

    Args:
        tls: Encrypt, and check the broker's certificate.
        ca: Path of a PEM file with the authorities to trust; empty: those that gRPC trusts.
        cert: Path of this client's PEM certificate, for mutual TLS; needs `key`.
        key: Path of its PEM private key.
        ca_pem: Instead of `ca`: the text of such a file, where no files can be provided.
        cert_pem: Instead of `cert`: its text; needs `key_pem`.
        key_pem: Instead of `key`: its text. Never shown by `repr`.
        server_name: The name expected in the broker's certificate, when it is not the endpoint's
            host.
        token: Identifies this client to a broker that has users. Never shown by `repr`.
        token_file: Instead of `token`: path of a file that holds the token, and nothing else.
        insecure: Send the token to another machine in plain text, where others can read it.

    Raises:
        InvalidArgumentError: A path, text or name without `tls`, only one of certificate and key,
            both a text and its file, or a token that no header can carry.
    """

    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    token: str = field(default="", repr=False)
    token_file: str = ""
    insecure: bool = False
    ca_pem: str = ""
    cert_pem: str = ""
    key_pem: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        given = [name for name in PEMS if getattr(self, name) or getattr(self, f"{name}_pem")]
        if not self.tls and (given or self.server_name):
            raise InvalidArgumentError(
                "A certificate, key or server name was given, but TLS is off; turn it on as well."
            )
        if ("cert" in given) != ("key" in given):
            raise InvalidArgumentError(
                "Mutual TLS needs both the client's certificate and its key."
            )
        for name in given:
            if getattr(self, name) and getattr(self, f"{name}_pem"):
                raise InvalidArgumentError(
                    f"{name} and {name}_pem were both given; give the file or its text."
                )
        if self.token and self.token_file:
            raise InvalidArgumentError("A token and a token file were given; give one of them.")
        check_token(self.token, "The token")

    @classmethod
    def of_settings(cls, given: Mapping[str, Any]) -> Security:
        """The security of a process, from its flags or its configuration file.

        Any TLS path or name turns TLS on, and the environment variable ACKQ_TOKEN has the token
        unless a token file is given.

        Args:
            given: Arguments of this class, without `token`.

        Raises:
            InvalidArgumentError: As for the class.
        """
        tls = any(given.get(name) for name in ("tls", *PEMS, "server_name"))
        token = "" if given.get("token_file") else os.environ.get("ACKQ_TOKEN", "")
        return cls(**{**given, "tls": tls, "token": token})

    def pem(self, name: str) -> bytes | None:
        """The content of one of `PEMS`, from its text or its file; None if it was not given.

        Raises:
            OSError: The file cannot be read.
        """
        text: str = getattr(self, f"{name}_pem")
        path: str = getattr(self, name)
        return text.encode() if text else Path(path).read_bytes() if path else None

    def place(self, name: str) -> str:
        """Where one of `PEMS` was given, for a message: its path in quotes, or its field's name."""
        if getattr(self, f"{name}_pem"):
            return f"{name}_pem (tls{name.capitalize()}Pem in Spark)"
        return f"'{getattr(self, name)}'"

    def check_endpoint(self, endpoint: str) -> None:
        """Raises InvalidArgumentError if the token would go to another machine in plain text."""
        named = self.token or self.token_file
        if named and not self.tls and not self.insecure and not is_local(endpoint):
            raise InvalidArgumentError(
                f"The token would go to {endpoint} in plain text, where others can read it."
                " Turn TLS on (tls, or the authority's file: tlsCa in Spark, --ca on a command"
                " line), or set 'insecure' to send it in plain text.",
                endpoint=endpoint,
            )


def is_local(endpoint: str) -> bool:
    """Whether bytes sent to an endpoint stay on this machine: `unix:` or a loopback address."""
    if endpoint.startswith("unix:"):
        return True
    host = host_of(endpoint)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def proxy_variable(endpoint: str, *, tls: bool, environment: Mapping[str, str]) -> str:
    """The environment variable that names the proxy of an endpoint; empty: no proxy is used (A9).

    There is no proxy for plain text, nor for this machine; otherwise gRPC's rules apply.
    """
    if not tls or is_local(endpoint):
        return ""
    excluded = environment.get("no_grpc_proxy") or environment.get("no_proxy") or ""
    host = host_of(endpoint)
    suffixes = (each.strip() for each in excluded.split(","))
    if any(each and host.endswith(each) for each in suffixes):
        return ""
    names = ("grpc_proxy", "https_proxy", "http_proxy")
    return next((name for name in names if environment.get(name)), "")


def host_of(endpoint: str) -> str:
    """The host of `host:port`, without the brackets of an IPv6 address or gRPC's `dns:` prefix."""
    return endpoint.rpartition(":")[0].rpartition("/")[2].removeprefix("dns:").strip("[]")


def check_token(token: str, what: str) -> None:
    """Raises InvalidArgumentError, which does not show the token, if no header can carry it."""
    if not _TOKEN.fullmatch(token):
        raise InvalidArgumentError(
            f"{what} has a character that a token cannot have: it takes visible ASCII characters,"
            " without spaces or line breaks."
        )
