"""Facts about a machine and the path to a broker, as gathered by `ackq doctor` (Q9)."""

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
        version: As reported by `java`, such as `17.0.9`; empty: it reported none.
        error: Why it could not be run; empty: it could.
        incubator: Whether it has the module `jdk.incubator.vector`, which Spark's launcher needs.
    """

    home: str = ""
    program: str = ""
    version: str = ""
    error: str = ""
    incubator: bool = True

    @property
    def major(self) -> int:
        """The feature release: 17 of `17.0.9`, 8 of `1.8.0_392`; 0 if it is unknown."""
        parts = self.version.replace("-", ".").replace("_", ".").split(".")
        number = parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0]
        return int(number) if number.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class PythonFacts:
    """A Python interpreter.

    Attributes:
        named_by: The environment variable that names it; empty: none does.
        program: The program as named by the variable, or by default.
        path: The program's path; empty: there is no such program.
        version: Its version, such as `3.11.4`; empty: it could not be run.
        missing: Modules that Spark's workers need and that it cannot import.
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
    """The software that is installed on this machine, and its settings.

    Attributes:
        python: This interpreter.
        worker: The interpreter that Spark's Python workers are started with.
        java: The Java that Spark would start.
        packages: Versions of packages by name; packages that are not installed are left out.
        spark_settings: The settings of `spark-defaults.conf`, if there is one.
        environment: The environment variables that affect Spark and Arrow, if they are set.
    """

    python: PythonFacts
    worker: PythonFacts
    java: JavaFacts
    packages: Mapping[str, str] = field(default_factory=dict)
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """Results of the steps on the path to a broker; a failed name, TCP or TLS step ends it.

    Attributes:
        endpoint: The endpoint as given.
        tls: Whether the client is set to encrypt.
        resolve_error: Why the name has no address; empty: it has.
        connect_error: Why no TCP connection was made; empty: one was.
        tls_error: Why the TLS handshake failed; empty: it succeeded, or was not tried.
        speaks_tls: Whether the broker completed a TLS handshake, even if `tls` is off.
        certificate_ends_us: When the broker's certificate expires; 0: not known.
        health_error: Why there was no answer to gRPC's health check; empty: there was.
        serving: Whether the broker reports that it serves.
        info: The broker's server info; None: it reported none.
        info_error: Why the broker reported no server info; empty: it did.
        unauthenticated: Whether the broker refused the token, or the lack of one.
        denied: Whether the broker refused for a missing permission.
        client_version: The version of this package.
        skew_ms: How far the broker's time is ahead of this machine's; negative: behind.
        round_trip_ms: How long the call took that asked for the broker's time.
        queue: The queue to look at; empty: none was named.
        queue_error: Why the queue could not be looked at; empty: it could.
        queue_denied: Whether a permission on the queue is missing.
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
