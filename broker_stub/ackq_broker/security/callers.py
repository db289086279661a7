"""Callers: the user of a call, and its rights; the caller of the present call is `current`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from itertools import islice
from typing import ClassVar, Final

from ackq import limits
from ackq.errors import PermissionDeniedError
from ackq_broker.core.commands import Routes
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

# The most answers that are cached for a user: one for each permission and name.
_REMEMBERED: Final = 10_000
# The most needs that are looked up at once, which bounds the cost of a refusal.
_TOGETHER: Final = 1_000
# The most characters of a need in a refusal; its name may be as long as a request.
_MOST_TEXT: Final = 2 * limits.MAX_NAME_BYTES


class Rights:
    """The permissions of a user, looked up by name; answers are cached."""

    def __init__(self, user: User) -> None:
        self.user = user
        self._patterns: dict[str, NamePattern] = {each: getattr(user, each) for each in PERMISSIONS}
        self._answers: dict[tuple[str, str], bool] = {}

    def allow(self, permission: str, name: str) -> bool:
        """Whether the user has a permission, or `ANY`, on the queue or exchange of this name."""
        answer = self._answers.get((permission, name))
        return self.allow_each(permission, (name,))[0] if answer is None else answer

    def allow_each(self, permission: str, names: Sequence[str]) -> list[bool]:
        """Whether the user has a permission on each name; many new names at once cost little.

        No name exceeds the limit: the rest of a longer one is neither matched nor kept.
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
        """Looks up the answers to many needs at once, and caches them for the next checks."""
        names: dict[str, list[str]] = {}
        for need in needs:
            if need.kind and need.kind not in {SOMETHING, USER}:
                names.setdefault(need.permission, []).append(need.name)
        for permission, asked in names.items():
            self.allow_each(permission, asked)

    def allow_something(self, permission: str) -> bool:
        """Whether the user may have a permission on some name."""
        return bool(self._patterns[permission].text)

    def _remember(self, permission: str, answers: dict[str, bool]) -> None:
        if len(self._answers) + len(answers) > _REMEMBERED:
            self._answers.clear()
        for name, answer in islice(answers.items(), _REMEMBERED):
            self._answers[permission, name] = answer

    def acts_as(self, role: str) -> bool:
        """Whether the user has a role; an operator also has the role observer."""
        return bool(role) and self.user.role in (role, OPERATOR)


def _nowhere(_: PermissionDeniedError) -> None:
    """Ignores a refusal: without users there is no audit."""


def _allowed() -> None:
    """Allows a request to go on: without users everything is."""


class Caller:
    """The caller of a call: its remote address and its user's rights.

    Args:
        peer: The remote address of the call, as gRPC names it.
        rights: The user's rights; None: the broker has no users, and anybody may do anything.

    Attributes:
        denied: Writes a refusal that the call itself answers to the audit (A8).
        check_again: Checks the only request of a call again, after it has waited (A1): raises as
            `Authorization.check`.
    """

    __slots__ = ("check_again", "denied", "peer", "rights")
    anonymous: ClassVar[Caller]

    def __init__(self, peer: str, rights: Rights | None) -> None:
        self.peer = peer
        self.rights = rights
        self.denied: Callable[[PermissionDeniedError], None] = _nowhere
        self.check_again: Callable[[], None] = _allowed

    @property
    def name(self) -> str:
        """The user's name."""
        return self.rights.user.name if self.rights is not None else "anonymous"

    @property
    def user(self) -> str:
        """The user's name for the journal; empty without users (A10)."""
        return self.rights.user.name if self.rights is not None else ""

    def has(self, need: Need) -> bool:
        """Whether the caller meets a need of a request."""
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
        """Whether each of the named queues or exchanges is shown to the caller in a list."""
        if self.rights is None or self.rights.acts_as(OBSERVER):
            return [True] * len(names)
        return self.rights.allow_each(ANY, names)

    def require(self, needs: Iterable[Need]) -> None:
        """Checks the needs of a request; raises PermissionDeniedError for the first unmet one."""
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


def check_targets(exchange: str, routes: Routes) -> None:
    """Checks that the present caller may publish rows by these routes (A2).

    Raises:
        PermissionDeniedError: It may not; no part of the frame is kept.
    """
    caller = current.get()
    rights = caller.rights
    if rights is None or (exchange and rights.allow("write", exchange)):
        return
    if exchange or not all(rights.allow_each("write", routes.keys)):
        caller.require(target_needs(exchange, routes.keys))


async def check_parts(exchange: str, parts: Iterable[Routes]) -> None:
    """Runs `check_targets` for the parts of a frame; other work runs after many keys (I6)."""
    for routes in parts:
        check_targets(exchange, routes)
        if len(routes.keys) > 1:
            await asyncio.sleep(0)
