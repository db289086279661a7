"""Authorization: the one place that identifies callers, checks requests and filters answers.

Invariant: with a users file no request is handled before `check` has passed it, and no list leaves
before `visible` has filtered it. Without one everything is allowed to `Caller.anonymous`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import compress
from typing import Any, Final, TypeVar

from ackq.errors import (
    AckqError,
    BrokerUnavailableError,
    InvalidArgumentError,
    LinkNotFoundError,
    PermissionDeniedError,
    SessionNotFoundError,
    UnauthenticatedError,
)
from ackq.v1 import admin_pb2, links_pb2, sessions_pb2
from ackq_broker.core.state.state import State
from ackq_broker.engine.events import event
from ackq_broker.security.audit import Audit
from ackq_broker.security.callers import Caller, Rights
from ackq_broker.security.permissions import ACTS, LISTS, OBSERVER, Need, needs
from ackq_broker.security.streams import OpenStreams
from ackq_broker.security.usage import Usage
from ackq_broker.security.users import Users
from ackq_broker.security.users_file import UsersFile

_log = logging.getLogger(__name__)

_BEARER: Final = "bearer "

T = TypeVar("T")


class Authorization:
    """Authenticates callers and checks their requests.

    Args:
        state: The broker's state; required with users.
        users_file: The users; None: anybody may do anything.
        audit: Gets refusals and acts.

    Attributes:
        streams: The open streams.
    """

    def __init__(
        self,
        state: State | None = None,
        users_file: UsersFile | None = None,
        audit: Audit | None = None,
    ) -> None:
        assert state is not None or users_file is None
        self._state = state
        self._users_file = users_file
        self._audit = audit or Audit()
        self._usage = Usage(state)
        self.streams = OpenStreams()
        self._rights = _rights(users_file.users) if users_file is not None else {}
        if users_file is not None and not users_file.users.by_name:
            _log.warning(
                "there are no users, so every call is refused: add one with `ackq-broker user "
                "add`, which takes effect without a restart",
                extra=event("no_users"),
            )

    @property
    def required(self) -> bool:
        """Whether the broker has users, so that each call needs a token."""
        return self._users_file is not None

    def authenticate(self, token: str | None, peer: str) -> Caller:
        """The caller with a token.

        Args:
            token: The token of the call; None without one.
            peer: The remote address of the call, as gRPC names it.

        Raises:
            UnauthenticatedError: The broker has users, and the token belongs to none of them.
        """
        if self._users_file is None:
            return Caller.anonymous
        if token is None:
            raise UnauthenticatedError(
                "The call has no token, and this broker serves only its users: set the option "
                "token or tokenFile, or ACKQ_TOKEN for the command line."
            )
        user = self._users_file.users.of_token(token)
        if user is None:
            raise UnauthenticatedError(
                "The token belongs to no user of this broker. Check it, or ask for a new one."
            )
        return Caller(peer, self._rights[user.name])

    def check(self, caller: Caller, method: str, request: Any) -> None:
        """Checks a request before any part of it takes effect; on a stream, each request.

        Args:
            caller: The caller, from `authenticate`.
            method: The full name of the RPC, such as `ackq.v1.AdminService.PurgeQueue`.
            request: The message or frame of the request.

        Raises:
            PermissionDeniedError: Names the missing permission and nothing else (A3).
            LimitError: The user is at one of its limits (A5).
            UnauthenticatedError, BrokerUnavailableError: The user was removed or changed since the
                call began (A1).
        """
        if caller.rights is not None:
            assert self._state is not None
            assert self._users_file is not None
            users, user = self._users_file.users, caller.rights.user
            if users.by_name.get(user.name) != user:
                raise _why_ended(users, user.name)
            caller.require(needs(method, request, self._state, caller.user))
            self._usage.check(caller, method, request)

    def check_whole(self, caller: Caller, method: str, request: Any) -> None:
        """Checks a request of another interface than gRPC, which shows lists unfiltered.

        Raises:
            PermissionDeniedError: As `check`; in addition a list needs the role observer.
            LimitError: As `check`.
        """
        try:
            self.check(caller, method, request)
            if method in LISTS:
                caller.require((Need(OBSERVER),))
        except PermissionDeniedError as error:
            self.refused(caller, caller.peer, method, error)
            raise

    def visible(self, caller: Caller, request: Any, response: Any) -> Any:
        """Removes from a response the items that the caller may not see, and returns it.

        Raises:
            SessionNotFoundError, LinkNotFoundError: The requested session or link is hidden, as if
                it did not exist.
        """
        show = _FILTERS.get(type(response)) if caller.rights is not None else None
        if show is not None:
            show(caller, response)
            if isinstance(request, sessions_pb2.ListSessionsRequest) and request.session:
                _check_found(request.session, response)
            if isinstance(request, links_pb2.ListLinksRequest) and request.link:
                _check_link(request.link, response)
        return response

    async def audited(
        self, caller: Caller, method: str, request: Any, work: Coroutine[Any, Any, T]
    ) -> T:
        """Runs the work of a call; audits it if it is an administrative act (A8).

        An act goes on when its caller cancels the call, so that the audit has its result.
        """
        if caller.rights is None or method not in ACTS or getattr(request, "check", False):
            return await work
        act = asyncio.ensure_future(self._act(caller, method, request, work))
        act.add_done_callback(_retrieve)
        return await asyncio.shield(act)

    async def _act(
        self, caller: Caller, method: str, request: Any, work: Coroutine[Any, Any, T]
    ) -> T:
        result = "failed"
        try:
            response = await work
            result = "done"
        except AckqError as error:
            result = error.code
            raise
        finally:
            if result != PermissionDeniedError.code:  # `refused` has written that line
                self._audit.act(caller.name, caller.peer, method, request, result)
        return response

    def refused(self, caller: Caller | None, peer: str, method: str, error: AckqError) -> None:
        """Writes a refusal to the audit (A8)."""
        name = caller.name if caller is not None else ""
        self._audit.refused(name, peer, method, error)

    def poll(self) -> None:
        """Reads the users file if it has changed; an invalid file is logged once."""
        if self._users_file is not None and self._users_file.changed():
            try:
                _log.info("%s", self.reload())
            except InvalidArgumentError as error:
                _log.error("%s The users stay as they were.", error)

    def reload(self) -> str:
        """Reads the users file, and ends the streams of changed users; returns a text for the log.

        Raises:
            InvalidArgumentError: The file cannot be read; nothing was changed.
        """
        if self._users_file is None:
            return "there is no users file"
        before = self._users_file.users.by_name
        users = self._users_file.read()
        self._rights = _rights(users)
        changed = {name for name, user in before.items() if users.by_name.get(name) != user}
        ended = self.streams.end({name: _why_ended(users, name) for name in changed})
        new = len(users.by_name.keys() - before.keys())
        return (
            f"{len(users.by_name)} users, {new} of them new; {len(changed)} changed or removed,"
            f" whose {ended} streams were ended"
        )


def bearer(metadata: Mapping[str, str | bytes]) -> str | None:
    """The token in the metadata `authorization: Bearer TOKEN`; None without one."""
    value = metadata.get("authorization")
    if not isinstance(value, str) or not value.lower().startswith(_BEARER):
        return None
    return value[len(_BEARER) :].strip()


def _retrieve(act: asyncio.Future[Any]) -> None:
    """Retrieves the error of an act whose caller cancelled the call: the audit has it."""
    if not act.cancelled():
        act.exception()


def _rights(users: Users) -> dict[str, Rights]:
    return {name: Rights(user) for name, user in users.by_name.items()}


def _why_ended(users: Users, name: str) -> AckqError:
    if name not in users.by_name:
        return UnauthenticatedError(f"The user '{name}' was removed from this broker.", user=name)
    return BrokerUnavailableError(
        f"The permissions of the user '{name}' were changed, so its streams and waiting calls were "
        "ended. Connect again.",
        user=name,
        cause=f"the permissions of user '{name}' were changed",
    )


# --- filters of responses ---


def _show_queues(caller: Caller, response: admin_pb2.ListQueuesResponse) -> None:
    _keep(response.queues, caller.sees_each([each.queue for each in response.queues]))


def _show_exchanges(caller: Caller, response: admin_pb2.ListExchangesResponse) -> None:
    _keep(response.exchanges, caller.sees_each([each.exchange for each in response.exchanges]))
    for exchange in response.exchanges:
        _keep(exchange.bindings, caller.sees_each([each.queue for each in exchange.bindings]))


def _show_sessions(caller: Caller, response: sessions_pb2.ListSessionsResponse) -> None:
    assert caller.rights is not None
    if not caller.rights.acts_as(OBSERVER):
        _keep(
            response.sessions,
            [
                bool(each.queues) and all(caller.sees_each(each.queues))
                for each in response.sessions
            ],
        )


def _show_links(caller: Caller, response: links_pb2.ListLinksResponse) -> None:
    for links in (response.links, response.outbound):
        _keep(links, caller.sees_each([each.queue for each in links]))


_FILTERS: Final[Mapping[type, Callable[[Caller, Any], None]]] = {
    admin_pb2.ListQueuesResponse: _show_queues,
    admin_pb2.ListExchangesResponse: _show_exchanges,
    sessions_pb2.ListSessionsResponse: _show_sessions,
    links_pb2.ListLinksResponse: _show_links,
}


def _keep(items: Any, wanted: Iterable[bool]) -> None:
    """Keeps the wanted items of a repeated field, and removes all others."""
    kept = list(compress(items, wanted))
    if len(kept) < len(items):
        del items[:]
        items.extend(kept)


def _check_found(name: str, response: sessions_pb2.ListSessionsResponse) -> None:
    if not response.sessions:
        raise SessionNotFoundError(
            f"There is no session '{name}'. See `ackq session list`.", session=name
        )


def _check_link(name: str, response: links_pb2.ListLinksResponse) -> None:
    if not response.links and not response.outbound:
        raise LinkNotFoundError(f"There is no link '{name}'. See `ackq link list`.", link=name)
