"""A user's queues, exchanges, bindings and staged bytes (A5); streams are counted as they are.

Queues and exchanges have no owner: a user's are those that its permission `configure` names, and
its bindings are those of the queues that `write` names. Stages are known from their opening on,
while the broker runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import compress
from typing import Any, Protocol

from ackq import limits
from ackq_broker.security.callers import Caller
from ackq_broker.security.streams import over_limit


class Owned(Protocol):
    """What the broker has that counts."""

    def queue_names(self) -> Collection[str]:
        """The names of all queues."""
        ...

    def exchange_names(self) -> Collection[str]:
        """The names of all exchanges."""
        ...

    def bindings(self) -> int:
        """The number of all bindings."""
        ...

    def bindings_of_queues(self) -> dict[str, int]:
        """The number of bindings of each queue, by its name."""
        ...

    def staged_bytes(self, stage_ids: Iterable[bytes]) -> dict[bytes, int]:
        """The payload bytes of those of the stages that are there."""
        ...


class Usage:
    """Checks requests that take more."""

    def __init__(self, owned: Owned | None) -> None:
        self._owned = owned
        self._stages: dict[str, set[bytes]] = {}

    def check(self, caller: Caller, method: str, request: Any) -> None:
        """Checks a request that was permitted; raises LimitError."""
        assert caller.rights is not None
        most = caller.rights.user.limits
        if method == "ackq.v1.AdminService.DeclareQueue" and not request.passive:
            names = self._known.queue_names()
            _check_names(
                caller,
                request.queue,
                names,
                "queues",
                most.queues or limits.user_share(limits.MAX_QUEUES),
            )
        if method == "ackq.v1.AdminService.DeclareExchange":
            names = self._known.exchange_names()
            _check_names(
                caller,
                request.exchange,
                names,
                "exchanges",
                limits.user_share(limits.MAX_EXCHANGES),
            )
        if method == "ackq.v1.AdminService.Bind":
            self._check_bindings(caller, limits.user_share(limits.MAX_BINDINGS))
        if most.staged_bytes and method == "ackq.v1.PublishingService.Stage":
            self._check_stage(caller, request, most.staged_bytes)

    @property
    def _known(self) -> Owned:
        assert self._owned is not None
        return self._owned

    def _check_bindings(self, caller: Caller, most: int) -> None:
        assert caller.rights is not None
        if self._known.bindings() < most:
            return
        counts = self._known.bindings_of_queues()
        if sum(compress(counts.values(), caller.rights.user.write.matches_each([*counts]))) >= most:
            raise over_limit(caller, "bindings", most, "Remove some.")

    def _check_stage(self, caller: Caller, request: Any, most: int) -> None:
        own = self._stages.setdefault(caller.name, set())
        there = self._known.staged_bytes(own)
        kind = request.header.WhichOneof("kind")
        if kind == "open":
            # The stage is opened before anything else can ask.
            self._stages[caller.name] = {*there, request.header.open.stage_id}
        elif kind == "data" and sum(there.values()) + len(request.block) > most:
            raise over_limit(
                caller,
                "staged bytes",
                most,
                "Commit or abort what is staged, or write less at a time.",
            )


def _check_names(caller: Caller, name: str, names: Collection[str], what: str, most: int) -> None:
    """Refuses a new name to a user whose `configure` names as many as it may have."""
    assert caller.rights is not None
    if name in names or len(names) < most:
        return
    own = sum(caller.rights.user.configure.matches_each(list(names)))
    if own >= most:
        raise over_limit(caller, what, most, "Delete some that nothing uses.")
