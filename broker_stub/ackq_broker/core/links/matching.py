"""Matching (L4, L6, L7): finds the deliveries whose message is, or was, at the local broker.

Invariant: an entry is taken by one delivery of a subscription at most, and a delivery takes one
entry at most. Of several entries with one key the held ones go first, then the settled ones, each
lowest position first; so nothing is acknowledged at the remote broker while an equal message that
may be the same one is still held locally. Entries that were permitted before come last, the proven
ones after the ones in doubt.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.links.answers import Flags, members
from ackq_broker.core.state.link import Link
from ackq_broker.core.state.queue import Queue

_Uint64s = NDArray[np.uint64]


class Arrivals(NamedTuple):
    """Columns of deliveries, in their order: key, check, and two flags of each."""

    keys: _Uint64s
    checks: _Uint64s
    content: Flags
    redelivered: Flags


class Matches(NamedTuple):
    """Entries found for deliveries.

    Attributes:
        positions: Position of the entry that each delivery takes; 0: the delivery is stored.
        settled: Positions of taken entries whose message is settled.
        ambiguous: Entries that may be the message of a stored delivery, each of another one.
        id_reused: Number of deliveries that are stored though their id was known.
        repeats: Whether any delivery with an id comes again in its subscription.
    """

    positions: Int64s
    settled: BitMap64
    ambiguous: BitMap64
    id_reused: int
    repeats: bool = False


class _Table(NamedTuple):
    """Entries whose key a delivery has, and then the deliveries with a key, in one table.

    Each row has the number of its group, whose rows are equal in key, check and kind of key; and
    the number of its key alone.
    """

    groups: Int64s
    ids: Int64s
    checks: _Uint64s


def match(link: Link, queue: Queue, deliveries: Arrivals) -> Matches:
    """L6: finds entries for deliveries, a whole block at once."""
    taken = np.zeros(len(deliveries.keys), np.int64)
    rows, unmarked = _sought(link, deliveries)
    halves = deliveries.keys[rows, 0]
    firsts = np.unique(halves)
    positions = link.entries.find(firsts)
    if not len(positions) and len(firsts) == len(rows):
        return Matches(taken, BitMap64(), BitMap64(), 0)
    found = bitmaps.of(positions)
    gone = queue.gone(found)
    table = _table(link, positions, found, deliveries, rows)
    count = len(positions)
    free = ~members(positions, link.bound)
    proven = members(positions, link.proven_entries())
    permitted = members(positions, link.doubt) | proven
    lasting = members(positions, found - gone)
    order = np.lexsort((positions, ~lasting, proven, permitted, table.groups[:count]))
    order = order[free[order]]
    takes = _ranked(table.groups[:count][order], table.groups[count:])
    hits = np.flatnonzero(takes >= 0)
    # An entry whose message may have left the remote broker does not match a first delivery.
    hits = hits[~(unmarked[hits] & permitted[order[takes[hits]]])]
    entries = order[takes[hits]]
    may = _may_take(link, deliveries.content[rows[hits]], permitted, positions, entries)
    taken[rows[hits[may]]] = positions[entries[may]]
    matched = bitmaps.of(positions[entries[may]])
    return Matches(
        taken,
        matched & gone,
        bitmaps.of(positions[entries[~may]]),
        _reused(table, count, ~deliveries.content[rows] & (taken[rows] == 0)),
        _repeats(
            table.groups[:count][~free],
            table.groups[count:],
            deliveries.redelivered[rows] & ~deliveries.content[rows] & (takes < 0),
        ),
    )


def _sought(link: Link, deliveries: Arrivals) -> tuple[Int64s, Flags]:
    """The rows that may have an entry, and which of them have content keys and are not redelivered.

    The latter, unmarked rows come last. They are new, and left out, if no entry with a content key
    is awaited: else each would be compared with all entries that this subscription has brought.
    """
    unmarked = deliveries.content & ~deliveries.redelivered
    sought = deliveries.keys.any(axis=1)
    if unmarked.any() and not link.awaited() & link.content:
        sought &= ~unmarked
    rows = np.flatnonzero(sought)
    rows = rows[np.argsort(unmarked[rows], kind="stable")]
    return rows, unmarked[rows]


def _may_take(
    link: Link, content: Flags, permitted: Flags, positions: Int64s, entries: Int64s
) -> Flags:
    """L7: flags of the deliveries that may take their entry.

    The acknowledgement of a permitted entry may have been applied, so that its message would not
    come again. With an id it is the same message nevertheless; with content alone it may be an
    equal one.
    """
    unsure = content & permitted[entries]
    if link.drop_ambiguous and unsure.any():
        unsure &= ~members(positions[entries], link.doubt)
    found: Flags = ~unsure
    return found


def _table(
    link: Link, positions: Int64s, found: BitMap64, deliveries: Arrivals, rows: Int64s
) -> _Table:
    keys, checks = link.entries.at(positions)
    content = members(positions, found & link.content)
    keys = np.concatenate((keys, deliveries.keys[rows]))
    checks = np.concatenate((checks, deliveries.checks[rows]))
    content = np.concatenate((content, deliveries.content[rows]))
    order = np.lexsort((checks, keys[:, 1], keys[:, 0], content))
    sorted_keys = keys[order]
    breaks = (sorted_keys[1:] != sorted_keys[:-1]).any(axis=1)
    breaks |= content[order][1:] != content[order][:-1]
    ids = _numbered(order, breaks)
    groups = _numbered(order, breaks | (checks[order][1:] != checks[order][:-1]))
    return _Table(groups, ids, checks)


def _numbered(order: Int64s, breaks: Flags) -> Int64s:
    """Numbers each row by its stretch, where `breaks` separate the rows in the given order."""
    numbers = np.zeros(len(order), np.int64)
    numbers[order[1:]] = np.cumsum(breaks)
    return numbers


def _ranked(entry_groups: Int64s, row_groups: Int64s) -> Int64s:
    """The entry of each row: the one at its rank in its group, -1 for none; entries by group."""
    if not len(entry_groups):
        return np.full(len(row_groups), -1, np.int64)
    by_group = np.argsort(row_groups, kind="stable")
    ordered = row_groups[by_group]
    ranks = np.arange(len(ordered)) - np.searchsorted(ordered, ordered, "left")
    begins = np.searchsorted(entry_groups, ordered, "left")
    ends = np.searchsorted(entry_groups, ordered, "right")
    found = np.full(len(row_groups), -1, np.int64)
    found[by_group] = np.where(begins + ranks < ends, begins + ranks, -1)
    return found


def _repeats(bound_groups: Int64s, row_groups: Int64s, marked: Flags) -> bool:
    """Whether the equal of a marked row that finds no entry came earlier in the subscription."""
    if not marked.any():
        return False
    later = np.ones(len(row_groups), np.bool_)
    later[np.unique(row_groups, return_index=True)[1]] = False
    return bool((marked & (later | np.isin(row_groups, bound_groups))).any())


def _reused(table: _Table, count: int, stored: Flags) -> int:
    """L4: number of stored rows whose id an entry, or an earlier row, has with another content."""
    if not stored.any():
        return 0
    order = np.argsort(table.ids, kind="stable")
    ids = table.ids[order]
    # The first of a key is an entry, or else the row that came first.
    first = order[np.searchsorted(ids, table.ids, "left")]
    differs = table.checks != table.checks[first]
    some = np.zeros(len(ids), np.bool_)
    some[table.ids[differs & (np.arange(len(ids)) < count)]] = True
    known = first[count:] < count
    mixed = some[table.ids[count:]] & known
    return int((stored & (differs[count:] | mixed)).sum())
