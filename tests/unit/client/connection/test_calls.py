"""Streaming calls whose reader threads sleep instead of polling."""

from types import SimpleNamespace

import grpc
import pytest

from ackq import limits
from ackq.client.connection import calls

SLEEP_S = limits.HEARTBEAT_SEND_MS / 1000


@pytest.mark.parametrize(("forks", "waits"), [("", [SLEEP_S, SLEEP_S]), ("1", [0.1, None])])
def test_a_reader_sleeps_until_it_is_woken(monkeypatch, forks, waits):
    """C12: gRPC's polling wait of 0.1 s becomes a heartbeat interval, but with its fork support."""
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", forks)
    waited = []
    condition = SimpleNamespace(wait=lambda timeout=None: waited.append(timeout))
    call = SimpleNamespace(_state=SimpleNamespace(condition=condition))
    assert calls.patient(call) is call
    condition.wait(timeout=0.1)
    condition.wait()
    assert waited == waits


def test_the_grpc_that_is_installed(monkeypatch):
    """C12: detects a gRPC version whose calls have other internals."""
    monkeypatch.delenv("GRPC_ENABLE_FORK_SUPPORT", raising=False)
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        call = calls.consume(channel, iter(()))
        assert "wait" in vars(call._state.condition)
        call.cancel()
