"""Holders of sessions (S3) and of links (L1): one at a time, each with its own epoch."""

from __future__ import annotations

from ackq.errors import AlreadyHeldError
from ackq_broker.core.checks import utc
from ackq_broker.core.commands import HolderInfo
from ackq_broker.core.fields import Holder
from ackq_broker.core.state.link import Link
from ackq_broker.core.state.state import Session


def new_holder(caller: HolderInfo, now_us: int) -> Holder:
    """Makes a holder of a caller, which begins to hold a session or a link now."""
    return Holder(caller.token, caller.host, caller.pid, caller.application, now_us)


def claim(held: Session | Link, caller: HolderInfo, now_us: int) -> tuple[Holder, int]:
    """Holder and epoch after a call: an equal token keeps its epoch, another one begins one."""
    if caller.token == held.holder.token:
        return held.holder, held.epoch
    return new_holder(caller, now_us), held.epoch + 1


def already_held(held: Session | Link, remedy: str) -> AlreadyHeldError:
    """Returns the error for an object that is held, naming the holder."""
    kind, how = ("session", "held") if isinstance(held, Session) else ("link", "run")
    return AlreadyHeldError(
        f"The {kind} '{held.name}' is {how} by {holder_text(held.holder)}. {remedy}",
        **{kind: held.name},
        **holder_fields(held.holder),
    )


def holder_fields(holder: Holder) -> dict[str, object]:
    """Returns the fields of an error that describe a holder, without its token."""
    return {
        "holder_host": holder.host,
        "holder_pid": holder.pid,
        "holder_application": holder.application,
        "holder_since_us": holder.since_us,
    }


def holder_text(holder: Holder) -> str:
    """Describes a holder for the text of an error."""
    application = f" ({holder.application})" if holder.application else ""
    host = holder.host or "an unnamed host"
    return f"{host}, pid {holder.pid}{application}, since {utc(holder.since_us)}"
