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
