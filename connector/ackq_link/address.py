"""Where another broker is, and how a link proves who it is there.

Invariant: no `repr`, message or log shows a password, wherever it was said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ackq.errors import InvalidArgumentError
from ackq.secret_files import warn_if_public
from ackq_link.tls import Tls


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """A broker, and the user there.

    Attributes:
        url: `amqp://HOST[:PORT][/VHOST]`, or amqps, without user and password.
        user: Its name there; empty: none.
        password: Of that user; never shown.
        password_file: Instead: a file that holds it, read at each connect.
        tls: Files, for amqps.
        heartbeat_s: A connection that is silent three times as long is cut.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    tls: Tls = field(default_factory=Tls)
    heartbeat_s: int = 10

    @property
    def secure(self) -> bool:
        """Whether it is encrypted."""
        return self.url.startswith("amqps:")

    def secret(self) -> str:
        """The password. Raises InvalidArgumentError when its file cannot be read."""
        if not self.password_file:
            return self.password
        try:
            warn_if_public(self.password_file)
            # All of the first line: a password may begin and end with blanks.
            text = Path(self.password_file).read_text(encoding="utf-8")
            return text.partition("\n")[0].removesuffix("\r")
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(
                f"The password file {self.password_file} cannot be read:"
                f" {getattr(error, 'strerror', None) or 'it is no text'}. Name another one."
            ) from error
