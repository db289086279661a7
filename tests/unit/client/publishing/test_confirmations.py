"""Futures of publishes work with everything in the standard library that takes a future."""

import threading
from concurrent.futures import wait

from ackq.client.futures import FutureLock
from ackq.client.publishing import confirmations
from ackq.client.publishing.confirmations import Confirmation, ConfirmationFuture
from tests.eventually import SOON_S


def futures(count):
    return [ConfirmationFuture() for _ in range(count)]


def confirmed_soon(some, first=1):
    threading.Timer(0.05, confirmations.confirm, (some, first, {})).start()


def test_a_callback_that_exits_stops_nothing():
    """An exception in one callback stops neither other callbacks nor the thread."""
    one, other = futures(2)
    called = []

    def end(_):
        raise SystemExit

    one.add_done_callback(end)
    other.add_done_callback(called.append)
    confirmations.confirm([one, other], 1, {})
    assert called == [other]


def test_two_threads_wait_for_the_same_futures_in_any_order():
    """`wait` locks all its futures at once; opposite orders do not deadlock."""
    some = futures(100)
    threads = [
        threading.Thread(target=wait, args=(each, SOON_S), daemon=True)
        for each in (some, some[::-1], some[::2], some[1::2]) * 5
    ]
    for each in threads:
        each.start()
    confirmed_soon(some)
    for each in threads:
        each.join(SOON_S)
    assert not any(each.is_alive() for each in threads)


def test_a_fork_gets_a_lock_that_nobody_holds(monkeypatch):
    """A lock that another thread held at the fork is renewed in the child."""
    lock = FutureLock()
    monkeypatch.setattr(confirmations, "_LOCK", lock)
    holder = threading.Thread(target=lock.acquire)
    holder.start()
    holder.join(SOON_S)
    lock.renew()
    (future,) = futures(1)
    confirmations.confirm([future], 1, {})
    assert future.result(0) == Confirmation(1)
