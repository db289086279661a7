"""gRPC channels: shared by the process, with checked endpoints and certificates."""

import shutil
from unittest.mock import Mock

import grpc
import pytest

from ackq import errors
from ackq.client import Broker, Security, close_channels, grpc_channel
from ackq.client.connection.errors import from_rpc
from ackq.client.connection.grpc_channels import replace_channel
from tests.fakes.certificates import Authority
from tests.unit.client.threads import logged, run_program


def test_fork_makes_its_own_channel(broker):
    """A channel made before a fork is never used after it."""
    run_program(f"""
        import os
        from ackq.client import grpc_channel
        parent = grpc_channel({broker.endpoint!r})
        child = os.fork()
        if not child:
            os._exit(0 if grpc_channel({broker.endpoint!r}) is not parent else 1)
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)


NO_PORTS = ("localhost", "localhost:", "localhost:http", "", "localhost:\u00b2")


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        *((each, "has no port") for each in NO_PORTS),
        ("localhost:65537", "has no port between 1 and 65535"),
        (":5775", "has no host"),
        ("http://localhost:5775", "is a URL"),
        *((each, "has an IPv6 address without brackets") for each in ("::1:5775", "fe80::1:5775")),
        (None, "is a NoneType"),
    ],
)
def test_endpoint_is_host_and_port(endpoint, problem):
    """Endpoints that gRPC would misread are refused: it takes port 65537 for port 1."""
    with pytest.raises(errors.InvalidArgumentError, match=f"{problem}; write it as host:port"):
        grpc_channel(endpoint)


@pytest.mark.parametrize("endpoint", ["[::1]:5775", "unix:/tmp/x", "dns:///localhost:5775"])
def test_endpoint_may_have_another_form(endpoint):
    grpc_channel(endpoint)
    close_channels()


def test_a_certificate_that_is_renewed(tmp_path, caplog):
    """A9: files that do not fit, as between two renames, change nothing and are logged once.

    A new file of any kind leads to a new channel.
    """
    authority, other = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    first, second = authority.issue("me"), authority.issue("me")
    ca, cert, key = (tmp_path / name for name in ("ca", "cert", "key"))

    def rename(source, target):
        shutil.copy(source, tmp_path / "new").rename(target)

    rename(authority.ca, ca)
    rename(first.cert, cert)
    rename(first.key, key)
    files = Security(tls=True, ca=str(ca), cert=str(cert), key=str(key))
    broker = Broker("127.0.0.1:1", files)
    channel = grpc_channel(broker)
    rename(second.cert, cert)
    assert [grpc_channel(broker), grpc_channel(broker)] == [channel, channel]
    (record,) = logged(caplog)
    assert "is not the key of the certificate" in record.getMessage()
    replace_channel(broker, channel)
    assert grpc_channel(broker) is channel
    unconnected = Mock(spec=["trailing_metadata", "code", "details"])
    unconnected.trailing_metadata.return_value = ()
    unconnected.code.return_value = grpc.StatusCode.UNAVAILABLE
    unconnected.details.return_value = "failed to connect to all addresses"
    assert isinstance(from_rpc(unconnected, broker), errors.BrokerUnavailableError)
    rename(second.key, key)
    renewed = grpc_channel(broker)
    assert renewed is not channel
    rename(other.ca, ca)
    assert grpc_channel(broker) is not renewed
    close_channels()
    rename(first.cert, cert)
    with pytest.raises(errors.InvalidArgumentError, match="is not the key of the certificate"):
        grpc_channel(broker)
