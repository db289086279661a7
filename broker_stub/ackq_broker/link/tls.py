"""What encrypts a connection to another broker: PEM files as the standard library's context."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from ackq.errors import TlsError


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of a TLS connection, as PEM; empty: the system's authorities, no certificate."""

    ca: str = ""
    cert: str = ""
    key: str = ""

    def context(self) -> ssl.SSLContext:
        """What encrypts and checks the broker's certificate and name. Raises TlsError."""
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.cert:
                context.load_cert_chain(self.cert, self.key or None)
        except OSError as error:  # ssl.SSLError too
            raise TlsError(
                f"The files of TLS ({', '.join(filter(None, (self.ca, self.cert, self.key)))})"
                f" cannot be used: {error.strerror or error}. Name PEM files that this user can"
                " read, the key without a passphrase."
            ) from error
        return context
