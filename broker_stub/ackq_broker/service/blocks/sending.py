"""Sends pieces to a reader: frames are built in a worker thread, one ahead of the wire.

Invariant: no frame leaves before everything that the pieces depend on is on disk (I1). For a slow
reader at most one slice of pieces is kept: a message that was published alone is a piece, of
8 us and 340 bytes (I6).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

from ackq_broker.core.commands import Piece
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.in_flight import StreamBytes
from ackq_broker.service.blocks.frames import DeliveryFrame, FrameBuilder
from ackq_broker.service.transport.rpc import Write

MOST_PIECES: Final = 4_096
# Ratio of the labels asked for next to the labels of the previous slice.
_WIDER: Final = 4


def slices(
    ask: Callable[[int, int], Sequence[Piece]], after: int, last: int
) -> Iterator[Sequence[Piece]]:
    """Yields the pieces of the labels (after, last] in slices, each computed when it is needed.

    Args:
        ask: Returns the first `MOST_PIECES` pieces after one label up to another.
        after: A tag or position.
        last: The last tag or position.
    """
    until = last
    while True:
        found = ask(after, until)
        reached = until
        if len(found) >= MOST_PIECES:
            run = found[-1].runs[-1]
            reached = run.first_tag + run.rows - 1
        if found:
            yield found
        if reached >= last:
            return
        # Asking for all remaining labels each time would cost time in proportion to their number.
        wider = _WIDER * (reached - after) if reached < until else last
        after, until = reached, min(last, reached + wider)


def rows_in(pieces: Sequence[Piece]) -> int:
    """The number of rows of pieces."""
    return sum(run.rows for piece in pieces for run in piece.runs)


async def send_pieces(
    engine: Engine,
    pieces: Sequence[Piece],
    wanted: int,
    write: Write[DeliveryFrame],
    *,
    browse: bool = False,
    max_body_bytes: int = 0,
) -> None:
    """Sends the rows of pieces to a reader.

    Args:
        engine: Reads blocks.
        pieces: Pieces of the core's present state.
        wanted: Bit set of columns; 0 means all.
        write: Sends a frame.
        browse: Mark leased rows, and leave out messages removed in the meantime (Q5).
        max_body_bytes: Truncate bodies to this length (Q5); 0: whole bodies.

    Raises:
        BlockNotFoundError: Messages were removed in the meantime, and it is not a browse.
    """
    builder = FrameBuilder(
        pieces,
        engine.journal.read_block,
        wanted,
        browse=browse,
        settled_ok=browse,
        max_body_bytes=max_body_bytes,
    )
    await engine.sync_gate.wait(engine.core.sequence)
    with engine.in_flight.stream(brings=False) as in_flight:
        async with aclosing(build_ahead(engine, builder, in_flight)) as frames:
            async for frame in frames:
                await write(frame)


async def build_here(
    builder: FrameBuilder, in_flight: StreamBytes
) -> AsyncGenerator[DeliveryFrame, None]:
    """Yields a builder's frames, built on the event loop, if a worker thread would cost more."""
    while (frame := builder.next_frame()) is not None:
        in_flight.add(len(frame.block))
        yield frame
        in_flight.remove(len(frame.block))


async def build_ahead(
    engine: Engine, builder: FrameBuilder, in_flight: StreamBytes
) -> AsyncGenerator[DeliveryFrame, None]:
    """Yields a builder's frames, built in a worker thread while the previous one is written."""

    async def build() -> DeliveryFrame | None:
        built = await engine.run(builder.next_frame)
        in_flight.add(len(built.block) if built is not None else 0)
        return built

    ahead = asyncio.ensure_future(build())
    try:
        while (frame := await ahead) is not None:
            ahead = asyncio.ensure_future(build())
            yield frame
            in_flight.remove(len(frame.block))
    finally:
        ahead.cancel()
        await asyncio.gather(ahead, return_exceptions=True)
