"""Waiting until a broker is ready."""

import socket

import grpc
import pytest

from ackq import errors
from ackq.client import Broker, close_channels, wait_ready
from ackq.client.connection import retry
from ackq.client.connection.health import serving


@pytest.fixture
def checked(serve):
    """A server with a health check: its endpoint and its next answers."""
    answers = []
    check = grpc.unary_unary_rpc_method_handler(lambda _request, _context: answers.pop(0))
    handler = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})
    return f"127.0.0.1:{serve(handler)}", answers


def test_wait_ready_returns_when_the_broker_serves(checked):
    """The standard health check is repeated until a starting broker serves."""
    endpoint, answers = checked
    answers += [b"\x08\x02", b"\x08\x01"]
    wait_ready(endpoint, 10)
    assert answers == []


def test_a_timeout_of_centuries(checked, monkeypatch):
    """A wait that ends after gRPC's last date is no wait that is over."""
    endpoint, answers = checked
    answers += [b"\x08\x01"] * 2

    def final(_, error):
        raise error

    monkeypatch.setattr(retry.Patience, "wait_or_raise", final)
    wait_ready(endpoint, 999_999 * 86_400.0)
    assert serving(Broker(endpoint), 999_999 * 86_400.0)


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
