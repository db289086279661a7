"""Single messages of several publishers that arrive in one turn of the loop share a block (P4).

Invariant: what a publisher is answered is what it would be answered alone: rows share a block only
if the core places all of them, and each publisher has one row in it at most.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np

from ackq import limits
from ackq.errors import AckqError
from ackq.v1 import publishing_pb2 as pb
from ackq_broker.core import commands
from ackq_broker.engine.engine import Engine
from ackq_broker.service.blocks import ingest


class Single(NamedTuple):
    """A publish of `part.row`: `alone`, or `placed` with others by the record of a sequence."""

    publisher_id: bytes
    header: pb.PublishHeader
    part: ingest.PreparedPart
    alone: Callable[[], None]
    placed: Callable[[int], None]


class Together:
    """The singles that wait to be decided, shared by the streams of all publishers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._singles: dict[Hashable, list[Single]] = {}
        self._publishers: set[bytes] = set()
        self._bytes = 0

    def add(self, single: Single) -> None:
        """Puts off a publish; those with the same key and columns are decided together."""
        if single.publisher_id in self._publishers or self._bytes > limits.FRAME_TARGET_BYTES:
            self._engine.catch_up()
        if not self._singles:
            self._engine.put_off(self._decide)
        assert single.part.row is not None
        block, _ = single.part.row
        keys = (single.part.routes.keys, block.routing_key)
        alike = (single.header.data.exchange, *keys, block.columns)
        self._singles.setdefault(alike, []).append(single)
        self._publishers.add(single.publisher_id)
        self._bytes += single.part.payload_bytes

    def _decide(self) -> None:
        found, self._singles = self._singles, {}
        self._publishers.clear()
        self._bytes = 0
        for singles in found.values():
            if len(singles) == 1 or not self._placed(singles):
                for single in singles:
                    single.alone()

    def _placed(self, singles: list[Single]) -> bool:
        """Publishes singles as one block; False if the core does not, and nothing is decided."""
        parts, headers = zip(*((each.part, each.header) for each in singles), strict=True)
        sizes = np.array([part.payload_bytes for part in parts])
        command = commands.PublishTogether(
            tuple(single.publisher_id for single in singles),
            tuple(header.data.first_number for header in headers),
            tuple(header.lowest_unanswered for header in headers),
            headers[0].data.exchange,
            parts[0].routes,
            int(sizes.sum()),
            sizes if (sizes != sizes[0]).any() else None,
        )
        try:
            placed, sequence = self._engine.decide(command, ingest.of_rows(parts))
        except AckqError:  # each publish gets its own refusal
            return False
        if placed:
            for single in singles:
                single.placed(sequence)
        return bool(placed)
