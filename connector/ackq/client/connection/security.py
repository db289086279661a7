"""How a client proves who it is and whom it trusts; importable without gRPC."""

from __future__ import annotations

from dataclasses import dataclass

from ackq.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Security:
    """Transport security of a connection; the default is plain text.

    Args:
        tls: Encrypt, and check the broker's certificate.
        ca: Path of a PEM file with the authorities to trust; empty: the system's.
        cert: Path of this client's PEM certificate, for mutual TLS; needs `key`.
        key: Path of its PEM private key.
        server_name: The name expected in the broker's certificate, when it is not the endpoint's
            host.

    Raises:
        InvalidArgumentError: A path or name without `tls`, or only one of `cert` and `key`.
    """

    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""

    def __post_init__(self) -> None:
        if not self.tls and (self.ca or self.cert or self.key or self.server_name):
            raise InvalidArgumentError(
                "A certificate, key or server name was given, but TLS is off; turn it on as well."
            )
        if bool(self.cert) != bool(self.key):
            raise InvalidArgumentError(
                "Mutual TLS needs both the client's certificate and its key."
            )
