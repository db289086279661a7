"""Seeded faults of a network: which fault strikes each connection, and at which byte.

Invariant: the same seed gives the connection of the same number the same faults, whatever became of
the other connections, so that a schedule replays.
"""

import random
from typing import NamedTuple

DIRECTIONS = ("to_broker", "to_client")
KINDS = {
    "reset": "both ends are reset, in place of the chunk that the byte is in",
    "end": "both ends see an orderly end, in place of that chunk",
    "truncate": "the chunk is forwarded up to the byte, and then comes an orderly end",
    "half-open": "from the byte on the direction is swallowed, its end as well; nobody is told",
    "delay": "each chunk waits for `amount` seconds, more or less by half",
    "throttle": "`amount` bytes pass in a second",
    "overtake": "what follows the byte reaches the broker when a newer connection's bytes have",
}
SLOW = {"delay", "throttle"}
# From a handshake of HTTP/2, an open and small frames up to several blocks.
_MOST_BYTES = 200_000
# Share of slow connections.
_SLOW = 0.3


class Fault(NamedTuple):
    """A fault of one connection, which strikes after `at_bytes` bytes in its direction."""

    kind: str
    direction: str
    at_bytes: int
    amount: float = 0.0


class Schedule:
    """The faults of all connections of one relay.

    Args:
        seed: Printed where a run fails; any text or number.
        kinds: The kinds of `KINDS` to draw from.
    """

    def __init__(self, seed, kinds=tuple(KINDS)):
        self.seed = seed
        self.kinds = tuple(kinds)

    def __call__(self, number):
        """The faults of a connection, counted from 1: one that slows it, then one that ends it."""
        rng = random.Random(f"{self.seed} {number}")
        slow = [kind for kind in self.kinds if kind in SLOW]
        ends = [kind for kind in self.kinds if kind not in SLOW]
        drawn = rng.sample(slow, k=bool(slow) and (not ends or rng.random() < _SLOW))
        drawn += rng.sample(ends, k=bool(ends))
        return [self._fault(rng, kind) for kind in drawn]

    def _fault(self, rng, kind):
        direction = "to_broker" if kind == "overtake" else rng.choice(DIRECTIONS)
        # As many strike in the first hundred bytes as between the last ten thousands.
        at_bytes = int(_MOST_BYTES ** rng.random()) - 1
        amount = 0.0
        if kind == "delay":
            amount = rng.uniform(0.005, 0.15)
        elif kind == "throttle":
            amount = round(10 ** rng.uniform(3.5, 6))
        return Fault(kind, direction, at_bytes, amount)
