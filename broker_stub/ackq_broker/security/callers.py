"""Callers: who made a call, and what it may do; the one of the present call is `current`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from itertools import islice
from typing import ClassVar, Final

from ackq import limits
from ackq.errors import PermissionDeniedError
from ackq_broker.core.commands import Route
from ackq_broker.security.name_pattern import NamePattern
from ackq_broker.security.permissions import (
    ANY,
    OBSERVER,
    OPERATOR,
    SOMETHING,
    USER,
    Need,
    target_needs,
)
from ackq_broker.security.users import PERMISSIONS, User

# The most answers that are remembered of a user: a permission and a name each.
_REMEMBERED: Final = 10_000
# The most needs that are looked up at once; one that is refused costs no more.
_TOGETHER: Final = 1_000
# What a refusal says of a need, whose name may be as long as a request.
_MOST_TEXT: Final = 2 * limits.MAX_NAME_BYTES


class Rights:
    """What a user may do, asked for by name; answers are remembered."""

    def __init__(self, user: User) -> None:
        self.user = user
        self._patterns: dict[str, NamePattern] = {each: getattr(user, each) for each in PERMISSIONS}
        self._answers: dict[tuple[str, str], bool] = {}

    def allow(self, permission: str, name: str) -> bool:
        """Whether the user has a permission, or `ANY`, on the queue or exchange of this name."""
        answer = self._answers.get((permission, name))
        return self.allow_each(permission, (name,))[0] if answer is None else answer

    def allow_each(self, permission: str, names: Sequence[str]) -> list[bool]:
        """Whether the user has it on each of these; of new names many at once cost little.

        Nothing has a name beyond the limit: of such a one the rest is neither matched nor kept.
        """
        names = [name[: limits.MAX_NAME_BYTES] for name in names]
        answers = {name: self._answers.get((permission, name)) for name in names}
        new = [name for name, answer in answers.items() if answer is None]
        if new:
            asked = PERMISSIONS if permission == ANY else (permission,)
            found = [self._patterns[each].matches_each(new) for each in asked]
            answers.update(zip(new, map(any, zip(*found, strict=True)), strict=True))
            self._remember(permission, {name: bool(answers[name]) for name in new})
        return [bool(answers[name]) for name in names]

    def learn(self, needs: Iterable[Need]) -> None:
        """Finds the answers to many needs at once, which are asked for next."""
        names: dict[str, list[str]] = {}
        for need in needs:
            if need.kind and need.kind not in {SOMETHING, USER}:
                names.setdefault(need.permission, []).append(need.name)
        for permission, asked in names.items():
            self.allow_each(permission, asked)

    def allow_something(self, permission: str) -> bool:
        """Whether there may be a name on which the user has a permission."""
        return bool(self._patterns[permission].text)

    def _remember(self, permission: str, answers: dict[str, bool]) -> None:
        if len(self._answers) + len(answers) > _REMEMBERED:
            self._answers.clear()
        for name, answer in islice(answers.items(), _REMEMBERED):
            self._answers[permission, name] = answer

    def acts_as(self, role: str) -> bool:
        """Whether the user has a role; an operator is an observer, too."""
        return bool(role) and self.user.role in (role, OPERATOR)


def _nowhere(_: PermissionDeniedError) -> None:
    """Without users there is no audit."""


class Caller:
    """Who makes a call.

    Args:
        peer: Where the call comes from, as gRPC names it.
        rights: The user's; None: the broker has no users, and anybody may do anything.

    Attributes:
        denied: Puts a refusal that the call itself answers into the audit (A8).
    """

    __slots__ = ("denied", "peer", "rights")
    anonymous: ClassVar[Caller]

    def __init__(self, peer: str, rights: Rights | None) -> None:
        self.peer = peer
        self.rights = rights
        self.denied: Callable[[PermissionDeniedError], None] = _nowhere

    @property
    def name(self) -> str:
        """The user's name."""
        return self.rights.user.name if self.rights is not None else "anonymous"

    @property
    def user(self) -> str:
        """The user's name for the journal; empty where there are no users (A10)."""
        return self.rights.user.name if self.rights is not None else ""

    def has(self, need: Need) -> bool:
        """Whether the caller has what a request needs."""
        if self.rights is None:
            return True
        if not need.kind:
            return self.rights.acts_as(need.permission)
        if need.kind == USER:
            return need.name == self.user or self.rights.acts_as(OPERATOR)
        if need.kind == SOMETHING:
            return self.rights.allow_something(need.permission)
        seen = need.permission == ANY and self.rights.acts_as(OBSERVER)
        return seen or self.rights.allow(need.permission, need.name)

    def sees_each(self, names: Sequence[str]) -> list[bool]:
        """Whether each of these queues, or exchanges, is shown to the caller in a list."""
        if self.rights is None or self.rights.acts_as(OBSERVER):
            return [True] * len(names)
        return self.rights.allow_each(ANY, names)

    def require(self, needs: Iterable[Need]) -> None:
        """Checks what a request needs; raises PermissionDeniedError with what is missing first."""
        rest = iter(needs)
        while together := tuple(islice(rest, _TOGETHER)):
            if self.rights is not None and len(together) > 1:
                self.rights.learn(together)
            for need in together:
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
    keys = [route.routing_key for route in routes]
    if exchange or not all(rights.allow_each("write", keys)):
        caller.require(target_needs(exchange, keys))


async def check_parts(exchange: str, parts: Iterable[Iterable[Route]]) -> None:
    """`check_targets` of all parts of a frame, with the others' turn after each (I6)."""
    for routes in parts:
        check_targets(exchange, routes)
        await asyncio.sleep(0)
