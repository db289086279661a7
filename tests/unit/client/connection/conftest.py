from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from ackq.client import close_channels


@pytest.fixture
def serve():
    """Starts gRPC servers of some handlers, with a certificate or without; returns each port."""
    servers = []

    def start(*handlers, identity=None, client_ca=None):
        server = grpc.server(ThreadPoolExecutor(4), handlers)
        servers.append(server)
        if identity is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            pair = (Path(identity.key).read_bytes(), Path(identity.cert).read_bytes())
            trusted = Path(client_ca).read_bytes() if client_ca else None
            credentials = grpc.ssl_server_credentials([pair], trusted, bool(client_ca))
            port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        return port

    yield start
    close_channels()
    for each in servers:
        each.stop(0).wait()
