"""The broker that a client connects to, and the names of its settings; importable without gRPC.

Invariant: a setting has one name as a Spark option, one as a flag of commands and jobs, and one as
an environment variable, all derived from `SETTINGS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ackq import limits
from ackq.client.connection.security import Security
from ackq.errors import InvalidArgumentError

_PLAIN: Final = Security()


class Setting(NamedTuple):
    """A field of `Security`, and the names by which users set it.

    Attributes:
        field: Its name in `Security`.
        option: The Spark option.
        metavar: The argument of its flag; empty: the flag is a switch, the option true or false.
        help: Help of the flag; empty: the setting has neither flag nor environment variable.
    """

    field: str
    option: str
    metavar: str = "TEXT"
    help: str = ""

    @property
    def flag(self) -> str:
        """The flag of commands and jobs."""
        return f"--{self.field.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"ACKQ_{self.field.upper()}"


SETTINGS: Final = (
    Setting("tls", "tls", "", "Use TLS; implied by --ca, --cert, --key and --server-name."),
    Setting("ca", "tlsCa", help="PEM file with the authority of the broker's certificate."),
    Setting("cert", "tlsCert", help="PEM file with the client's certificate."),
    Setting("key", "tlsKey", help="PEM file with the key of the client's certificate."),
    Setting("ca_pem", "tlsCaPem"),
    Setting("cert_pem", "tlsCertPem"),
    Setting("key_pem", "tlsKeyPem"),
    Setting(
        "server_name",
        "tlsServerName",
        help="Expected name in the broker's certificate, if not the host.",
    ),
    Setting("token", "token"),
    Setting(
        "token_file",
        "tokenFile",
        "FILE",
        "File with the token of the user. The token itself may be in the environment as ACKQ_TOKEN,"
        " but not on the command line, where every user of this machine would see it (ps).",
    ),
    Setting(
        "insecure",
        "insecure",
        "",
        "Send the token to another machine without TLS, where others can read it.",
    ),
)
FLAGS: Final = tuple(setting for setting in SETTINGS if setting.help)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker, and how a client reaches it.

    Attributes:
        endpoint: `host:port`, or `unix:path`.
        security: Transport security and token. For a Spark query its files have the same paths on
            every host.
        retry_ms: Total time of retries, in ms, while the broker does not answer; None: no limit.
    """

    endpoint: str = limits.DEFAULT_ENDPOINT
    security: Security = _PLAIN
    retry_ms: int | None = limits.RETRY_TOTAL_MS

    @classmethod
    def of(
        cls,
        endpoint: str | Broker,
        security: Security | None = None,
        retry_ms: int | None = limits.RETRY_TOTAL_MS,
    ) -> Broker:
        """The `Broker` for a client's arguments, which may have one in place of an endpoint.

        Raises:
            InvalidArgumentError: A `Broker` was given with other arguments, which would have no
                effect.
        """
        if isinstance(endpoint, Broker):
            if security is not None or retry_ms != limits.RETRY_TOTAL_MS:
                raise InvalidArgumentError(
                    "'security' and 'retry_total_ms' have no effect next to a Broker, which has its"
                    " own; give them to the Broker."
                )
            return endpoint
        return cls(endpoint, security or _PLAIN, retry_ms)

    def options(self) -> dict[str, str]:
        """The options of `format("ackq")` that name this broker."""
        given = {each.option: getattr(self.security, each.field) for each in SETTINGS}
        texts = {name: "true" if value is True else value for name, value in given.items() if value}
        return {"endpoint": self.endpoint, **texts}
