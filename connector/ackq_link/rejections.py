"""Where a message goes that is rejected here (L28): to the edge's dead letters, or there.

Invariant: it decides only, of what the other broker told; nothing here rejects.
"""

from __future__ import annotations

from enum import StrEnum

from ackq.errors import PreconditionFailedError
from ackq_link.adapter import QueueLimits


class OnReject(StrEnum):
    """What the rejection of a message here does."""

    HERE = "here"  # it is a dead letter of the edge, and acknowledged there
    THERE = "there"  # it is rejected there, and no dead letter of the edge
    DISCARD = "discard"  # likewise, though it may be gone then

    @property
    def there(self) -> bool:
        """Whether the other broker is told."""
        return self is not OnReject.HERE


def rejects_unfit(on_reject: OnReject, limits: QueueLimits) -> bool:
    """Whether a message that the edge cannot take is rejected there, and not left there (L29)."""
    kept = on_reject is OnReject.DISCARD or limits.dead_letters is True
    return kept and not limits.rejected_again


def check_rejections(link: str, queue: str, on_reject: OnReject, limits: QueueLimits) -> str:
    """What is not known of a queue where this link rejects; empty: nothing.

    Raises:
        PreconditionFailedError: What is rejected there would be gone, or come again.
    """
    if not on_reject.there:
        return ""
    if limits.rejected_again:
        raise PreconditionFailedError(
            f"The queue '{queue}' is one of a broker that delivers again what link {link} rejects,"
            f" so on-reject={on_reject} would bring it here again and again. Leave on-reject=here."
        )
    if on_reject is OnReject.DISCARD:
        return ""
    if limits.dead_letters is False:
        raise PreconditionFailedError(
            f"The queue '{queue}' has no dead-letter exchange: what link {link} rejects there would"
            f" be gone. Give it one: {limits.remedy} - or keep dead letters here (on-reject=here),"
            " or accept the loss (on-reject=discard)."
        )
    if limits.dead_letters is None:
        return (
            f"it is not known whether the queue '{queue}' has a dead-letter exchange: without one,"
            " what is rejected there is gone. Let the link ask (management), or say that it has"
            " one (dead-letters)"
        )
    return ""
