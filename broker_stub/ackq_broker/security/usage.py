"""Limits on a user's queues, exchanges, bindings and staged bytes (A5); `streams` limits streams.

Queues and exchanges have no owner: a user's are those that match its permission `configure`, and
its bindings are those of the queues that match `write`. A user's stages are recorded from their
opening on, while the broker runs.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import compress
from typing import Any

from ackq import limits
from ackq_broker.core import views
from ackq_broker.core.state.state import State
from ackq_broker.security.callers import Caller
from ackq_broker.security.streams import over_limit


class Usage:
    """Checks requests that add to a user's usage."""

    def __init__(self, state: State | None) -> None:
        self._state = state
        self._stages: dict[str, set[bytes]] = {}

    def check(self, caller: Caller, method: str, request: Any) -> None:
        """Checks a permitted request against the limits of its user; raises LimitError."""
        assert caller.rights is not None
        state = self._state
        assert state is not None
        most = caller.rights.user.limits
        if method == "ackq.v1.AdminService.DeclareQueue" and not request.passive:
            names = views.queue_names(state)
            _check_names(
                caller,
                request.queue,
                names,
                "queues",
                most.queues or limits.user_share(limits.MAX_QUEUES),
            )
        if method == "ackq.v1.AdminService.DeclareExchange":
            names = views.exchange_names(state)
            _check_names(
                caller,
                request.exchange,
                names,
                "exchanges",
                limits.user_share(limits.MAX_EXCHANGES),
            )
        if method == "ackq.v1.AdminService.Bind":
            self._check_bindings(state, caller, limits.user_share(limits.MAX_BINDINGS))
        if most.staged_bytes and method == "ackq.v1.PublishingService.Stage":
            self._check_stage(state, caller, request, most.staged_bytes)

    def _check_bindings(self, state: State, caller: Caller, most: int) -> None:
        assert caller.rights is not None
        if views.binding_count(state) < most:
            return
        counts = views.bindings_of_queues(state)
        if sum(compress(counts.values(), caller.rights.user.write.matches_each([*counts]))) >= most:
            raise over_limit(caller, "bindings", most, "Remove unused bindings.")

    def _check_stage(self, state: State, caller: Caller, request: Any, most: int) -> None:
        own = self._stages.setdefault(caller.name, set())
        there = views.staged_bytes(state, own)
        kind = request.header.WhichOneof("kind")
        if kind == "open":
            # The stage is opened before another request can be checked.
            self._stages[caller.name] = {*there, request.header.open.stage_id}
        elif kind == "data" and sum(there.values()) + len(request.block) > most:
            raise over_limit(
                caller,
                "staged bytes",
                most,
                "Commit or abort staged rows, or write less at a time.",
            )


def _check_names(caller: Caller, name: str, names: Collection[str], what: str, most: int) -> None:
    """Refuses a new name to a user whose `configure` matches as many names as it may have."""
    assert caller.rights is not None
    if name in names or len(names) < most:
        return
    own = sum(caller.rights.user.configure.matches_each(list(names)))
    if own >= most:
        raise over_limit(caller, what, most, "Delete unused ones.")
