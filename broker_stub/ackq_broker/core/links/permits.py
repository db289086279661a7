"""Permits (L9, L10) to acknowledge or reject at the remote broker; on disk before they are sent.

Invariant: a message without a permit was never acknowledged at the remote broker.
"""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap64

from ackq.errors import InvalidArgumentError
from ackq_broker.core import commands, records
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import Decision, LinkAck, PermittedLinked
from ackq_broker.core.links import holder
from ackq_broker.core.state.link import Link
from ackq_broker.core.state.state import State


def permit(state: State, command: commands.PermitLinked, now_us: int) -> Decision:
    """L9, L10: permits the acknowledgement of settled messages that have no permit yet."""
    link = holder.find(state, command.link, command.epoch, command.stream)
    holder.check_subscription(link, command.subscription)
    check_proof(link, command.proven, command.proven_number)
    queue = state.queues[link.queue_id]
    new = link.waiting if link.ack is LinkAck.STORED else queue.gone(link.waiting)
    proven = link.provable(command.proven)
    told = link.batches[proven:] if command.again else []
    batches = [*(batch.positions for batch in told), new]
    parts = [part for batch in batches for part in (batch & link.rejected, batch - link.rejected)]
    positions = np.concatenate([bitmaps.array(part) for part in parts]).astype(np.uint64)
    rejected = BitMap64.union(BitMap64(), *parts[::2])
    reply = PermittedLinked(positions, len(link.waiting) - len(new), rejected)
    together = len(told) + bool(new) > 1
    if not (new or proven or together):
        return Decision(reply=reply)
    record = records.LinkPermitted(link.name, new.copy(), command.proven, now_us, together)
    return Decision((record,), reply)


def apply_permitted(state: State, _sequence: int, record: records.LinkPermitted) -> None:
    """Remembers permits, and forgets entries whose proof is old enough."""
    link = state.links[record.link]
    link.prove(record.proven, record.at_us)
    link.permit(record.positions, record.at_us)
    if record.together:
        link.join_permits()
    link.forget_due(state.queues[link.queue_id], record.at_us)


def check_proof(link: Link, proven: int, number: int) -> None:
    """L10: refuses a proof that the permits contradict.

    A link that did not receive some permits counts later ones in their place: then the delivery
    that it names is in another batch than its count says.

    Raises:
        InvalidArgumentError: More is proven than was permitted, or the last proven delivery is not
            the named one.
    """
    if proven > link.permitted():
        raise InvalidArgumentError(
            f"The link '{link.name}' reports {proven} acknowledgements of this subscription as "
            f"proven, but only {link.permitted()} were permitted. Count them from 0 with each "
            "subscription, in the order of their permits.",
            link=link.name,
            permitted=link.permitted(),
        )
    if proven > link.proved and not link.names(proven, number):
        raise InvalidArgumentError(
            f"The link '{link.name}' reports {proven} acknowledgements of this subscription as "
            f"proven, the last for delivery {number}, which has another place among the permits: "
            "a permit did not reach the link. Start the link again: the remote broker then "
            "redelivers its messages, and those that are stored already are recognised.",
            link=link.name,
            number=number,
        )
