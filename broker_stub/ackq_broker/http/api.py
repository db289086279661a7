"""The dashboard: its page, and the JSON endpoints of the page (M5).

Invariant: an action is the gRPC call of the same name, checked by the same rules and made through
the same servicer; a read keeps the event loop for a few milliseconds at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from itertools import compress
from typing import Any, Final

import msgspec
from aiohttp import web

from ackq import limits
from ackq.errors import AckqError, InvalidArgumentError, SessionNotFoundError
from ackq.v1 import admin_pb2, links_pb2, sessions_pb2
from ackq_broker.core import views
from ackq_broker.core.commands import QueueInfo, SessionInfo
from ackq_broker.http import json_rows
from ackq_broker.http.context import Context, View
from ackq_broker.http.dead_letters import DeadLetterCounts
from ackq_broker.http.listing import Listing
from ackq_broker.http.peek import peek
from ackq_broker.http.queue_table import PageRequest, QueueTables

_Answer = Callable[[web.Request], Awaitable[Any]]

_ADMIN: Final = "ackq.v1.AdminService."
_SESSIONS: Final = "ackq.v1.SessionsService."
# The actions of a user on a queue, with the gRPC call of each.
_ACTS: Final = {
    "peek": (f"{_ADMIN}Browse", admin_pb2.BrowseRequest),
    "purge": (f"{_ADMIN}PurgeQueue", admin_pb2.PurgeQueueRequest),
    "redrive": (f"{_ADMIN}Redrive", admin_pb2.RedriveRequest),
}
_MOST: Final = 100
# Every page waits for the number of sessions; that of 100,000 takes nine seconds to count.
_COUNT_S: Final = 0.2
_JSON: Final = "application/json"
_FILES: Final = {
    "/": ("dashboard.html", "text/html"),
    "/dashboard.css": ("dashboard.css", "text/css"),
    "/dashboard.js": ("dashboard.js", "text/javascript"),
}
_PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
_RELEASE: Final = (f"{_SESSIONS}ReleaseSession", sessions_pb2.ReleaseSessionRequest())


def add_routes(app: web.Application, context: Context) -> None:
    """Adds the routes of the page, which is open to everybody, and of its API, which is not."""
    for path, (name, kind) in _FILES.items():
        app.router.add_get(path, _file(name, kind))
    api = Api(context)
    for name in ("broker", "queues", "queue", "sessions", "links", "publishers", "dead_letters"):
        app.router.add_get(f"/api/{name}", _json(context, getattr(api, name)))
    app.router.add_get("/api/peek", _json(context, api.peek))
    for name in ("purge", "redrive", "release"):
        app.router.add_post(f"/api/{name}", _json(context, getattr(api, name)))


class Api:
    """The handlers of the page's API; each reads the query or the body of a request."""

    def __init__(self, context: Context) -> None:
        core = context.engine.core
        self._context = context
        self._engine = context.engine
        self._queues = QueueTables(context.engine)
        self._dead_letters = DeadLetterCounts(core)
        self._sessions = Listing(
            context.engine,
            lambda: views.session_names(core.state),
            self._unfinished,
        )
        self._links = Listing(
            context.engine, lambda: views.link_names(core.state), context.links.look
        )

    # --- reads ---

    async def broker(self, request: web.Request) -> dict[str, Any]:
        """The broker, the calling user, and the totals of the queues visible to that user.

        With very many sessions their number is that of a moment ago, and absent at first.
        """
        asked = admin_pb2.ServerInfoRequest()
        caller = self._context.check(request, f"{_ADMIN}ServerInfo", asked)
        view = self._view(request)
        info = await self._context.admin.server_info(asked)
        table = await self._queues.get(view)
        others = {}
        if view.shows is None:
            sessions = await self._sessions.within(_COUNT_S)
            others = {
                **({} if sessions is None else {"sessions": len(sessions.rows)}),
                "links": len(views.link_names(self._engine.core.state)),
                "publishers": self._context.publishing.publishers(0)[1],
            }
        return {
            **json_rows.plain(info),
            **others,
            "user": caller.user,
            "may_release": self._context.may(caller, *_RELEASE),
            "totals": table.totals,
            "taken_us": table.listed.taken_us,
            "read_ms": table.listed.busy_s * 1000,
        }

    async def queues(self, request: web.Request) -> dict[str, Any]:
        """A page of the table of queues."""
        table, rows, matched = await self._queues.page(
            self._view(request), _page_request(request.query)
        )
        taken_us = table.listed.taken_us
        return {
            "rows": [json_rows.queue_row(row, taken_us) for row in rows],
            "matched": matched,
            "total": len(table.listed.rows),
            "taken_us": taken_us,
        }

    async def queue(self, request: web.Request) -> dict[str, Any]:
        """A queue, its references, the holders of its messages, and its dead letters by cause."""
        name = _named(request.query.get("name"))
        asked = admin_pb2.ListHoldingsRequest(queue=name)
        self._context.check(request, f"{_ADMIN}ListHoldings", asked)
        view, core, now_us = self._view(request), self._engine.core, self._engine.clock.now_us()
        (found,) = views.list_queues(core.state, name)
        names, reader_count = await self._readers(found)
        readers = await self._session_rows(request, names)
        shown = found.dead_letters_held and view.reads(name)
        dead = await self._dead_letters.of(name) if shown else None
        held = await self._context.admin.list_holdings(asked)
        return {
            **json_rows.queue_detail(
                found, view.of_use(views.queue_use(core.state, name, _MOST)), now_us
            ),
            "readers": readers,
            "reader_count": reader_count,
            **json_rows.holdings(held),
            "dead": dead.as_dict() if dead is not None else None,
            "may": self._may(request, name),
            "taken_us": now_us,
        }

    async def sessions(self, request: web.Request) -> dict[str, Any]:
        """A page of the sessions, those with the oldest leases first."""
        view, listed = self._view(request), await self._sessions.get()
        part, first = request.query.get("filter", "").casefold(), _number(request.query, "offset")
        shown, found = await self._engine.run(partial(_found_sessions, listed.rows, view, part))
        names = [each.session for each in found[first : first + _MOST]]
        return {
            "rows": await self._session_rows(request, names),
            "matched": len(found),
            "total": shown,
            "taken_us": listed.taken_us,
        }

    async def links(self, request: web.Request) -> dict[str, Any]:
        """A page of the links, those with the oldest held messages first; or one link by name."""
        view, listed = self._view(request), await self._links.get()
        first, query = _number(request.query, "offset"), request.query
        found = await self._engine.run(partial(_found_links, listed.rows, view, query, first))
        return {**found, "taken_us": listed.taken_us}

    async def publishers(self, request: web.Request) -> dict[str, Any]:
        """The publishers that have a stream, and why they are blocked; needs the role observer."""
        self._context.check(request, f"{_ADMIN}ListQueues", admin_pb2.ListQueuesRequest())
        now_us = self._engine.clock.now_us()
        found, count = self._context.publishing.publishers(_MOST)
        return {
            "rows": [json_rows.publisher_row(each, now_us) for each in found],
            "total": count,
            "blocked": self._engine.alarms.reason,
            "taken_us": now_us,
        }

    async def dead_letters(self, request: web.Request) -> dict[str, Any]:
        """The queues with the most dead letters, each by cause."""
        wanted = PageRequest(show="dead", sort="dead_letters_held", limit=_MOST)
        view = self._view(request)
        table, rows, matched = await self._queues.page(view, wanted)
        found = await self._dead_letters.of_all(row.queue for row in rows if view.reads(row.queue))
        return {
            "rows": [each.as_dict() | {"may": self._may(request, each.queue)} for each in found],
            "total": matched,
            "taken_us": table.listed.taken_us,
        }

    async def peek(self, request: web.Request) -> dict[str, Any]:
        """Messages of a queue, from a given position on; a browse (Q5)."""
        name, first = _named(request.query.get("queue", "")), _number(request.query, "from")
        self._context.check(request, f"{_ADMIN}Browse", admin_pb2.BrowseRequest(queue=name))
        browse, count = self._context.admin.browse, _number(request.query, "count") or 20
        found = await peek(browse, self._engine.run, name, first, count)
        return found._asdict()

    # --- actions ---

    async def purge(self, request: web.Request) -> dict[str, Any]:
        """Removes the ready messages of a queue; the request repeats its name to confirm (Q4)."""
        given = await self._body(request)
        name = _named(given.get("queue"))
        if given.get("confirm") != name:
            raise InvalidArgumentError(
                f"Nothing was purged: type the queue's name, '{name}', to confirm.", queue=name
            )
        asked = admin_pb2.PurgeQueueRequest(queue=name)
        purge = self._context.admin.purge_queue
        done = await self._context.act(request, f"{_ADMIN}PurgeQueue", asked, purge)
        return {"purged": done.purged}

    async def redrive(self, request: web.Request) -> dict[str, Any]:
        """Redrives as many dead letters as fit a record; `more` in the answer: ask again (Q6)."""
        given = await self._body(request)
        asked = admin_pb2.RedriveRequest(
            queue=_named(given.get("queue")),
            last_position=_number(given, "last_position"),
            max_messages=_number(given, "max_messages"),
            cause=str(given.get("cause", "")),
            reason=str(given.get("reason", "")),
            to_queue=str(given.get("to_queue", "")),
        )
        redrive = self._context.admin.redrive
        done = await self._context.act(request, f"{_ADMIN}Redrive", asked, redrive)
        return json_rows.plain(done)

    async def release(self, request: web.Request) -> dict[str, Any]:
        """Requeues a session's lease, also that of a live holder if `fence` is set (S5, S8)."""
        given = await self._body(request)
        asked = sessions_pb2.ReleaseSessionRequest(
            session=_named(given.get("session")), fence=given.get("fence") is True
        )
        release = self._context.sessions.release_session
        done = await self._context.act(request, f"{_SESSIONS}ReleaseSession", asked, release)
        return {"released": done.released, "dropped": done.dropped}

    def _unfinished(self, name: str) -> SessionInfo | None:
        (session,) = views.list_sessions(self._engine.core.state, name)
        return None if self._context.sessions.finished(session) else session

    async def _readers(self, queue: QueueInfo) -> tuple[Sequence[str], int]:
        """The sessions of a queue that are not finished, and their number.

        Of many come first those with leases, then those heard of last.
        """
        if len(queue.sessions) > _MOST:
            rows = (await self._sessions.get()).rows
            return await self._engine.run(partial(_first_readers, rows, queue.queue))
        names = []
        for name in queue.sessions:
            with suppress(SessionNotFoundError):
                names += [name] if self._unfinished(name) is not None else []
        return names, len(names)

    async def _body(self, request: web.Request) -> dict[str, Any]:
        """The JSON object of a request; without a login the body is not read (A3)."""
        self._context.caller(request, request.path)
        return await _body(request)

    def _view(self, request: web.Request) -> View:
        """The view of the caller that sent a request; raises UnauthenticatedError."""
        return View.of(self._context.caller(request, f"{_ADMIN}ListQueues"))

    def _may(self, request: web.Request, queue: str) -> list[str]:
        """The actions of `_ACTS` that the sender of a request may do to a queue."""
        caller, may = self._context.caller(request, request.path), self._context.may
        return [
            act for act, (method, kind) in _ACTS.items() if may(caller, method, kind(queue=queue))
        ]

    async def _session_rows(
        self, request: web.Request, names: Iterable[str]
    ) -> list[dict[str, Any]]:
        """Rows of the named sessions, without hidden and ended ones; yields after each (I6)."""
        caller, rows = self._context.caller(request, f"{_SESSIONS}ListSessions"), []
        for name in names:
            await asyncio.sleep(0)  # a call whose state is on disk does not yield
            asked = sessions_pb2.ListSessionsRequest(session=name)
            with suppress(SessionNotFoundError):
                listed = await self._context.sessions.list_sessions(asked)
                (found,) = self._context.authorization.visible(caller, asked, listed).sessions
                rows.append(json_rows.session_row(found))
        return rows


def _found_sessions(
    rows: tuple[SessionInfo, ...], view: View, part: str
) -> tuple[int, list[SessionInfo]]:
    """The number of visible sessions, and those with `part` in a name, the oldest lease first."""
    shows = view.shows
    if shows is not None:
        rows = tuple(row for row in rows if row.queues and all(shows(row.queues)))
    found = [
        row
        for row in rows
        if part in row.session.casefold() or any(part in name.casefold() for name in row.queues)
    ]
    return len(rows), sorted(found, key=lambda row: row.leased_at_us if row.leased else 1 << 62)


def _first_readers(rows: tuple[SessionInfo, ...], queue: str) -> tuple[list[str], int]:
    found = [row for row in rows if queue in row.queues]
    found.sort(key=lambda row: (not row.leased, -row.heard_us))
    return [row.session for row in found[:_MOST]], len(found)


def _found_links(
    rows: tuple[links_pb2.LinkInfo, ...], view: View, query: Mapping[str, str], first: int
) -> dict[str, Any]:
    """A page of the visible links, or the link that the query names."""
    name, part, shows = query.get("name"), query.get("filter", "").casefold(), view.shows
    shown = [*(rows if shows is None else compress(rows, shows([each.queue for each in rows])))]
    found = [
        each
        for each in shown
        if name in (None, each.link)
        and any(part in text.casefold() for text in (each.link, each.source, each.queue))
    ]
    found.sort(key=lambda each: -each.held_oldest_age_ms)
    page = [json_rows.link_row(each) for each in found[first : first + _MOST]]
    return {"rows": page, "matched": len(found), "total": len(shown)}


def _page_request(query: Mapping[str, str]) -> PageRequest:
    return PageRequest(
        filter=query.get("filter", ""),
        show=query.get("show", "all"),
        sort=query.get("sort", "age"),
        offset=_number(query, "offset"),
        limit=_number(query, "limit") or 50,
    )


def _number(given: Mapping[str, Any], name: str) -> int:
    """A number of a request; 0 when it is absent; raises InvalidArgumentError."""
    text = str(given.get(name, 0))
    if not text.isdecimal() or len(text) > 18:  # noqa: PLR2004 - below 2^63
        raise InvalidArgumentError(
            f"'{name}' must be a whole number of 0 or more, not '{text[:40]}'."
        )
    return int(text)


def _named(name: object) -> str:
    """Checks the name in a request, and returns it; raises InvalidArgumentError without one."""
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError("The request names no queue or session.")
    return name


async def _body(request: web.Request) -> dict[str, Any]:
    """The JSON object of a request; raises InvalidArgumentError for anything else.

    The page of another site could send other content types without a preflight request.
    """
    if request.content_type != _JSON:
        raise InvalidArgumentError(f"The request must be {_JSON}, not {request.content_type}.")
    try:
        async with asyncio.timeout(limits.FIRST_REQUEST_MS / 1000):
            given = msgspec.json.decode(await request.read())
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(text="The body of the request did not arrive.\n") from error
    except (msgspec.DecodeError, RecursionError, web.RequestPayloadError) as error:
        raise InvalidArgumentError(f"The request is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise InvalidArgumentError("The request must be a JSON object.")
    return given


def _json(context: Context, answer: _Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that sends a function's result as JSON, once the state it read is on disk (I1)."""

    async def handle(request: web.Request) -> web.Response:
        try:
            found = await answer(request)
        except AckqError:
            await context.engine.wait_synced()
            raise
        await context.engine.wait_synced()
        return web.Response(body=msgspec.json.encode(found), content_type=_JSON)

    return handle


def _file(name: str, kind: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that sends a file of the page; the file is read once, at the start."""
    body = files(__package__).joinpath("static", name).read_bytes()

    async def handle(_: web.Request) -> web.Response:
        return web.Response(
            body=body,
            content_type=kind,
            charset="utf-8",
            headers=_PAGE_HEADERS,
            status=HTTPStatus.OK,
        )

    return handle
