"""The permissions of each RPC (A2): a table of the needs of requests.

Invariant: an RPC that is not in the table is refused. A need depends only on the request and the
state of its sessions, writers and links; whether a queue exists makes no difference.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from ackq import limits
from ackq.v1 import (
    admin_pb2,
    consuming_pb2,
    links_pb2,
    messages_pb2,
    publishing_pb2,
    sessions_pb2,
)
from ackq.wire import block, frame
from ackq.wire.fetch_key import fetch_key
from ackq_broker.core import views
from ackq_broker.core.state.state import State
from ackq_broker.core.views import SessionAccess

OBSERVER: Final = "observer"
OPERATOR: Final = "operator"
# Any of configure, write and read: enough to see that something exists.
ANY: Final = "any permission"
# The kind of a need that is met by a permission on any name at all.
SOMETHING: Final = "something"
# The kind of a need that is met by the user it names, and by an operator.
USER: Final = "user"


class Need(NamedTuple):
    """A requirement on a caller: a permission on a named thing, or (without a kind) a role.

    Nobody has the role "". `shown` replaces the name in the refusal where the name would reveal
    more than the caller knows.
    """

    permission: str
    kind: str = ""
    name: str = ""
    shown: str = ""

    def __str__(self) -> str:
        if self.shown:
            return self.shown
        if self.kind:
            return f"{self.permission} on {self.kind} '{self.name}'"
        return f"the role {self.permission}"


Needs = Iterable[Need]
# Decoding a smaller frame costs as little as reading its header.
_SMALL_BYTES: Final = 64 * limits.KIB
_UNKNOWN: Final = Need("", shown="a permission for this call")
_WRITE_SOMETHING: Final = Need("write", SOMETHING, shown="write on any queue or exchange")
_READ_SOMETHING: Final = Need("read", SOMETHING, shown="read on any queue")
_PROOF: Final = Need("", shown="the key of the lease's holder (older versions of ackq have none)")


def needs(method: str, request: Any, state: State, user: str) -> Needs:
    """The needs of a request; on a stream, of each request by itself.

    Args:
        method: Full name of the RPC, such as `ackq.v1.AdminService.Bind`.
        request: The request as the bridge reads it: a message, or a frame.
        state: The broker's state, in which names are looked up.
        user: The calling user; a run id refers to the run of this user.
    """
    entry = TABLE.get(method)
    if entry is None:
        return (_UNKNOWN,)
    found = entry(request, state)
    return chain(found, _of_run(request, state, user)) if method in _SETTLING else found


def target_needs(exchange: str, routing_keys: Iterable[str]) -> Iterator[Need]:
    """The needs of publishing: `write` on the exchange, or by the default one on each queue."""
    if exchange:
        yield Need("write", "exchange", exchange)
    else:
        for key in routing_keys:
            yield Need("write", "queue", key)


def _session_needs(session: SessionAccess) -> Iterator[Need]:
    """The needs of reading a session."""
    for queue in session.queues:
        yield Need("read", "queue", queue, _queues_of(session.session))
    if not session.queues:  # they were deleted, and the session still belongs to its user
        yield Need("", USER, session.user, _queues_of(session.session))


def _queues_of(session: str) -> str:
    return f"read on each queue of session '{session}'"


def _nothing(_: Any, __: State) -> Needs:
    """No needs beyond a login."""
    return ()


def _role(role: str) -> Callable[[Any, State], Needs]:
    return lambda _, __: (Need(role),)


def _on(permission: str, kind: str) -> Callable[[Any, State], Needs]:
    return lambda request, _: (Need(permission, kind, getattr(request, kind)),)


def _declare_queue(request: admin_pb2.DeclareQueueRequest, _: State) -> Iterator[Need]:
    if request.passive:
        yield Need(ANY, "queue", request.queue)
        return
    yield Need("configure", "queue", request.queue)
    dead = request.properties.dead_letter_queue
    if dead:
        # Else a user's own queue could move messages into another user's queue, or out of it.
        yield Need("read", "queue", request.queue)
        yield Need("write", "queue", dead)


def _redrive(request: admin_pb2.RedriveRequest, _: State) -> Iterator[Need]:
    yield Need("read", "queue", request.queue)
    yield Need("configure", "queue", request.queue)
    if request.to_queue:
        yield Need("write", "queue", request.to_queue)


def _listed(kind: str) -> Callable[[Any, State], Needs]:
    """The needs of listing one thing by name; a list of all is filtered instead."""

    def named(request: Any, _: State) -> Needs:
        name = getattr(request, kind, "")
        return (Need(ANY, kind, name),) if name else ()

    return named


def _binding(request: admin_pb2.BindRequest | admin_pb2.UnbindRequest, _: State) -> Iterator[Need]:
    yield Need("write", "queue", request.queue)
    yield Need("read", "exchange", request.exchange)


def _consume(request: consuming_pb2.ConsumeRequest, _: State) -> Needs:
    kind = request.WhichOneof("kind")
    if kind == "subscribe":
        return (Need("read", "queue", request.subscribe.queue),)
    if kind == "get":
        return (Need("read", "queue", request.get.queue),)
    return (_READ_SOMETHING,) if kind == "open" else ()


def _publish(request: frame.Frame[publishing_pb2.PublishHeader], _: State) -> Iterator[Need]:
    kind = request.header.WhichOneof("kind")
    if kind == "open":
        yield _WRITE_SOMETHING
    elif kind == "data":
        data = request.header.data
        yield from _frame_needs(data.exchange, request.block)
        yield from target_needs(data.exchange, (each.routing_key for each in data.messages))


def _stage(request: frame.Frame[publishing_pb2.StageHeader], state: State) -> Iterator[Need]:
    kind = request.header.WhichOneof("kind")
    if kind == "open":
        # A new run drops the stages of the writer's older runs (K3), and its name may be known.
        yield from _writer(request.header.open.writer, state)
    elif kind == "data":
        data = request.header.data
        yield from _frame_needs(data.exchange, request.block)
        if data.unroutable_queue:
            yield Need("write", "queue", data.unroutable_queue)


def _frame_needs(exchange: str, data: frame.Bytes) -> Iterator[Need]:
    """The needs of a frame as far as its header shows; `callers.check_targets` checks each key.

    The latter runs after the frame was decoded, which is wasted work when the frame is refused.
    """
    if exchange:
        yield from target_needs(exchange, ())
    elif len(data) > _SMALL_BYTES:
        header, _ = block.split(data)
        if not header.columns >> messages_pb2.COLUMN_ROUTING_KEY & 1:
            yield from target_needs("", (header.routing_key,))


def _commit_batch(
    request: publishing_pb2.CommitBatchRequest | publishing_pb2.PrepareBatchRequest, state: State
) -> Iterator[Need]:
    yield from _writer(request.writer, state, request.target)


def _abort_batch(request: publishing_pb2.AbortBatchRequest, state: State) -> Iterator[Need]:
    yield from _writer(request.writer, state)


def _writer(name: str, state: State, target: str = "") -> Iterator[Need]:
    """The needs of writing under a writer's name; the core checks its owner (A10)."""
    kind, _, rest = name.partition("/")
    in_name = rest.partition("/")[2] if kind == "txn" else ""  # the part after the application
    targets = (target, views.committed_target(state, name), in_name)
    found = dict.fromkeys(need for each in targets for need in _of_target(each))
    yield from found or (_WRITE_SOMETHING,)


def _of_target(target: str) -> Iterator[Need]:
    """The need of a writer's target: `queue/NAME` or `exchange/NAME/KEY`; none for other texts."""
    kind, _, name = target.partition("/")
    if kind == "queue":
        yield Need("write", "queue", name)
    elif kind == "exchange":
        yield Need("write", "exchange", unquote(name.partition("/")[0]))


def _advance(request: sessions_pb2.AdvanceRequest, state: State) -> Iterator[Need]:
    for queue in request.queues:
        yield Need("read", "queue", queue)
    pattern = request.queue_pattern
    for queue in views.queues_like(state, pattern) if pattern else ():
        yield Need("read", "queue", queue, f"read on each queue like '{pattern}'")
    # By name too: an opening may replace that session, and a successor has another incarnation. A
    # rewind reads what it retains, too, and a refusal may name the queues of that (S14).
    for retained in (False, True) if request.HasField("rewind") else (False,):
        names = request.session, request.incarnation
        for session in views.session_access(state, *names, retained=retained):
            yield from _session_needs(session)


def _of_incarnation(request: Any, state: State) -> Iterator[Need]:
    for session in views.session_access(state, "", request.incarnation):
        yield from _session_needs(session)


def _of_session(name: str, state: State, *, retained: bool = False) -> Iterator[Need]:
    """The needs of reading a session by name.

    Its name may be guessed: a session that does not exist is refused alike.
    """
    found = views.session_access(state, name, "", retained=retained)
    if not found:
        yield Need(OBSERVER, shown=_queues_of(name))
    for session in found:
        yield from _session_needs(session)


def _browse_lease(request: sessions_pb2.BrowseLeaseRequest, state: State) -> Iterator[Need]:
    yield from _of_session(request.session, state, retained=bool(request.incarnation))


def _plan_retained(request: sessions_pb2.PlanRetainedRequest, state: State) -> Iterator[Need]:
    yield from _of_session(request.session, state, retained=True)


def _fetch(request: sessions_pb2.FetchRequest, state: State) -> Iterator[Need]:
    yield from _of_incarnation(request, state)
    for session in views.session_access(state, "", request.incarnation):
        # For an older epoch the core reports which holder replaced it.
        if request.epoch == session.epoch and not _proven(request, session):
            yield _PROOF


def _proven(request: sessions_pb2.FetchRequest, session: SessionAccess) -> bool:
    key = fetch_key(session.token, session.incarnation, session.epoch)
    return bool(session.token) and hmac.compare_digest(request.key, key)


def _stage_outcomes(request: sessions_pb2.StageOutcomesRequest, state: State) -> Iterator[Need]:
    if request.HasField("owner"):
        yield from _owner(request, state)


def _owner(
    request: sessions_pb2.StageOutcomesRequest | sessions_pb2.CommitOutcomesRequest,
    state: State,
) -> Iterator[Need]:
    if request.owner.session:
        yield from _of_session(request.owner.session, state)


def _of_run(request: Any, state: State, user: str) -> Iterator[Need]:
    """The needs of a settle call for the sessions that the run named in it has read (S6)."""
    run_id = request.owner.run_id
    for name in views.sessions_of_run(state, run_id, user) if run_id else ():
        for session in views.session_access(state, name, ""):
            yield from _session_needs(session)


def _link(request: frame.Frame[links_pb2.LinkHeader], state: State) -> Iterator[Need]:
    if request.header.WhichOneof("kind") == "open":
        opening = request.header.open
        yield Need("write", "queue", opening.queue)
        queue = views.link_queue(state, opening.link)
        if queue:  # the link's name may be guessed; the core checks its owner (A10)
            yield Need("write", "queue", queue, f"write on the queue of link '{opening.link}'")


def _report_outbound(request: links_pb2.ReportOutboundRequest, _: State) -> Needs:
    return (Need("read", "queue", request.report.queue),)


def _of_link(
    request: links_pb2.PauseLinkRequest | links_pb2.RemoveLinkRequest, state: State
) -> Needs:
    """The needs of an act on a link by name.

    Its name may be guessed: a link that does not exist is refused alike.
    """
    queue = views.link_queue(state, request.link)
    shown = f"configure on the queue of link '{request.link}'"
    return (Need("configure", "queue", queue, shown) if queue else Need(OPERATOR, shown=shown),)


_ADMIN: Final[Mapping[str, Callable[[Any, State], Needs]]] = {
    "ServerInfo": _nothing,
    "AcceptHistory": _role(OPERATOR),
    "Backup": _role(OPERATOR),
    "Drain": _role(OPERATOR),
    "DeclareQueue": _declare_queue,
    "DeleteQueue": _on("configure", "queue"),
    "PurgeQueue": _on("read", "queue"),
    "RewindQueue": _role(OPERATOR),
    "Redrive": _redrive,
    "ListQueues": _listed("queue"),
    "ListHoldings": _on(ANY, "queue"),
    "DeclareExchange": _on("configure", "exchange"),
    "DeleteExchange": _on("configure", "exchange"),
    "ListExchanges": _nothing,
    "Bind": _binding,
    "Unbind": _binding,
    "PlanBrowse": _on("read", "queue"),
    "Browse": _on("read", "queue"),
}
_CONSUMING: Final[Mapping[str, Callable[[Any, State], Needs]]] = {"Consume": _consume}
_PUBLISHING: Final[Mapping[str, Callable[[Any, State], Needs]]] = {
    "Publish": _publish,
    "Stage": _stage,
    "CommitBatch": _commit_batch,
    "PrepareBatch": _commit_batch,
    "AbortBatch": _abort_batch,
    "ListBatches": _role(OBSERVER),
    "DropBatch": _role(OPERATOR),
    "ListWriters": _role(OBSERVER),
    "ForgetWriter": _role(OPERATOR),
    "AssignWriter": _role(OPERATOR),
}
_SESSIONS: Final[Mapping[str, Callable[[Any, State], Needs]]] = {
    "Horizon": _nothing,
    "Advance": _advance,
    "Attach": _of_incarnation,
    "Hold": _of_incarnation,
    "Fetch": _fetch,
    "ListSessions": _nothing,
    "ReleaseSession": _role(OPERATOR),
    "RewindSession": _role(OPERATOR),
    "StageOutcomes": _stage_outcomes,
    "CommitOutcomes": _owner,
    "AbortOutcomes": _nothing,
    "BrowseLease": _browse_lease,
    "SettleSession": _role(OPERATOR),
    "PlanRetained": _plan_retained,
}
_LINKS: Final[Mapping[str, Callable[[Any, State], Needs]]] = {
    "Link": _link,
    "ListLinks": _nothing,
    "PauseLink": _of_link,
    "RemoveLink": _of_link,
    "ReportOutbound": _report_outbound,
}
TABLE: Final = {
    f"ackq.v1.{service}.{method}": entry
    for service, methods in {
        "AdminService": _ADMIN,
        "ConsumingService": _CONSUMING,
        "LinksService": _LINKS,
        "PublishingService": _PUBLISHING,
        "SessionsService": _SESSIONS,
    }.items()
    for method, entry in methods.items()
}
_SETTLING: Final = frozenset(
    f"ackq.v1.SessionsService.{method}" for method in ("StageOutcomes", "CommitOutcomes")
)
# Lists that `Authorization.visible` filters.
LISTS: Final = frozenset(
    f"ackq.v1.{method}"
    for method in (
        *("AdminService.ListQueues", "AdminService.ListExchanges"),
        *("SessionsService.ListSessions", "LinksService.ListLinks"),
    )
)
# Calls that change things that others use: each is in the audit.
ACTS: Final = frozenset(
    f"ackq.v1.{method}"
    for method in (
        *("AdminService.AcceptHistory", "AdminService.DeclareQueue", "AdminService.DeleteQueue"),
        *("AdminService.PurgeQueue", "AdminService.Redrive", "AdminService.DeclareExchange"),
        *("AdminService.Backup", "AdminService.Drain", "AdminService.RewindQueue"),
        *("AdminService.DeleteExchange", "AdminService.Bind", "AdminService.Unbind"),
        *("PublishingService.DropBatch", "PublishingService.ForgetWriter"),
        "PublishingService.AssignWriter",
        *("SessionsService.ReleaseSession", "SessionsService.SettleSession"),
        "SessionsService.RewindSession",
        *("LinksService.PauseLink", "LinksService.RemoveLink"),
    )
)
