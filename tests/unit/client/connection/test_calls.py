"""Streaming calls whose readers sleep."""

import threading
from types import SimpleNamespace

import grpc
import pytest

from ackq import limits
from ackq.client.connection import calls

SLEEP_S = limits.HEARTBEAT_SEND_MS / 1000


class Condition(threading.Condition):
    """Notes how long it is waited for, and does not."""

    def __init__(self):
        super().__init__()
        self.waited = []

    def wait(self, timeout=None):
        self.waited.append(timeout)
        return False


def test_a_reader_sleeps_until_it_is_woken(monkeypatch):
    """C12: whoever waits for a tenth of a second waits for a heartbeat."""
    monkeypatch.delenv("GRPC_ENABLE_FORK_SUPPORT", raising=False)
    call = SimpleNamespace(_state=SimpleNamespace(condition=Condition()))
    assert calls.patient(call) is call
    call._state.condition.wait(timeout=0.1)
    call._state.condition.wait()
    assert call._state.condition.waited == [SLEEP_S, SLEEP_S]


@pytest.mark.parametrize(
    "call", [object(), SimpleNamespace(_state=None), SimpleNamespace(_state=SimpleNamespace())]
)
def test_another_grpc_is_left_as_it_is(call):
    """C12: then a reader looks ten times a second, and nothing else is different."""
    assert calls.patient(call) is call


def test_forks_are_watched_for_as_before(monkeypatch):
    """C12: with fork support the threads of gRPC have to look, too."""
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "1")
    call = SimpleNamespace(_state=SimpleNamespace(condition=Condition()))
    assert calls.patient(call) is call
    call._state.condition.wait(0.1)
    assert call._state.condition.waited == [0.1]


def test_the_grpc_that_is_installed(monkeypatch):
    """C12: a version that is made otherwise is noticed here."""
    monkeypatch.delenv("GRPC_ENABLE_FORK_SUPPORT", raising=False)
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        call = calls.consume(channel, iter(()))
        assert "wait" in vars(call._state.condition)
        call.cancel()
