"""gRPC channels: shared by the process, with checked endpoints and certificates."""

import pytest

from ackq import errors
from ackq.client import close_channels, grpc_channel
from tests.unit.client.threads import run_program


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


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ("localhost", "has no port"),
        ("localhost:", "has no port"),
        ("localhost:http", "has no port"),
        ("", "has no port"),
        ("localhost:\u00b2", "has no port"),
        ("localhost:65537", "has no port between 1 and 65535"),
        (":5775", "has no host"),
        ("http://localhost:5775", "is a URL"),
        ("::1:5775", "has an IPv6 address without brackets"),
        ("fe80::1:5775", "has an IPv6 address without brackets"),
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
