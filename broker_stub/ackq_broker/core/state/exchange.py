"""Exchanges (Q2): the queues to which their bindings route a routing key.

A key is matched once, however many rows have it; a topic is remembered until a binding changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ackq import limits
from ackq.errors import LimitError
from ackq_broker.core.state.route_cache import Grouped, Groups, RouteCache, grouped
from ackq_broker.core.state.topics import TopicTree, words_of

KINDS: Final = ("direct", "fanout", "topic")


class Exchange:
    """An exchange and its bindings, which name queues by id.

    Args:
        name: Name of the exchange.
        kind: One of `KINDS`.
        durable: Whether it survives a restart.
        cache: Cache of matched topics; all exchanges of a broker share one.
    """

    __slots__ = ("_all", "_cache", "_generation", "_topics", "bindings", "durable", "kind", "name")

    def __init__(
        self, name: str, kind: str, *, durable: bool, cache: RouteCache | None = None
    ) -> None:
        assert kind in KINDS
        self.name = name
        self.kind = kind
        self.durable = durable
        self.bindings: dict[str, set[int]] = {}
        self._topics = TopicTree()
        self._all: frozenset[int] | None = None
        self._cache = cache if cache is not None else RouteCache()
        self._forget()

    @property
    def keyed(self) -> bool:
        """Whether the exchange routes by the routing key of a message."""
        return self.kind != "fanout"

    def has(self, binding_key: str, queue_id: int) -> bool:
        """Whether the binding of this key to this queue exists."""
        return queue_id in self.bindings.get(binding_key, ())

    def bind(self, binding_key: str, queue_id: int) -> None:
        """Adds a binding."""
        if binding_key not in self.bindings:
            self.bindings[binding_key] = set()
            if self.kind == "topic":
                self._topics.add(binding_key, self.bindings[binding_key])
        self.bindings[binding_key].add(queue_id)
        self._forget()

    def unbind(self, binding_key: str, queue_id: int) -> None:
        """Removes a binding, which must exist."""
        self.bindings[binding_key].remove(queue_id)
        if not self.bindings[binding_key]:
            del self.bindings[binding_key]
            if self.kind == "topic":
                self._topics.remove(binding_key)
        self._forget()

    def match(self, routing_key: str) -> int:
        """Matches a key, unless it is cached; returns the number of steps that it took."""
        if self.kind != "topic" or (self._generation, routing_key) in self._cache:
            return 1
        words, groups, steps = words_of(routing_key), None, 1
        if len(words) <= limits.MAX_TOPIC_WORDS:
            groups = self._topics.match(words, limits.MAX_TOPIC_STEPS)
            steps = self._topics.steps
        self._cache.add((self._generation, routing_key), groups)
        return steps

    def groups(self, routing_key: str) -> Groups:
        """The ids of the queues that a routing key goes to, by binding key.

        Raises:
            LimitError: A topic has too many words, or takes too many steps.
        """
        if self.kind == "direct":
            queue_ids = self.bindings.get(routing_key)
            return (queue_ids,) if queue_ids else ()
        if self.kind == "fanout":
            return self._everyone()
        self.match(routing_key)
        groups = self._cache.find((self._generation, routing_key))
        if groups is None:
            raise self._refusal(routing_key)
        return groups

    def grouped(self, routing_keys: Sequence[str]) -> Grouped:
        """The keys by groups, None for a topic that is not in the cache, or is refused."""
        if self.kind == "topic":
            return self._cache.grouped(self._generation, routing_keys)
        found = map(self.bindings.get, routing_keys)
        return grouped([(queue_ids,) if queue_ids else () for queue_ids in found])

    def _everyone(self) -> Groups:
        if self._all is None:
            self._all = frozenset[int]().union(*self.bindings.values())
        return (self._all,) if self._all else ()

    def _refusal(self, routing_key: str) -> LimitError:
        check_words("routing key", routing_key)
        return LimitError(
            f"The routing key '{routing_key}' takes more than {limits.MAX_TOPIC_STEPS} steps to"
            f" match: too many bindings of the exchange '{self.name}' have '#' before other words."
            " Remove some.",
            exchange=self.name,
            limit=limits.MAX_TOPIC_STEPS,
        )

    def _forget(self) -> None:
        self._generation = self._cache.next_generation()
        self._all = None


def check_words(what: str, key: str) -> None:
    """Checks the number of words of a topic; raises LimitError."""
    words = len(words_of(key))
    if words > limits.MAX_TOPIC_WORDS:
        raise LimitError(
            f"The {what} '{key[:40]}...' has {words} words; a topic exchange takes"
            f" {limits.MAX_TOPIC_WORDS} at most. Use fewer.",
            limit=limits.MAX_TOPIC_WORDS,
        )
