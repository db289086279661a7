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
        {"name": f"{each}Alias", "type": f"{each}Alias"} for each in ("default", "hostname", "name")
    ],
}


class Qpid(Server):
    """A node with one virtual host, which is the default one."""

    name = "qpid"

    def jars(self):
        group = "org.apache.qpid"
        # Not qpid-broker's own dependencies: one of them is not in Maven Central.
        names = ("core", "plugins-derby-store", "plugins-logging-logback")
        alone = ("qpid-broker", "qpid-broker-plugins-amqp-1-0-protocol")
        return ivy.classpath(
            [f"{group}:qpid-broker-{name}:{VERSION}" for name in names],
            [*(f"{group}:{name}:{VERSION}" for name in alone), "commons-cli:commons-cli:1.9.0"],
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
        dead = {"alternateBinding": {"destination": DEAD_LETTERS}}
        host = {
            "type": "DERBY",
            "storePath": str(self.folder / "store"),
            "queues": [{"name": DEAD_LETTERS}, *({"name": each, **dead} for each in QUEUES)],
        }
        user = {"name": USER, "type": "managed", "password": PASSWORD}
        plain = {"type": "Plain", "secureOnlyMechanisms": [], "users": [user]}
        own = {"type": "FileKeyStore", "keyStoreType": "PKCS12", "storeUrl": str(store)}
        trust = {"type": "NonJavaTrustStore", "certificatesUrl": self.authority.ca}
        secure = {"transports": ["SSL"], "keyStore": "own", "trustStores": ["authority"]}
        ports = [
            {"name": "AMQP", "port": str(self.port), "authenticationProvider": "users"},
            {"name": "AMQPS", "port": str(self.tls_port), "needClientAuth": True, **secure},
        ]
        ports[1]["authenticationProvider"] = "certificates"
        node = {"name": "sales", "type": "JSON", "defaultVirtualHostNode": "true"}
        configuration = {
            "name": "tests",
            "modelVersion": "9.0",
            "authenticationproviders": [
                {"name": "users", **plain},
                {"name": "certificates", "type": "External", "useFullDN": False},
            ],
            "keystores": [{"name": "own", "password": PASSWORD, **own}],
            "truststores": [{"name": "authority", **trust}],
            "ports": [{**port, **_PORT} for port in ports],
            "virtualhostnodes": [{**node, "virtualHostInitialConfiguration": json.dumps(host)}],
        }
        (self.folder / "config.json").write_text(json.dumps(configuration))


def _pkcs12(identity):
    """A certificate with its key as PKCS 12; of PEM keys, Qpid reads only RSA."""
    cert, *chain = load_pem_x509_certificates(Path(identity.cert).read_bytes())
    key = serialization.load_pem_private_key(Path(identity.key).read_bytes(), None)
    secret = serialization.BestAvailableEncryption(PASSWORD.encode())
    return pkcs12.serialize_key_and_certificates(b"own", key, cert, chain, secret)
