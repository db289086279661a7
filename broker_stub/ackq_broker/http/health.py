"""`/livez` and `/readyz`: health checks for a supervisor and a load balancer (M1).

Open to everybody, so they report only this: live or not, ready or not, and why. A full disk or
short memory is no reason to take the broker out of service: consumers, which make room, connect by
the same address.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from aiohttp import web

from ackq_broker.engine.engine import Engine
from ackq_broker.http.context import Context


class Health(NamedTuple):
    """Whether the broker accepts calls, and the reasons, a short text each."""

    ready: bool
    reasons: tuple[str, ...]


def health(engine: Engine) -> Health:
    """The health of a recovered broker; before its recovery ends nothing is served (Q7)."""
    if engine.failure is not None:
        return Health(False, ("failed",))
    if engine.alarms.stopping:
        return Health(False, ("stopping",))
    if engine.alarms.draining:
        return Health(False, ("draining",))
    blocked = {"disk": engine.disk_alarm.reason, "memory": engine.in_flight.reason}
    return Health(True, tuple(f"publishers blocked: {name}" for name in blocked if blocked[name]))


def add_routes(app: web.Application, context: Context) -> None:
    """Adds the routes of both paths; they answer 200, or 503 with the reasons."""

    async def live(_: web.Request) -> web.Response:
        return web.Response(text="live\n")

    async def ready(_: web.Request) -> web.Response:
        found = health(context.engine)
        lines = ("ready" if found.ready else "not ready", *found.reasons)
        status = HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return web.Response(text="".join(f"{line}\n" for line in lines), status=status)

    app.router.add_get("/livez", live)
    app.router.add_get("/readyz", ready)
