"""Shared by the HTTP server's modules: the broker's parts, and the permissions of callers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from google.protobuf.message import Message

from ackq.errors import PermissionDeniedError, UnauthenticatedError
from ackq_broker.core.commands.views import QueueUse
from ackq_broker.engine.engine import Engine
from ackq_broker.security.authorization import Authorization
from ackq_broker.security.callers import Caller
from ackq_broker.security.certificates import Credentials
from ackq_broker.security.permissions import OBSERVER, Need
from ackq_broker.service.admin import AdminService
from ackq_broker.service.links.service import LinksService
from ackq_broker.service.publishing.service import PublishingService
from ackq_broker.service.sessions.service import SessionsService

if TYPE_CHECKING:
    from aiohttp import web

_SCHEME: Final = "bearer "

C = TypeVar("C", bound=Message)
T = TypeVar("T")


class View(NamedTuple):
    """The queues visible to a user: `shows` returns a flag for each name; None: all are visible."""

    user: str = ""
    shows: Callable[[Sequence[str]], Sequence[bool]] | None = None
    caller: Caller = Caller.anonymous

    @classmethod
    def of(cls, caller: Caller) -> View:
        """The view of a caller: the same queues that gRPC would list."""
        if caller.rights is None or caller.rights.acts_as(OBSERVER):
            return cls()
        return cls(caller.name, caller.sees_each, caller)

    def reads(self, queue: str) -> bool:
        """Whether the view shows message contents of a queue: needs `read` or the role observer."""
        return self.shows is None or self.caller.has(Need("read", "queue", queue))

    def of_use(self, use: QueueUse) -> QueueUse:
        """The visible references to a queue; batches are visible to observers only, as in gRPC."""
        if self.shows is None:
            return use
        exchanges = self.caller.sees_each([exchange for exchange, _ in use.bindings])
        bindings = tuple(compress(use.bindings, exchanges))
        sources = tuple(compress(use.sources, self.shows(use.sources)))
        return use._replace(
            bindings=bindings,
            binding_count=len(bindings),
            batches=(),
            batch_count=0,
            sources=sources,
            source_count=len(sources),
        )


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of the broker that HTTP reads and acts through.

    Attributes:
        engine: State, journal and alarms.
        admin: The RPCs of administration, to be awaited with their protobuf requests.
        publishing: The RPCs of publishing.
        sessions: The RPCs of sessions.
        links: The RPCs of links.
        authorization: Checks the callers; the same object as for gRPC.
        credentials: The certificate; None without TLS.
    """

    engine: Engine
    admin: AdminService
    publishing: PublishingService
    sessions: SessionsService
    links: LinksService
    authorization: Authorization
    credentials: Credentials | None = None

    def check(self, request: web.Request, method: str, call: Message) -> Caller:
        """Checks that the sender of a request may make a gRPC call; returns the caller.

        Args:
            request: Has the token, as `Authorization: Bearer TOKEN`.
            method: The call's full name, such as `ackq.v1.AdminService/ListQueues`.
            call: The protobuf request of the call.

        Raises:
            UnauthenticatedError: No token, or a wrong one.
            PermissionDeniedError: The caller may not make that call.
        """
        name = method.replace("/", ".")
        caller = self.caller(request, name)
        self.authorization.check_whole(caller, name, call)
        return caller

    def may(self, caller: Caller, method: str, call: Message) -> bool:
        """Whether a caller may make a gRPC call; a negative answer is not audited."""
        with suppress(PermissionDeniedError):
            self.authorization.check(caller, method, call)
            return True
        return False

    async def act(
        self,
        request: web.Request,
        method: str,
        call: C,
        work: Callable[[C], Coroutine[Any, Any, T]],
    ) -> T:
        """Checks a request as `check` does, then runs and audits the act `work` of its call."""
        caller = self.check(request, method, call)
        name = method.replace("/", ".")
        return await self.authorization.audited(caller, name, call, work(call))

    def caller(self, request: web.Request, method: str) -> Caller:
        """The caller that sent a request; raises UnauthenticatedError."""
        peer = request.remote or ""
        try:
            return self.authorization.authenticate(token_of(request), peer)
        except UnauthenticatedError as error:
            self.authorization.refused(None, peer, method, error)
            raise


def token_of(request: web.Request) -> str | None:
    """The token of a request; None without one."""
    given = request.headers.get("Authorization", "")
    return given[len(_SCHEME) :].strip() if given.lower().startswith(_SCHEME) else None
