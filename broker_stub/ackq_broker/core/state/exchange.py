"""Exchanges (Q2): which queues their bindings give a routing key to.

A key is matched once, however many rows have it, and remembered until a binding changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

KINDS: Final = ("direct", "fanout", "topic")
# Keys remembered for each exchange; then the memory starts afresh.
_CACHED_KEYS: Final = 65_536

Targets = tuple[int, ...]


class Exchange:
    """An exchange and its bindings, which name queues by id."""

    __slots__ = ("_cache", "_topics", "bindings", "durable", "kind", "name")

    def __init__(self, name: str, kind: str, *, durable: bool) -> None:
        assert kind in KINDS
        self.name = name
        self.kind = kind
        self.durable = durable
        self.bindings: dict[str, set[int]] = {}
        self._cache: dict[str, Targets] = {}
        self._topics: _TopicNode | None = None

    def has(self, binding_key: str, queue_id: int) -> bool:
        """Whether this binding exists."""
        return queue_id in self.bindings.get(binding_key, ())

    def bind(self, binding_key: str, queue_id: int) -> None:
        """Adds a binding."""
        self.bindings.setdefault(binding_key, set()).add(queue_id)
        self._forget()

    def unbind(self, binding_key: str, queue_id: int) -> None:
        """Removes a binding, which must exist."""
        self.bindings[binding_key].remove(queue_id)
        if not self.bindings[binding_key]:
            del self.bindings[binding_key]
        self._forget()

    def targets(self, routing_key: str) -> Targets:
        """The ids of the queues that want this key, ascending."""
        found = self._cache.get(routing_key)
        if found is None:
            if len(self._cache) >= _CACHED_KEYS:
                self._cache.clear()
            found = self._cache[routing_key] = tuple(sorted(self._match(routing_key)))
        return found

    def _match(self, routing_key: str) -> Iterable[int]:
        if self.kind == "direct":
            return self.bindings.get(routing_key, set())
        if self.kind == "fanout":
            return set().union(*self.bindings.values())
        if self._topics is None:
            self._topics = _TopicNode()
            for binding_key, queue_ids in self.bindings.items():
                self._topics.add(_words(binding_key), queue_ids)
        return self._topics.match(_words(routing_key))

    def _forget(self) -> None:
        self._cache.clear()
        self._topics = None


def _words(key: str) -> list[str]:
    """The words of a topic; an empty key has none, so `*` does not match it (Q2)."""
    return key.split(".") if key else []


class _TopicNode:
    """A word of binding keys.

    Matching walks all open branches word by word: words times nodes at worst.
    """

    __slots__ = ("children", "queue_ids", "repeats")

    def __init__(self, *, repeats: bool = False) -> None:
        self.children: dict[str, _TopicNode] = {}
        self.queue_ids: set[int] = set()
        self.repeats = repeats

    def add(self, words: list[str], queue_ids: set[int]) -> None:
        node = self
        for word in words:
            node = node.children.setdefault(word, _TopicNode(repeats=word == "#"))
        node.queue_ids |= queue_ids

    def match(self, words: list[str]) -> set[int]:
        open_nodes = _with_empty_hashes({self})
        for word in words:
            following = {node for node in open_nodes if node.repeats}
            for node in open_nodes:
                following.update(node.children[w] for w in (word, "*") if w in node.children)
            open_nodes = _with_empty_hashes(following)
        return {queue_id for node in open_nodes for queue_id in node.queue_ids}


def _with_empty_hashes(nodes: set[_TopicNode]) -> set[_TopicNode]:
    """The nodes, and those behind a `#` that stands for no word at all."""
    found = set(nodes)
    pending = list(nodes)
    while pending:
        behind = pending.pop().children.get("#")
        if behind is not None and behind not in found:
            found.add(behind)
            pending.append(behind)
    return found
