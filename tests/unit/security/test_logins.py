"""Failed logins."""

import asyncio

import pytest

from ackq_broker.security import logins
from ackq_broker.security.logins import LoginFailures, address_of
from tests.libraries import replace


def test_each_failure_of_an_address_takes_longer():
    """A3: failed logins are delayed up to 5 s, per address; after a minute the delay is reset."""
    now = 0.0
    failures = LoginFailures(lambda: now)
    assert [failures.failed("a") for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert failures.failed("b") == 0.1
    now = 60.5
    assert failures.failed("a") == 0.1


def test_addresses_are_bounded(monkeypatch):
    """I6: remembered addresses are bounded; the one that failed longest ago is forgotten first."""
    monkeypatch.setattr(logins, "_ADDRESSES", 2)
    failures = LoginFailures()
    for address in ("a", "b", "a", "c"):
        failures.failed(address)
    assert failures.failed("a") == pytest.approx(0.4)
    assert failures.failed("b") == pytest.approx(0.1)


async def test_few_wait_at_a_time(monkeypatch):
    """A3: few failed logins wait at a time; beyond the bound they are answered at once."""
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        await asyncio.Event().wait()

    replace(monkeypatch, logins, asyncio, sleep=sleep)
    failures = LoginFailures()
    tasks = [asyncio.create_task(failures.slow(f"ipv4:10.0.0.1:{port}")) for port in range(20)]
    done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert (len(done), len(waiting), len(slept)) == (16, 4, 4)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert failures._waiting == {}


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.1:4711", "ipv4:10.0.0.1"),
        ("ipv6:%5B::1%5D:4711", "ipv6:%5B::1%5D"),
        ("2001:db8::1", "2001:db8::1"),
        ("unix:", "unix"),
        ("unix:/run/ackq.sock", "unix"),
        ("", ""),
    ],
)
def test_addresses(peer, address):
    """A3: an address is the peer without its port."""
    assert address_of(peer) == address
