"""Keys of positions: found by block, after any removal, and dumped in one form."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from ackq_broker.core.columns import bitmaps, origin_keys
from ackq_broker.core.columns.origin_keys import OriginKeys


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Makes chunks merge, end and pack after a few rows."""
    monkeypatch.setattr(origin_keys, "_MOST_ROWS", 64)
    monkeypatch.setattr(origin_keys, "_PACK_ROWS", 8)


@dataclass
class Oracle:
    """Rows in a dictionary."""

    rows: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def find(self, firsts):
        keyed = [(at, row[0]) for at, row in self.rows.items() if row[:2] != (0, 0)]
        return [at for at, first in keyed if first in firsts]


def grown(seed, steps):
    """Keys after random appends and removals, and their expected rows."""
    random = np.random.default_rng(seed)
    keys, oracle, position = OriginKeys(), Oracle(), 1
    for _ in range(steps):
        rows = int(random.integers(1, 9))
        positions = position + np.cumsum(random.integers(1, 4, rows))
        position = int(positions[-1])
        halves = random.integers(0, 12, (rows, 2), dtype=np.uint64)
        halves[random.random(rows) < 0.2] = 0
        checks = random.integers(0, 5, rows, dtype=np.uint64)
        keys.append(positions, halves, checks)
        columns = positions.tolist(), halves.tolist(), checks.tolist()
        oracle.rows |= {at: (*half, check) for at, half, check in zip(*columns, strict=True)}
        if random.random() < 0.7:
            there = np.array(list(oracle.rows))
            gone = there[random.random(len(there)) < random.choice([0.05, 0.5])]
            keys.remove(bitmaps.of(gone))
            oracle.rows = {at: row for at, row in oracle.rows.items() if at not in gone}
    return keys, oracle


@pytest.mark.parametrize("seed", range(20))
def test_keys_are_those_of_a_dictionary(seed):
    """I2, I5: the positions of a key, the columns at each, positions without one, and the dump."""
    keys, oracle = grown(seed, 60)
    assert len(keys) == len(oracle.rows)
    assert list(keys.positions) == list(oracle.rows)
    assert list(keys.keyless) == [at for at, row in oracle.rows.items() if row[:2] == (0, 0)]
    for wanted in ({0}, {1, 5}, {3, 4, 11}, set(range(12)), {99}):
        firsts = np.array(sorted(wanted), np.uint64)
        assert keys.find(firsts).tolist() == oracle.find(wanted)
    positions = keys.find(np.arange(12, dtype=np.uint64))
    halves, checks = keys.at(positions)
    told = [(*half, check) for half, check in zip(halves.tolist(), checks.tolist(), strict=True)]
    assert told == [oracle.rows[at] for at in positions.tolist()]
    # Equal rows give equal bytes after any appends, merges and removals, and are read back.
    dumped = [bytes(column) for column in keys.dump()]
    columns = np.array(list(oracle.rows.values()), np.uint64)
    whole = OriginKeys()
    whole.append(bitmaps.array(keys.positions), columns[:, :2], columns[:, 2])
    read = OriginKeys.load(keys.positions.copy(), *dumped)
    for other in (whole, read):
        assert [bytes(column) for column in other.dump()] == dumped
        assert other.find(np.arange(12, dtype=np.uint64)).tolist() == positions.tolist()
        assert other.keyless == keys.keyless


def test_a_dump_is_of_its_moment():
    """I2: a dump lacks keys that are appended later, and has keys that are removed later."""
    keys, _ = grown(1, 30)
    expected = [bytes(column) for column in keys.dump()]
    dumped = keys.dump()
    last = keys.positions.max()
    keys.append(np.array([last + 1]), np.ones((1, 2), np.uint64), np.ones(1, np.uint64))
    keys.remove(keys.positions.copy())
    assert [bytes(column) for column in dumped] == expected
