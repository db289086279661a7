"""What a user has of queues and staged bytes (A5); streams and connections are counted as they are.

Queues belong to nobody: a user's are those that its permission `configure` names. Stages are known
from their opening on, while the broker runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from ackq import limits
from ackq_broker.service.security.callers import Caller
from ackq_broker.service.security.streams import over_limit


class Owned(Protocol):
    """What the broker has that counts."""

    def queue_names(self) -> Collection[str]:
        """The names of all queues."""
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
            queues = most.queues or limits.user_share(limits.MAX_QUEUES)
            self._check_queues(caller, request.queue, queues)
        if most.staged_bytes and method == "ackq.v1.PublishingService.Stage":
            self._check_stage(caller, request, most.staged_bytes)

    def _check_queues(self, caller: Caller, name: str, most: int) -> None:
        assert caller.rights is not None
        assert self._owned is not None
        names = self._owned.queue_names()
        if name in names or len(names) < most:
            return
        own = sum(caller.rights.user.configure.matches_each(list(names)))
        if own >= most:
            raise over_limit(caller, "queues", most, "Delete some that nothing uses.")

    def _check_stage(self, caller: Caller, request: Any, most: int) -> None:
        assert self._owned is not None
        own = self._stages.setdefault(caller.name, set())
        there = self._owned.staged_bytes(own)
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
