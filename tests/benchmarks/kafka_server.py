"""A Kafka broker of one node in KRaft mode, on free ports and a folder of its own.

Invariant: it ends with the block that started it. It runs with Kafka's own defaults: it answers a
producer when the batch is in the page cache, and syncs no message. A topic with `flush.messages` of
1 syncs each batch that is appended.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import cpu

from tests import ivy
from tests.ports import free_ports

VERSION = "3.9.1"
SERVER = f"org.apache.kafka:kafka_2.13:{VERSION}"
# The connector's own dependencies are of versions that Maven Central does not have.
SPARK = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    f"org.apache.kafka:kafka-clients:{VERSION}",
    "org.apache.commons:commons-pool2:2.12.0",
)
NAME = "kafka"
_START_S = 60.0
_STOP_S = 30.0
_FOLDER_ID = "AAAAAAAAQACAAAAAAAAAAQ"
# As in Kafka's own start script.
_JVM = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class KafkaServer:
    """A context manager that starts and stops a broker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._controller = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The broker's `host:port`."""
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        classpath = os.pathsep.join(ivy.jars(SERVER, dependencies=True))
        properties = self._folder / "server.properties"
        properties.write_text(self._properties(), encoding="utf-8")
        storage = ["java", "-cp", classpath, "kafka.tools.StorageTool", "format", "-t", _FOLDER_ID]
        subprocess.run([*storage, "-c", str(properties)], check=True, capture_output=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *_JVM, "-cp", classpath, "kafka.Kafka", str(properties)],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        cpu.SERVERS[NAME] = self._process.pid
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops the broker."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        cpu.SERVERS.pop(NAME, None)

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_S
        assert self._process is not None
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        tail = self._log.read_text(encoding="utf-8")[-2000:]
        raise RuntimeError(f"Kafka did not start; its log ends:\n{tail}")

    def _properties(self) -> str:
        values: dict[str, Any] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"PLAINTEXT://{self.endpoint},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{self.endpoint}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self._folder / "data",
            # One node has one replica.
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())


class Topics:
    """Topics of a broker, made and deleted by the client that Spark has loaded."""

    def __init__(self, jvm: Any, endpoint: str) -> None:
        self._jvm = jvm
        properties = jvm.java.util.Properties()
        properties.setProperty("bootstrap.servers", endpoint)
        self._admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)

    def create(self, name: str, *, partitions: int, flush: bool = False) -> None:
        """Makes a topic; with `flush` each batch is synced before it is answered."""
        jvm = self._jvm
        topic = jvm.org.apache.kafka.clients.admin.NewTopic(name, partitions, 1)
        if flush:
            configs = jvm.java.util.HashMap()
            configs.put("flush.messages", "1")
            topic.configs(configs)
        self._admin.createTopics(jvm.java.util.Collections.singleton(topic)).all().get()

    def delete(self, name: str) -> None:
        """Deletes a topic."""
        names = self._jvm.java.util.Collections.singleton(name)
        self._admin.deleteTopics(names).all().get()

    def close(self) -> None:
        """Closes the client."""
        self._admin.close()
