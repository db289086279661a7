"""Callers: who made a call, and what it may do; the one of the present call is `current`."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import ClassVar, Final

from ackq import limits
from ackq.errors import PermissionDeniedError
from ackq_broker.core.commands import Route
from ackq_broker.service.security.permissions import ANY, OBSERVER, OPERATOR, Need, target_needs
from ackq_broker.service.security.users import PERMISSIONS, User

# The most answers that are remembered of a user: a permission and a name each.
_REMEMBERED: Final = 10_000
# What a refusal says of a need, whose name may be as long as a request.
_MOST_TEXT: Final = 2 * limits.MAX_NAME_BYTES


class Rights:
    """What a user may do, asked for by name; each answer is found once."""

    def __init__(self, user: User) -> None:
        self.user = user
        self._patterns = {each: getattr(user, each) for each in PERMISSIONS}
        self._answers: dict[tuple[str, str], bool] = {}

    def allow(self, permission: str, name: str) -> bool:
        """Whether the user has a permission, or `ANY`, on the queue or exchange of this name.

        Nothing has a name beyond the limit: of such a one the rest is neither matched nor kept.
        """
        name = name[: limits.MAX_NAME_BYTES]
        key = (permission, name)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            asked = PERMISSIONS if permission == ANY else (permission,)
            answer = any(self._patterns[each].fullmatch(name) for each in asked)
            self._answers[key] = answer
        return answer

    def acts_as(self, role: str) -> bool:
        """Whether the user has a role; an operator is an observer, too."""
        return bool(role) and self.user.role in (role, OPERATOR)


class Caller:
    """Who makes a call.

    Args:
        peer: Where the call comes from, as gRPC names it.
        rights: The user's; None: the broker has no users, and anybody may do anything.
    """

    __slots__ = ("peer", "rights")
    anonymous: ClassVar[Caller]

    def __init__(self, peer: str, rights: Rights | None) -> None:
        self.peer = peer
        self.rights = rights

    @property
    def name(self) -> str:
        """The user's name."""
        return self.rights.user.name if self.rights is not None else "anonymous"

    def has(self, need: Need) -> bool:
        """Whether the caller has what a request needs."""
        if self.rights is None:
            return True
        if not need.kind:
            return self.rights.acts_as(need.permission)
        seen = need.permission == ANY and self.rights.acts_as(OBSERVER)
        return seen or self.rights.allow(need.permission, need.name)

    def sees(self, kind: str, name: str) -> bool:
        """Whether something is shown to the caller in a list."""
        return self.has(Need(ANY, kind, name))

    def require(self, needs: Iterable[Need]) -> None:
        """Checks what a request needs; raises PermissionDeniedError with what is missing first."""
        for need in needs:
            if not self.has(need):
                missing = str(need)[:_MOST_TEXT]
                raise PermissionDeniedError(
                    f"The user '{self.name}' does not have {missing}.", permission=missing
                )


Caller.anonymous = Caller("", None)
current: Final = ContextVar("current", default=Caller.anonymous)


def check_targets(exchange: str, routes: Iterable[Route]) -> None:
    """Checks that the present caller may publish rows by these routes (A2).

    Raises:
        PermissionDeniedError: It may not; the stream ends, and nothing of its frame is kept.
    """
    caller = current.get()
    rights = caller.rights
    if rights is None or (exchange and rights.allow("write", exchange)):
        return
    if exchange or not all(rights.allow("write", route.routing_key) for route in routes):
        caller.require(target_needs(exchange, (route.routing_key for route in routes)))
