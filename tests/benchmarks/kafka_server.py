"""A Kafka broker of one node in KRaft mode, on free ports and a folder of its own.

Invariant: it ends with the block that started it. It runs with Kafka's own defaults: it answers a
producer when the batch is in the page cache, and syncs no message. A topic with `flush.messages` of
1 syncs each batch that is appended.
"""

import contextlib
import os
import socket
import subprocess

import cpu

from tests import ivy
from tests.eventually import eventually
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
_STOP_S = 30.0
_FOLDER_ID = "AAAAAAAAQACAAAAAAAAAAQ"
# As in Kafka's own start script.
_JVM = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


@contextlib.contextmanager
def running(folder):
    """Starts and stops a broker; yields its `host:port`."""
    port, controller = free_ports(2)
    endpoint = f"127.0.0.1:{port}"
    values = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://{endpoint},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://{endpoint}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        # One node has one replica.
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    properties, log = folder / "server.properties", folder / "server.log"
    properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    java = ["java", *_JVM, "-cp", os.pathsep.join(ivy.jars(SERVER, dependencies=True))]
    storage = ["kafka.tools.StorageTool", "format", "-t", _FOLDER_ID, "-c", str(properties)]
    subprocess.run([*java, *storage], check=True, capture_output=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(properties)], stdout=out, stderr=out, cwd=folder
        )

    def listening():
        assert process.poll() is None, log.read_text(encoding="utf-8")[-2000:]
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True

    try:
        eventually("Kafka", listening)
        cpu.SERVERS[NAME] = process.pid
        yield endpoint
    finally:
        cpu.SERVERS.pop(NAME, None)
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Topics:
    """Topics of a broker, made and deleted by the client that Spark has loaded."""

    def __init__(self, jvm, endpoint):
        self._jvm = jvm
        properties = jvm.java.util.Properties()
        properties.setProperty("bootstrap.servers", endpoint)
        self._admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)

    def create(self, name, *, partitions, flush=False):
        """Makes a topic; with `flush` each batch is synced before it is answered."""
        jvm = self._jvm
        topic = jvm.org.apache.kafka.clients.admin.NewTopic(name, partitions, 1)
        if flush:
            configs = jvm.java.util.HashMap()
            configs.put("flush.messages", "1")
            topic.configs(configs)
        self._admin.createTopics(jvm.java.util.Collections.singleton(topic)).all().get()

    def delete(self, name):
        """Deletes a topic."""
        names = self._jvm.java.util.Collections.singleton(name)
        self._admin.deleteTopics(names).all().get()

    def close(self):
        """Closes the client."""
        self._admin.close()
