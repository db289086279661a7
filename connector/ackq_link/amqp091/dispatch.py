"""Hands the deliveries of a channel to its consumers at once, in place of a task for each.

The library makes a task of each delivery, and enters it into the books of channel and connection,
so that a consumer may wait. A link's does not: it is called to its end where it is. Invariant:
with a version of the library that does not ask for the method that is replaced here, deliveries
come as before.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

import aiormq
from pamqp import commands
from pamqp.header import ContentHeader

_REPLACED: Final = "_on_deliver_frame"


def take_at_once(channel: aiormq.Channel) -> None:
    """Has the consumers of a channel, which must not wait, called as their deliveries come.

    What a consumer raises ends the channel.
    """

    async def on_deliver(frame: commands.Basic.Deliver) -> None:
        header = await channel._get_frame()  # noqa: SLF001 - there is no other way to it
        if not isinstance(header, ContentHeader):
            raise ValueError(f"{header!r} came, not a header")  # noqa: TRY004 - as the library
        message = await channel._read_content(frame, header)  # noqa: SLF001 - same
        consumer = channel.consumers.get(frame.consumer_tag or "")
        if consumer is not None:
            run(consumer(message))

    setattr(channel, _REPLACED, on_deliver)


def run(call: Coroutine[Any, Any, Any]) -> None:
    """Runs a coroutine that waits for nothing to its end; raises what it raises."""
    try:
        call.send(None)
    except StopIteration:
        return
    call.close()
    raise AssertionError("a link's consumer waits for nothing")
