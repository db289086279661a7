"""The broker's state machine: commands are decided on the state, only records change it (I2).

Invariant: the same records give the same state, byte for byte, whether applied live, in recovery,
or over a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView
from itertools import chain

from ackq_broker.core import commands
from ackq_broker.core.commands import (
    Command,
    Decision,
    Piece,
    Routes,
)
from ackq_broker.core.queues.routing import match, router_of
from ackq_broker.core.records import Record
from ackq_broker.core.snapshot.cut import Cut, dump
from ackq_broker.core.snapshot.load import load
from ackq_broker.core.state.state import State
from ackq_broker.core.tables import APPLY, DECIDE


class Core:
    """The state machine. Not thread-safe; it does no I/O and knows no clock.

    A caller decides a command, applies the decision's records at once and in order under
    consecutive sequences, and sends the reply when the journal has caught up (I1).
    """

    __slots__ = ("_cut", "_state")

    def __init__(self) -> None:
        self._state = State()
        self._cut: Cut | None = None

    @property
    def sequence(self) -> int:
        """Sequence of the record applied last; 0 before the first."""
        return self._state.sequence

    @property
    def history_id(self) -> str:
        """Id of the journal's history (Q8), as the last `Start` gave it."""
        return self._state.history_id

    @property
    def state(self) -> State:
        """The state, for the functions of `views`: nothing else reads it, and nobody changes it."""
        return self._state

    def decide(self, command: Command, now_us: int) -> Decision:
        """Decides a command; changes nothing.

        Args:
            command: One of `commands`.
            now_us: The broker's time, microseconds since the epoch; never earlier than in the
                previous call (Q8).

        Raises:
            AckqError: The command is refused; each command names the kinds.
        """
        self._state.signals.now_us = now_us
        return DECIDE[type(command)](self._state, command, now_us)

    def apply(self, sequence: int, record: Record) -> None:
        """Applies a record to the state; `sequence` must be the next one.

        An exception leaves the state half changed: the core must not be used afterwards.
        """
        assert sequence == self._state.sequence + 1, (sequence, self._state.sequence)
        if self._cut is None or not self._cut.open:
            APPLY[type(record)](self._state, sequence, record)
        else:
            with self._cut.guarding():
                APPLY[type(record)](self._state, sequence, record)
        self._state.sequence = sequence

    def snapshot(self) -> bytes:
        """Encodes the state as bytes: equal states give equal bytes."""
        return dump(self._state)

    def cut(self) -> Cut:
        """Returns the present state, to be encoded in pieces while later records are applied.

        Only one at a time; until all pieces are taken or it is closed, `apply` is slower.
        """
        assert self._cut is None or not self._cut.open, "one cut at a time"
        self._cut = Cut(self._state)
        return self._cut

    @classmethod
    def restore(cls, data: bytes) -> Core:
        """Restores a core from a snapshot; raises UnsupportedError for one of a newer version."""
        self = cls()
        self._state = load(data)
        return self

    # --- volatile: no record, lost with the process ---

    def drain_dead_blocks(self) -> list[int]:
        """The blocks that lost their last reference since the last call.

        A block may be dead right after the record that brings it, when a drop-head queue drops it.
        """
        return self._state.blocks.drain_dead()

    def match(self, exchange: str, routes: Routes, start: int, most_steps: int) -> int:
        """Matches topics before a decision, which then takes one step for each.

        Returns:
            The index of the first key from `start` on that is left after `most_steps`; the number
            of keys if none is.
        """
        router = router_of(self._state, exchange)
        if router is None:
            return len(routes.keys)
        return match(router, routes.keys, start, most_steps)

    def uncaptured(self, exchange: str, routes: Routes) -> list[int]:
        """The queues that a block goes to by its known routes and the open cut has not captured."""
        router = router_of(self._state, exchange)
        if router is None or self._cut is None or not self._cut.open:
            return []
        found = router.grouped(routes.keys).groups if router.keyed else [router.groups("")]
        return self._cut.untouched(chain.from_iterable(chain.from_iterable(filter(None, found))))

    def capture(self, queue_ids: Iterable[int]) -> None:
        """Captures queues for the open cut, if one is open, ahead of the record that needs it."""
        if self._cut is not None and self._cut.open:
            self._cut.capture(queue_ids)

    def pin(self, pieces: Iterable[Piece]) -> None:
        """Pins the blocks of pieces: they can be read until `unpin`, whatever is removed."""
        self._state.blocks.pin(piece.block_id for piece in pieces)

    def unpin(self, pieces: Iterable[Piece]) -> None:
        """Unpins the blocks of a `no_ack` delivery, or of a `pin`, once the service has read them.

        To be called once for each of them.
        """
        self._state.blocks.unpin(piece.block_id for piece in pieces)

    def drain_woken(self) -> KeysView[str]:
        """The queues that gained ready messages since the last call; volatile."""
        return self._state.signals.drain_woken()

    def drain_dead_letters(self) -> dict[tuple[str, str], int]:
        """Number of new dead letters since the last call, by queue and cause; volatile."""
        drained = dict(self._state.signals.dead_letters)
        self._state.signals.dead_letters.clear()
        return drained

    def note_consumers(
        self, queue: str, consumers: int, demand: Callable[[], commands.Demand] = commands.Demand
    ) -> None:
        """Sets the number of consumers of a queue, and the function that returns their demand.

        Volatile. A queue with consumers is in use (Q4), and does not expire (Q3). An unknown queue
        is ignored.
        """
        queue_id = self._state.queue_ids.get(queue)
        if queue_id is not None:
            self._state.queues[queue_id].consumers = consumers
            self._state.queues[queue_id].demand = demand
            self._state.queues[queue_id].use()
