"""Links as operators see them, without holder tokens."""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import Message

from ackq.v1 import links_pb2 as pb
from ackq.v1 import sessions_pb2
from ackq.wire.answers import copied
from ackq_broker.core import commands
from ackq_broker.engine.clock import age_ms

R = TypeVar("R", bound=Message)

ACK_OF_WIRE: Final = {
    pb.LINK_ACK_SETTLED: commands.LinkAck.SETTLED,
    pb.LINK_ACK_STORED: commands.LinkAck.STORED,
}
# Maximum bytes of `limited_by`, which is one word.
WORD_BYTES: Final = 64
_ACK_TO_WIRE: Final = {ack: wire for wire, ack in ACK_OF_WIRE.items()}


def of_its_own(report: R) -> R:
    """Copies a report without unknown fields: a part of a request keeps it in memory (I6)."""
    report.DiscardUnknownFields()
    return type(report).FromString(report.SerializeToString())


def link_info(
    link: commands.LinkInfo,
    now_us: int,
    *,
    live: bool,
    refusal: str = "",
    report: pb.LinkReport | None = None,
) -> pb.LinkInfo:
    """Converts a link to its wire form.

    Args:
        link: The link's state in the core.
        now_us: The broker's time.
        live: Whether its holder counts as live.
        refusal: Why its deliveries are refused now; empty if they are not.
        report: The last report of its process; None if no process runs it.
    """
    return copied(
        pb.LinkInfo,
        link,
        holder=link.holder and copied(sessions_pb2.Holder, link.holder),
        live=live,
        ack=_ACK_TO_WIRE[link.ack],
        held_oldest_age_ms=age_ms(link.oldest_held_us, now_us),
        refusal=refusal,
        report=report,
    )
