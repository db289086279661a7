"""`/livez` and `/readyz`: what a supervisor and a load balancer ask (M1).

Open to everybody, so they say nothing but this: live or not, ready or not, and why. A full disk or
short memory is no reason to be taken out of service: consumers, who make room, come the same way.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from aiohttp import web

from ackq_broker.engine.engine import Engine
from ackq_broker.http.context import Context


class Health(NamedTuple):
    """Whether the broker takes calls, and what it would say about that, a word each."""

    ready: bool
    reasons: tuple[str, ...]


def health(engine: Engine) -> Health:
    """The health of a broker that has recovered: nothing is served before (Q7)."""
    if engine.failure is not None:
        return Health(False, ("failed",))
    if engine.alarms.stopping:
        return Health(False, ("stopping",))
    if engine.alarms.draining:
        return Health(False, ("draining",))
    blocked = {"disk": engine.disk_alarm.reason, "memory": engine.in_flight.reason}
    return Health(True, tuple(f"publishers blocked: {name}" for name in blocked if blocked[name]))


def add_routes(app: web.Application, context: Context) -> None:
    """Adds both paths; they answer 200, or 503 with the reasons."""

    async def live(_: web.Request) -> web.Response:
        return web.Response(text="live\n")

    async def ready(_: web.Request) -> web.Response:
        found = health(context.engine)
        lines = ("ready" if found.ready else "not ready", *found.reasons)
        status = HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return web.Response(text="".join(f"{line}\n" for line in lines), status=status)

    app.router.add_get("/livez", live)
    app.router.add_get("/readyz", ready)
