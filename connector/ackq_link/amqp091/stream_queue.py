"""A stream of RabbitMQ is no queue: an acknowledgement removes nothing there. Rule L14.

A link would begin at its end each time it starts, and lose what came meanwhile; so it is refused.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiormq.exceptions import ConnectionNotImplemented

from ackq.errors import PreconditionFailedError
from ackq_link.adapter import CutError
from ackq_link.amqp091.address import BrokerAddress, connect

STREAM: Final = "stream"
# What each delivery of a stream has; a message that was copied from one may have it as well.
OFFSET_HEADER: Final = b"x-stream-offset"
_CALL_S: Final = 20.0


def refusal(queue: str) -> PreconditionFailedError:
    """Why no link reads a stream."""
    return PreconditionFailedError(
        f"'{queue}' is a stream, of which a link would lose what comes while it is stopped: what is"
        " read there stays, and nothing says how far a link has come. Bind a quorum queue to the"
        " same exchange and link that; or copy the stream into one with a shovel."
    )


async def is_stream(address: BrokerAddress, queue: str) -> bool:
    """Asks for one message, which a stream does not give; another queue has it back at once.

    Raises:
        CutError: The broker is away.
    """
    connection = await connect(address, queue, confirms=False)
    try:
        async with asyncio.timeout(_CALL_S):
            await connection.channel.basic_get(queue, no_ack=False)
    except ConnectionNotImplemented:
        return True
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not known
        raise CutError(f"{address.url}: {error}") from None
    finally:
        await connection.close()
    return False
