"""Limits of file descriptors, and their share for connections; the order of a stop."""

import asyncio
import errno
import resource
import socket

import pytest

from ackq_broker import server
from ackq_broker.journal import Journal
from ackq_broker.journal.failpoints import unarmed
from ackq_broker.service.transport.listening import address
from tests.libraries import replace


@pytest.mark.parametrize(
    ("limits", "set_to", "expected"),
    [
        ((1024, 4096), (4096, 4096), 4096),
        ((1024, resource.RLIM_INFINITY), (1 << 20, resource.RLIM_INFINITY), 1 << 20),
        ((64, 64), None, 64),
    ],
)
def test_the_soft_limit_is_raised_to_the_hard_one(monkeypatch, limits, set_to, expected):
    """I6: the limit of descriptors is raised to the machine's, from a default of 1,024."""
    found = []

    def set_limits(_, both):
        found.append(both)

    replace(monkeypatch, server, resource, getrlimit=lambda _: limits, setrlimit=set_limits)
    assert server.raise_descriptor_limit() == expected
    assert found == ([set_to] if set_to else [])


@pytest.mark.parametrize(("limit", "connections"), [(64, 16), (1024, 768), (1 << 20, 1048320)])
def test_connections_leave_some_for_the_journal(limit, connections):
    """I6: a quarter of few descriptors, and all but 256 of many."""
    assert server.connection_descriptors(limit, 1) == connections
    assert server.connection_descriptors(limit, 2) == connections // 2


async def test_http_ends_before_the_journal(tmp_path, monkeypatch):
    """M1, I2: a purge by HTTP as the broker stops does not meet a closed journal: a failure."""
    close, stop, found = Journal.close, asyncio.Event(), []

    def closing(journal):
        with socket.socket() as late:
            found.append(late.connect_ex(("127.0.0.1", found.pop())))
        close(journal)

    def ready(served):
        found.append(served.http.port)
        stop.set()

    monkeypatch.setattr(Journal, "close", closing)
    here = address("127.0.0.1:0")
    options = server.Options(tmp_path, (here,), sync=False, failpoint=unarmed, http=here)
    await server.serve(options, stop, ready)
    assert found == [errno.ECONNREFUSED]
