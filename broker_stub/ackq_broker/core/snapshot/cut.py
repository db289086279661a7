"""A cut: the state as of one record, encoded in pieces while later records are applied.

An item of a table (a queue, a publisher) is captured once: as bytes, or as columns that are never
written to again. It is captured in its turn, or before the first record that accesses it, whichever
is earlier: while a cut is open, `apply` sees the tables through guards, which give access to no
item that is not captured. So all bytes are as of the cut, whatever is applied between the pieces;
items that a later record adds are not in them. One thread does all of it, and nothing is locked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

from ackq_broker.core.columns.pieces import Listed, pieces
from ackq_broker.core.snapshot import image
from ackq_broker.core.snapshot.load import MAGIC, VERSION
from ackq_broker.core.state.state import State

_IMAGES: Final[dict[str, Callable[[Any, Any], object]]] = {
    "queues": image.queue_image,
    "exchanges": image.exchange_image,
    "publishers": image.publisher_image,
    "writers": image.writer_image,
    "stages": image.stage_image,
    "sessions": image.session_image,
    "channels": image.channel_image,
    "links": image.link_image,
}


class _Captures:
    """The items of one table as of the cut: still untouched, captured, or encoded."""

    def __init__(self, items: dict[Any, Any], capture: Callable[[Any, Any], object]) -> None:
        self._length = len(items)
        self._untouched = items
        self._captured: deque[object] = deque()
        self._capture = capture

    def __contains__(self, key: object) -> bool:
        """Whether an item is still untouched."""
        return key in self._untouched

    def capture(self, key: Any) -> None:
        """Captures an item unless that is done; call it before the item changes."""
        item = self._untouched.pop(key, None)
        if item is not None:
            self._captured.append(self._capture(key, item))

    def listed(self) -> Listed:
        """All items, each captured at the latest when it is iterated."""
        return Listed(self._length, self._images())

    def _images(self) -> Iterator[object]:
        while self._captured or self._untouched:
            if self._captured:
                yield self._captured.popleft()
            else:
                yield self._capture(*self._untouched.popitem())


class _Guard(MutableMapping[Any, Any]):
    """A table that captures an item before it gives access to it."""

    def __init__(self, items: MutableMapping[Any, Any], captures: _Captures) -> None:
        self._items = items
        self._captures = captures

    def __getitem__(self, key: Any) -> Any:
        self._captures.capture(key)
        return self._items[key]

    def __setitem__(self, key: Any, item: Any) -> None:
        self._items[key] = item

    def __delitem__(self, key: Any) -> None:
        del self._items[key]

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Cut:
    """The state as of now, for encoding; `open` until it is encoded, or `close` is called.

    Args:
        state: Until then it changes only inside `guarding`.
        ordered: Whether the items of each table are sorted by key, so that equal states give equal
            bytes.
    """

    def __init__(self, state: State, *, ordered: bool = False) -> None:
        self.open = True
        self._state = state
        self._image = image.head_image(state)
        self._tables = {name: getattr(state, name) for name in _IMAGES}
        self._guards = {}
        self._captures = {}
        for name, capture in _IMAGES.items():
            items = self._tables[name]
            # In reverse order, as items are taken from the end.
            now = dict(sorted(items.items(), reverse=True)) if ordered else dict(items)
            captures = self._captures[name] = _Captures(now, capture)
            self._guards[name] = _Guard(items, captures)
            self._image[name] = captures.listed()

    def pieces(self) -> Iterator[bytes]:
        """Yields the bytes, each piece made in a moment; some are empty."""
        try:
            yield MAGIC + VERSION.to_bytes(2, "little")
            yield from pieces(self._image)
        finally:
            self.close()

    def untouched(self, queue_ids: Iterable[int]) -> list[int]:
        """The queues, among these, that the next record to access them would have to capture."""
        queues = self._captures["queues"]
        return [queue_id for queue_id in dict.fromkeys(queue_ids) if queue_id in queues]

    def capture(self, queue_ids: Iterable[int]) -> None:
        """Captures queues ahead of a record, which then takes less time."""
        for queue_id in queue_ids:
            self._captures["queues"].capture(queue_id)

    def close(self) -> None:
        """Ends the cut: records no longer need `guarding`."""
        self.open = False

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Context in which a record may be applied while the cut is open."""
        for name, guard in self._guards.items():
            setattr(self._state, name, guard)
        try:
            yield
        finally:
            for name, items in self._tables.items():
                setattr(self._state, name, items)


def dump(state: State) -> bytes:
    """Encodes the state at once: equal states give equal bytes."""
    return b"".join(Cut(state, ordered=True).pieces())
