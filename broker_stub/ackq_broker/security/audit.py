"""The audit (A8): a JSON line for each refusal and each administrative act, with its caller.

The lines go to the logger `ackq.audit`, and so to the broker's log, whatever the level of the log.
Refusals of one user or address are at most a line a second; the next line counts the omitted ones.
"""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import Message

from ackq.errors import AckqError
from ackq_broker.engine.events import event
from ackq_broker.security.logins import address_of

_log: Final = logging.getLogger("ackq.audit")
_INTERVAL_S: Final = 1.0
# The most users and addresses whose last refusal is remembered.
_KNOWN: Final = 10_000
_MOST_TEXT: Final = 256


class Audit:
    """Writes the lines of the audit.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        _log.setLevel(logging.INFO)
        self._refused: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def act(self, user: str, peer: str, method: str, request: Any, result: str) -> None:
        """Writes an administrative act; `result` is `done`, `failed` or the code of its error."""
        self._write(
            "act",
            call=_short(method),
            user=user,
            peer=peer,
            request=_fields(request),
            result=result,
        )

    def refused(self, user: str, peer: str, method: str, error: AckqError) -> None:
        """Writes a refusal, unless one of this user or address was written within a second."""
        who = user or address_of(peer)
        now = self._clock()
        last, left_out = self._refused.pop(who, (now - _INTERVAL_S, 0))
        if now - last < _INTERVAL_S:
            self._refused[who] = (last, left_out + 1)
            return
        self._refused[who] = (now, 0)
        if len(self._refused) > _KNOWN:
            self._refused.popitem(last=False)
        more = {"left_out": left_out} if left_out else {}
        self._write(
            "refused",
            call=_short(method),
            user=user,
            peer=peer,
            reason=error.fields.get("permission", error.code),
            **more,
        )

    def _write(self, name: str, **fields: object) -> None:
        line = json.dumps({"event": name, **fields})
        _log.info("%s", line, extra=event(name, **fields))


def _short(method: str) -> str:
    return method.removeprefix("ackq.v1.")


def _fields(request: Any) -> dict[str, object]:
    """The plain fields of a request: names, flags and numbers."""
    found: dict[str, object] = {}
    for field, value in request.ListFields():
        if isinstance(value, Message):
            found[field.name] = _fields(value)
        elif isinstance(value, str):
            found[field.name] = value[:_MOST_TEXT]
        elif isinstance(value, (bool, int)):
            found[field.name] = value
    return found
