"""Detects RabbitMQ streams, which a link refuses to consume. Rule L14.

An acknowledgement removes nothing from a stream. A link would begin at the stream's end at each
start, and lose the messages that came meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiormq.exceptions import ChannelLockedResource, ConnectionNotImplemented

from ackq.errors import PreconditionFailedError
from ackq_link.adapter import CutError
from ackq_link.amqp091.address import BrokerAddress, connect

STREAM: Final = "stream"
# A header of each delivery of a stream; a message copied from a stream may have it as well.
OFFSET_HEADER: Final = b"x-stream-offset"
_CALL_S: Final = 20.0


def refusal(queue: str) -> PreconditionFailedError:
    """The error that refuses a stream, with the reason and a remedy."""
    return PreconditionFailedError(
        f"'{queue}' is a stream, of which a link would lose the messages that come while it is"
        " stopped: a stream keeps messages that were read, and does not record how far a link has"
        " read. Bind a quorum queue to the same exchange and link that queue; or copy the stream"
        " into one with a shovel."
    )


async def is_stream(address: BrokerAddress, queue: str) -> bool:
    """Whether a queue is a stream: it refuses to give a single message by `basic.get`.

    Another queue gives one, and gets it back at once when the connection closes. A quorum queue
    with a single active consumer gives none either, and says that it is locked.

    Raises:
        CutError: The broker is away.
    """
    connection = await connect(address, queue, confirms=False)
    try:
        async with asyncio.timeout(_CALL_S):
            await connection.channel.basic_get(queue, no_ack=False)
    except ConnectionNotImplemented:
        return True
    except ChannelLockedResource:
        return False
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not known
        raise CutError(f"{address.url}: {error}") from None
    finally:
        await connection.close()
    return False
