"""Apache Qpid Broker-J, from Maven Central, with a Derby database as its store."""

import json
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificates

from tests import ivy
from tests.wire.links.amqp1.servers import DEAD_LETTERS, PASSWORD, QUEUES, USER, Server

VERSION = "9.2.1"
_PORT = {
    "bindingAddress": "127.0.0.1",
    "protocols": ["AMQP_1_0"],
    "virtualhostaliases": [
        {"name": "defaultAlias", "type": "defaultAlias"},
        {"name": "hostnameAlias", "type": "hostnameAlias"},
        {"name": "nameAlias", "type": "nameAlias"},
    ],
}


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
            # Derby syncs each message by itself, a hundred a second; without that a killed
            # process loses nothing.
            "-Dderby.system.durability=test",
            f"-Dderby.stream.error.file={self.folder / 'derby.log'}",
            "org.apache.qpid.server.Main",
            "-icp",
            str(self.folder / "config.json"),
            "-st",
            "JSON",
        ]

    def configure(self):
        store = self.folder / "own.p12"
        store.write_bytes(_pkcs12(self.authority.issue("127.0.0.1")))
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
                        },
                        {"name": "certificates", "type": "External", "useFullDN": False},
                    ],
                    "keystores": [
                        {
                            "name": "own",
                            "type": "FileKeyStore",
                            "keyStoreType": "PKCS12",
                            "storeUrl": str(store),
                            "password": PASSWORD,
                        }
                    ],
                    "truststores": [
                        {
                            "name": "authority",
                            "type": "NonJavaTrustStore",
                            "certificatesUrl": self.authority.ca,
                        }
                    ],
                    "ports": [
                        {
                            "name": "AMQP",
                            "port": str(self.port),
                            "authenticationProvider": "users",
                            **_PORT,
                        },
                        {
                            "name": "AMQPS",
                            "port": str(self.tls_port),
                            "authenticationProvider": "certificates",
                            "transports": ["SSL"],
                            "keyStore": "own",
                            "trustStores": ["authority"],
                            "needClientAuth": True,
                            **_PORT,
                        },
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


def _pkcs12(identity):
    """A certificate with its key as PKCS 12; of PEM keys, Qpid reads only RSA."""
    cert, *chain = load_pem_x509_certificates(Path(identity.cert).read_bytes())
    key = serialization.load_pem_private_key(Path(identity.key).read_bytes(), None)
    secret = serialization.BestAvailableEncryption(PASSWORD.encode())
    return pkcs12.serialize_key_and_certificates(b"own", key, cert, chain, secret)
