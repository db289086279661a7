"""Apache Qpid Broker-J, from Maven Central, with a store that is a Derby database."""

import json

from tests import ivy
from tests.wire.links.amqp1.servers import DEAD_LETTERS, PASSWORD, QUEUES, USER, Server

VERSION = "9.2.1"


class Qpid(Server):
    """A node with one virtual host, which is the default one."""

    name = "qpid"

    def jars(self):
        group = "org.apache.qpid"
        # Not qpid-broker's own dependencies: one of them is not in Maven Central.
        return ivy.classpath(
            [
                f"{group}:qpid-broker-core:{VERSION}",
                f"{group}:qpid-broker-plugins-derby-store:{VERSION}",
                f"{group}:qpid-broker-plugins-logging-logback:{VERSION}",
            ],
            [
                f"{group}:qpid-broker:{VERSION}",
                f"{group}:qpid-broker-plugins-amqp-1-0-protocol:{VERSION}",
                "commons-cli:commons-cli:1.9.0",
            ],
        )

    @property
    def arguments(self):
        return [
            f"-DQPID_HOME={self.folder}",
            f"-DQPID_WORK={self.folder / 'work'}",
            # Derby syncs each message by itself, a hundred a second; a process that is killed
            # loses nothing without.
            "-Dderby.system.durability=test",
            f"-Dderby.stream.error.file={self.folder / 'derby.log'}",
            "org.apache.qpid.server.Main",
            "-icp",
            str(self.folder / "config.json"),
            "-st",
            "JSON",
        ]

    def configure(self):
        queues = [
            {"name": each, "alternateBinding": {"destination": DEAD_LETTERS}} for each in QUEUES
        ]
        host = {
            "type": "DERBY",
            "storePath": str(self.folder / "store"),
            "queues": [{"name": DEAD_LETTERS}, *queues],
        }
        users = [{"name": USER, "type": "managed", "password": PASSWORD}]
        (self.folder / "config.json").write_text(
            json.dumps(
                {
                    "name": "tests",
                    "modelVersion": "9.0",
                    "authenticationproviders": [
                        {
                            "name": "users",
                            "type": "Plain",
                            "secureOnlyMechanisms": [],
                            "users": users,
                        }
                    ],
                    "ports": [
                        {
                            "name": "AMQP",
                            "port": str(self.port),
                            "bindingAddress": "127.0.0.1",
                            "protocols": ["AMQP_1_0"],
                            "authenticationProvider": "users",
                            "virtualhostaliases": [
                                {"name": "defaultAlias", "type": "defaultAlias"},
                                {"name": "hostnameAlias", "type": "hostnameAlias"},
                                {"name": "nameAlias", "type": "nameAlias"},
                            ],
                        }
                    ],
                    "virtualhostnodes": [
                        {
                            "name": "sales",
                            "type": "JSON",
                            "defaultVirtualHostNode": "true",
                            "virtualHostInitialConfiguration": json.dumps(host),
                        }
                    ],
                }
            )
        )
