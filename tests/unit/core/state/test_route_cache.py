"""A cache of routes, bounded by bytes."""

import sys

from ackq import limits
from ackq_broker.core.state.exchange import Exchange
from ackq_broker.core.state.route_cache import RouteCache


def test_it_is_bounded_by_bytes(monkeypatch):
    """I5, I6: keys of all exchanges share the bound; new ones do not push out what is used."""
    monkeypatch.setattr(limits, "ROUTE_CACHE_BYTES", 10_000)
    cache = RouteCache()
    exchange = Exchange("x", "topic", durable=True, cache=cache)
    exchange.bind("#.used", 1)
    assert exchange.match("a.used") > 1
    for number in range(1_000):
        exchange.match(f"new.{number}" * 8)
        assert exchange.match("a.used") == 1
        exchange.groups("a.used")
        known = [*cache._young.values(), *cache._old.values()]
        assert sum(sys.getsizeof(key) for entries in known for key in entries) < 10_000
    assert exchange.match("new.1" * 8) > 1


def test_entries_of_a_block_may_fill_the_young_generation(monkeypatch):
    """I6, P3: old entries become young one after the other; one that fills it loses none."""
    monkeypatch.setattr(limits, "ROUTE_CACHE_BYTES", 10_000)
    exchange = Exchange("x", "topic", durable=True, cache=RouteCache())
    exchange.bind("#", 1)
    for first in (*range(0, 25, 5), *range(0, 25, 5)):
        keys = tuple(f"k.{number}" for number in (*range(first, first + 5), first))
        exchange.grouped(keys)
        assert [exchange.groups(key) for key in keys] == [({1},)] * 6
