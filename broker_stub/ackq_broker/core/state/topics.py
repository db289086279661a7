"""Binding keys of a topic exchange as a tree of words (Q2); the work of a match is bounded (I6)."""

from __future__ import annotations


def words_of(key: str) -> list[str]:
    """Splits a topic into words; an empty key has none, so `*` does not match it (Q2)."""
    return key.split(".") if key else []


class TopicTree:
    """The binding keys by their words; each leads to the queues that are bound with it.

    A match walks all open branches word by word. `steps` is the number of nodes that it looked at.
    """

    __slots__ = ("_root", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self._root = _Node()

    def add(self, binding_key: str, queue_ids: set[int]) -> None:
        """Adds a binding key with its queues, a set that may change later."""
        node = self._root
        for word in words_of(binding_key):
            node = node.children.setdefault(word, _Node(repeats=word == "#"))
        node.queue_ids = queue_ids

    def remove(self, binding_key: str) -> None:
        """Removes a binding key, and the words that only it has."""
        words = words_of(binding_key)
        path = [self._root]
        for word in words:
            path.append(path[-1].children[word])
        path[-1].queue_ids = set()
        for node, word in zip(reversed(path[:-1]), reversed(words), strict=True):
            child = node.children[word]
            if child.children or child.queue_ids:
                break
            del node.children[word]

    def match(self, words: list[str], most_steps: int) -> tuple[set[int], ...] | None:
        """The queues of each binding key that matches these words; None above `most_steps`."""
        self.steps = 0
        nodes = self._with_empty_hashes({self._root}, most_steps)
        for word in words:
            if self.steps > most_steps:
                return None
            following = {node for node in nodes if node.repeats}
            for node in nodes:
                following.update(node.children[w] for w in (word, "*") if w in node.children)
            nodes = self._with_empty_hashes(following, most_steps)
        if self.steps > most_steps:
            return None
        return tuple(node.queue_ids for node in nodes if node.queue_ids)

    def _with_empty_hashes(self, nodes: set[_Node], most_steps: int) -> set[_Node]:
        """Adds the nodes after each `#` that stands for no word; incomplete above `most_steps`."""
        found = set(nodes)
        pending = list(nodes)
        while pending and self.steps + len(found) <= most_steps:
            behind = pending.pop().children.get("#")
            if behind is not None and behind not in found:
                found.add(behind)
                pending.append(behind)
        self.steps += len(found)
        return found


class _Node:
    """A word of binding keys; `repeats` if it is a `#`, which stands for any number of words."""

    __slots__ = ("children", "queue_ids", "repeats")

    def __init__(self, *, repeats: bool = False) -> None:
        self.children: dict[str, _Node] = {}
        self.queue_ids: set[int] = set()
        self.repeats = repeats
