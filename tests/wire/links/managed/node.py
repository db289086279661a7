"""A RabbitMQ node with the management API, and TLS that maps client certificates to users."""

import base64
import http.client
import json
import urllib.parse
from pathlib import Path

from tests.ports import free_ports
from tests.wire.brokers.rabbitmq_server import RabbitMqServer

PLUGINS = ("rabbitmq_management", "rabbitmq_auth_mechanism_ssl")
PASSWORD = "secret"
_CONFIG = """
management.tcp.ip = 127.0.0.1
management.tcp.port = {api_port}
listeners.ssl.1 = 127.0.0.1:{tls_port}
ssl_options.cacertfile = {ca}
ssl_options.certfile = {cert}
ssl_options.keyfile = {key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
ssl_cert_login_from = common_name
auth_mechanisms.1 = EXTERNAL
auth_mechanisms.2 = PLAIN
"""


class ManagedNode(RabbitMqServer):
    """A managed node, its users, and its server certificate.

    Args:
        folder: For its data and files.
        authority: Signs its certificate, and those of clients that it trusts.
    """

    def __init__(self, folder, authority):
        folder.mkdir()
        self.authority = authority
        self.api_port, self.tls_port = free_ports(2)
        identity = authority.issue("127.0.0.1")
        config = _CONFIG.format(
            api_port=self.api_port,
            tls_port=self.tls_port,
            ca=authority.ca,
            cert=identity.cert,
            key=identity.key,
        )
        super().__init__(folder / "node", name="ackq-managed", config=config, plugins=PLUGINS)

    @property
    def api(self):
        """The URL of the management API."""
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def url(self):
        """The URL of the TLS port."""
        return f"amqps://127.0.0.1:{self.tls_port}"

    def add_user(self, name, *, tags=(), read=".*", password=PASSWORD):
        """Adds a user who may read what matches, and do nothing else."""
        self.put("users", name, password=password, tags=",".join(tags))
        self.allow(name, read=read)

    def allow(self, name, *, read="^$", write="^$"):
        """Sets a user's read and write permission; it has no configure permission."""
        self.put("permissions", "/", name, configure="^$", write=write, read=read)

    def set_policy(self, name, pattern, definition):
        """Sets a policy for queues."""
        self.put("policies", "/", name, pattern=pattern, definition=definition)

    def put(self, *place, **fields):
        """Creates or changes an object by the management API, faster than by `rabbitmqctl`."""
        self._call("PUT", place, json.dumps(fields).encode())

    def delete(self, *place):
        """Deletes an object by the management API."""
        self._call("DELETE", place, None)

    def _call(self, method, place, body):
        path = "/".join(urllib.parse.quote(part, safe="") for part in place)
        login = base64.b64encode(b"guest:guest").decode()
        api = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=60)
        api.request(method, f"/api/{path}", body, {"Authorization": f"Basic {login}"})
        answer = api.getresponse()
        api.close()
        assert answer.status < 300, (place, answer.status)


def password_file(folder, password=PASSWORD):
    """A file with a password, by default that of the node's users."""
    path = Path(folder) / "password"
    path.touch(0o600)
    path.write_text(password)
    return str(path)
