"""The facts of a machine and of the way to a broker, as `ackq doctor` gathers them (Q9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ackq.info import ServerInfo


@dataclass(frozen=True, slots=True)
class JavaFacts:
    """The Java that Spark would start.

    Attributes:
        home: The environment's JAVA_HOME; empty: not set.
        program: The path of `java`; empty: there is none where Spark looks.
        version: As it says, such as `17.0.9`; empty: it said none.
        error: Why it could not be run; empty: it could.
        incubator: Whether it has the module `jdk.incubator.vector`, as Spark's launcher asks for.
    """

    home: str = ""
    program: str = ""
    version: str = ""
    error: str = ""
    incubator: bool = True

    @property
    def major(self) -> int:
        """The feature release: 17 of `17.0.9`, 8 of `1.8.0_392`; 0 when it is not known."""
        parts = self.version.replace("-", ".").replace("_", ".").split(".")
        number = parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0]
        return int(number) if number.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class PythonFacts:
    """A Python interpreter.

    Attributes:
        named_by: The environment variable that names it; empty: none does.
        program: What is named.
        path: Where that is; empty: there is none.
        version: `3.11.4`; empty: it could not be run.
        missing: Modules that it cannot import, of those that Spark's workers need.
        error: Why it could not be run; empty: it could.
    """

    named_by: str = ""
    program: str = ""
    path: str = ""
    version: str = ""
    missing: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What is installed here.

    Attributes:
        python: This interpreter.
        worker: The one that Spark's Python workers are started by.
        java: The Java that Spark would start.
        packages: Versions of installed packages by name; those that are not are left out.
        spark_settings: Of `spark-defaults.conf`, where there is one.
        environment: The variables that bear on Spark and Arrow, as far as they are set.
    """

    python: PythonFacts
    worker: PythonFacts
    java: JavaFacts
    packages: Mapping[str, str] = field(default_factory=dict)
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """How far the way to a broker goes: each step is tried when the one before it succeeded.

    Attributes:
        endpoint: As it was given.
        tls: Whether the client was told to encrypt.
        resolve_error: Why the name has no address; empty: it has.
        connect_error: Why no TCP connection was made; empty: one was.
        tls_error: Why the TLS handshake failed; empty: it succeeded, or was not tried.
        speaks_tls: Whether the broker answered a TLS handshake, asked or not.
        certificate_ends_us: When the broker's certificate expires; 0: not known.
        health_error: Why there was no answer to gRPC's health check; empty: there was.
        serving: Whether it says that it serves.
        info: What it says of itself; None: it did not.
        info_error: Why not.
        unauthenticated: Whether it refused because of the token, or because there was none.
        denied: Whether it refused for a missing permission.
        client_version: The version of this package.
        skew_ms: How far the broker's time is ahead of this machine's; negative: behind.
        round_trip_ms: How long the question for it took.
        queue: The queue to look at; empty: none was named.
        queue_error: Why it could not be looked at; empty: it could.
        queue_denied: Whether a permission is missing for it.
        proxy: The environment variable whose proxy the client's calls go through; empty: none.
    """

    endpoint: str
    tls: bool = False
    proxy: str = ""
    resolve_error: str = ""
    connect_error: str = ""
    tls_error: str = ""
    speaks_tls: bool = False
    certificate_ends_us: int = 0
    health_error: str = ""
    serving: bool = False
    info: ServerInfo | None = None
    info_error: str = ""
    unauthenticated: bool = False
    denied: bool = False
    client_version: str = ""
    skew_ms: int = 0
    round_trip_ms: int = 0
    queue: str = ""
    queue_error: str = ""
    queue_denied: bool = False
