"""The broker of a job: where it is, and how the job proves who it is."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import Final

from ackq.client import Admin, Security

# Fields of `Security`, each an argument, a variable of the environment and an option of Spark.
_TEXTS: Final = {
    "ca": ("tlsCa", "PEM file with the authorities to trust; turns TLS on"),
    "cert": ("tlsCert", "PEM file with this job's certificate, for mutual TLS"),
    "key": ("tlsKey", "PEM file with its private key"),
    "server_name": ("tlsServerName", "the name in the broker's certificate"),
    "token_file": ("tokenFile", "file with the token that says who the job is; or ACKQ_TOKEN"),
}
_FLAGS: Final = {
    "tls": "encrypt",
    "insecure": "send the token to another machine without TLS, where others can read it",
}
_PLAIN: Final = Security()


@dataclass(frozen=True)
class Broker:
    """A broker, as driver and executors reach it.

    Attributes:
        endpoint: `host:port`.
        security: Its files have the same paths on every host.
    """

    endpoint: str
    security: Security = _PLAIN

    def options(self) -> dict[str, str]:
        """Options of `format("ackq")`."""
        given = self.security
        texts = {option: getattr(given, name) for name, (option, _) in _TEXTS.items()}
        texts["token"] = given.token
        flags = {name: "true" for name in _FLAGS if getattr(given, name)}
        return {
            "endpoint": self.endpoint,
            **flags,
            **{option: text for option, text in texts.items() if text},
        }

    def admin(self) -> Admin:
        """A client of its administration."""
        return Admin(self.endpoint, security=self.security)


def add_security(made: argparse.ArgumentParser) -> None:
    """Adds the arguments of `Security`; their defaults are the environment's, ACKQ_CA and so on."""
    group = made.add_argument_group(
        "security", "each also from the environment: ACKQ_CA, ACKQ_TOKEN_FILE and so on"
    )
    for name, help_ in _FLAGS.items():
        default = os.environ.get(_variable(name), "").lower() in {"1", "true", "yes"}
        group.add_argument(_flag(name), action="store_true", default=default, help=help_)
    for name, (_, help_) in _TEXTS.items():
        default = os.environ.get(_variable(name), "")
        group.add_argument(_flag(name), metavar="TEXT", default=default, help=help_)


def broker(args: argparse.Namespace) -> Broker:
    """The broker that the arguments name; raises as `Security`."""
    security = Security.of_settings({name: getattr(args, name) for name in (*_TEXTS, *_FLAGS)})
    security.check_endpoint(args.endpoint)
    return Broker(args.endpoint, security)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _variable(name: str) -> str:
    return f"ACKQ_{name.upper()}"
