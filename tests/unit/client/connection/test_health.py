"""Waiting until a broker is ready."""

import socket
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from ackq import errors
from ackq.client import close_channels, wait_ready
from ackq.client.connection import retry


def test_wait_ready_returns_when_the_broker_serves():
    """The standard health check is repeated until a starting broker serves."""
    answers = iter([b"\x08\x02", b"\x08\x01"])
    server = grpc.server(ThreadPoolExecutor(1))
    check = grpc.unary_unary_rpc_method_handler(lambda _request, _context: next(answers))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    wait_ready(f"127.0.0.1:{port}", 10)
    assert next(answers, None) is None
    close_channels()
    server.stop(0).wait()


def test_wait_ready_keeps_its_bound_when_nothing_is_said(monkeypatch):
    """A silent listener uses up the whole timeout once, without a retry."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
        waits = []
        monkeypatch.setattr(retry.Patience, "wait_or_raise", lambda *told: waits.append(told))
        with pytest.raises(errors.BrokerUnavailableError, match=r"not be reached for 0\.5 s"):
            wait_ready(endpoint, 0.5)
    assert waits == []
    close_channels()
