"""The table of all queues: totals, and pages of rows, filtered and sorted at the broker.

A page is made in a worker thread from columns, so that ten thousand queues do not block the loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ackq.errors import InvalidArgumentError
from ackq_broker.core import views
from ackq_broker.core.commands import QueueInfo
from ackq_broker.engine.clock import age_ms
from ackq_broker.engine.engine import Engine
from ackq_broker.http.context import View
from ackq_broker.http.listing import ListedRows, Listing

MOST_ROWS: Final = 500
# The most users whose tables are cached.
_MOST_VIEWS: Final = 20

_SUMMED: Final = (
    *("ready", "unacked", "delayed", "staged", "payload_bytes", "published", "accepted"),
    *("expired", "dead_lettered", "dropped", "consumers", "dead_letters_held"),
)
_SORTED: Final = ("age", "name", *_SUMMED)

_Int64s = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


class PageRequest(NamedTuple):
    """Selection of a page of queues: `filter` is part of a name, `show` one of `SHOWN`.

    `sort` is `age`, `name` or a count; ages and counts are in descending order, names in ascending.
    """

    filter: str = ""
    show: str = "all"
    sort: str = "age"
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True)
class QueueTable:
    """The rows of all queues as of one time."""

    listed: ListedRows[QueueInfo]

    @cached_property
    def _columns(self) -> dict[str, tuple[Any, ...]]:
        rows = self.listed.rows
        values = zip(*rows, strict=True) if rows else ((),) * len(QueueInfo._fields)
        return dict(zip(QueueInfo._fields, values, strict=True))

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(map(str.casefold, self._columns["queue"]))

    def numbers(self, column: str) -> _Int64s:
        """A column of numbers, in the order of the queues' names."""
        return np.array(self._columns[column], np.int64)

    @cached_property
    def totals(self) -> dict[str, Any]:
        """The sums over all queues, and the oldest message with its queue."""
        found: dict[str, Any] = {name: sum(self._columns[name]) for name in _SUMMED}
        oldest = self.numbers("oldest_us")
        held = np.flatnonzero(oldest)
        found["queues"] = len(oldest)
        found["oldest_age_ms"], found["oldest_queue"] = 0, ""
        if len(held):
            first = held[oldest[held].argmin()]
            found["oldest_age_ms"] = age_ms(int(oldest[first]), self.listed.taken_us)
            found["oldest_queue"] = self.listed.rows[first].queue
        return found

    def page(self, request: PageRequest) -> tuple[list[QueueInfo], int]:
        """The queues of a page, and the number of matches; raises InvalidArgumentError."""
        if request.show not in SHOWN or request.sort not in _SORTED:
            raise InvalidArgumentError(
                f"Queues are shown by {', '.join(SHOWN)} and sorted by {', '.join(_SORTED)}."
            )
        wanted = SHOWN[request.show](self)
        part = request.filter.casefold()
        if part:
            wanted &= np.fromiter((part in name for name in self._names), np.bool_, len(wanted))
        order = self._order(request.sort)
        found = order[wanted[order]]
        first = max(0, request.offset)
        shown = found[first : first + min(max(1, request.limit), MOST_ROWS)]
        return [self.listed.rows[at] for at in shown.tolist()], len(found)

    def _order(self, sort: str) -> _Int64s:
        """The indices of the rows in the order of `sort`; equal ones by name."""
        if sort == "name":
            return np.arange(len(self.listed.rows))
        if sort == "age":
            oldest = self.numbers("oldest_us")
            key = np.where(oldest > 0, oldest, np.iinfo(np.int64).max)
        else:
            key = -self.numbers(sort)
        return np.argsort(key, kind="stable")

    def all(self) -> _Mask:
        """A mask that selects every queue."""
        return np.ones(len(self.listed.rows), np.bool_)

    def full(self) -> _Mask:
        """A mask of the queues that are at one of their own bounds."""
        found = map(is_full, self.listed.rows)
        return np.fromiter(found, np.bool_, len(self.listed.rows))


SHOWN: Final[dict[str, Callable[[QueueTable], _Mask]]] = {
    "all": QueueTable.all,
    "messages": lambda table: table.numbers("oldest_us") > 0,
    "unacked": lambda table: table.numbers("unacked") > 0,
    "dead": lambda table: table.numbers("dead_letters_held") > 0,
    "full": QueueTable.full,
}


def is_full(queue: QueueInfo) -> bool:
    """Whether a queue is at a bound set by its properties (Q3)."""
    properties, messages = queue.properties, queue.ready
    if properties.overflow == "reject-publish":
        messages += queue.delayed + queue.unacked + queue.staged
    return (0 < properties.max_length <= messages) or (
        0 < properties.max_bytes <= queue.payload_bytes
    )


class QueueTables:
    """Cache of the tables of users; a table is rebuilt only when the list of queues was read."""

    def __init__(self, engine: Engine) -> None:
        core = engine.core
        self._engine = engine
        self._listing = Listing(
            engine,
            lambda: tuple(views.queue_ids(core.state)),
            lambda name: views.list_queues(core.state, name)[0],
        )
        self._tables: OrderedDict[str, tuple[ListedRows[QueueInfo], QueueTable]] = OrderedDict()

    async def get(self, view: View) -> QueueTable:
        """The current table of a view, its totals computed."""
        listed = await self._listing.get()
        of, table = self._tables.get(view.user, (None, None))
        if table is None or of is not listed:
            table = await self._engine.run(partial(_table, listed, view))
            self._tables[view.user] = (listed, table)
            if len(self._tables) > _MOST_VIEWS:
                self._tables.popitem(last=False)
        return table

    async def page(
        self, view: View, request: PageRequest
    ) -> tuple[QueueTable, list[QueueInfo], int]:
        """The table, a page of queues, and the number of matches; raises InvalidArgumentError."""
        table = await self.get(view)
        rows, matched = await self._engine.run(partial(table.page, request))
        return table, rows, matched


def _table(listed: ListedRows[QueueInfo], view: View) -> QueueTable:
    """Makes the table of a view and computes its totals; slow, for a worker thread."""
    shows = view.shows
    if shows is not None:
        shown = shows([row.queue for row in listed.rows])
        listed = listed._replace(rows=tuple(compress(listed.rows, shown)))
    table = QueueTable(listed)
    assert table.totals
    return table
