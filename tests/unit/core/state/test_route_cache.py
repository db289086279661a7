"""A cache of routes, bounded by bytes."""

import sys

import pytest

from ackq import limits
from ackq_broker.core.state.exchange import Exchange
from ackq_broker.core.state.route_cache import RouteCache


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the bound of the cache 10 kB."""
    monkeypatch.setattr(limits, "ROUTE_CACHE_BYTES", 10_000)


@pytest.fixture
def exchange() -> Exchange:
    """A topic exchange with its cache."""
    return Exchange("x", "topic", durable=True, cache=RouteCache())


def test_it_is_bounded_by_bytes() -> None:
    """I6: keys of all exchanges share the bound; of long keys fewer fit."""
    cache = RouteCache()
    most = 0
    for number in range(1_000):
        key = f"{number}" * 40
        cache.add((number % 3, key), ())
        known = [*cache._young.values(), *cache._old.values()]
        most = max(most, sum(sys.getsizeof(key) for entries in known for key in entries))
    assert 2_000 < most < 10_000


def test_what_is_used_stays(exchange: Exchange) -> None:
    """I5: a stream of new keys does not push out a key that is looked up."""
    exchange.bind("#.used", 1)
    first = exchange.match("a.used")
    assert first > 1
    for number in range(1_000):
        exchange.match(f"new.{number}")
        assert exchange.match("a.used") == 1
        exchange.groups("a.used")
    assert exchange.match("new.1") > 1


def test_keys_are_grouped_anew_after_a_change(exchange, monkeypatch) -> None:
    """Q2: a block's keys that were grouped before follow a new match, and a new binding."""
    monkeypatch.setattr(limits, "ROUTE_CACHE_BYTES", 2_000)  # one or two keys a generation
    exchange.bind("a.*", 1)
    keys = ("a.b", "a.c", "d")
    assert exchange.grouped(keys).groups == [None]
    assert [exchange.match(key) for key in keys[:2]] != [1, 1]
    for expected in (({1},), ({1, 2},)):
        groups, firsts, codes = exchange.grouped(keys)
        assert [groups[code] for code in codes] == [expected, expected, None]
        assert [codes[first] for first in firsts] == list(range(len(groups)))
        exchange.bind("a.*", 2)
        assert exchange.grouped(keys).groups == [None]
        for key in keys[:2]:
            exchange.match(key)
