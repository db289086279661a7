"""Staged batches and writers as operators see them, a page at a time (K3)."""

from __future__ import annotations

from typing import Final

from ackq.v1 import publishing_pb2 as pb
from ackq.wire.answers import copied
from ackq_broker.core import commands
from ackq_broker.engine.clock import age_ms

# A page is at most 10 MB, even if all names have their maximum length.
PAGE: Final = 1_000
_MOST_TARGETS: Final = 20
_MOST_STAGES: Final = 1_000


def batch_key(key: pb.BatchKey) -> commands.BatchKey:
    """Converts a batch key from the wire to the core's form."""
    return commands.BatchKey(key.writer, key.batch_id)


def batch_info(info: commands.BatchInfo, now_us: int, *, detailed: bool = False) -> pb.BatchInfo:
    """Converts a staged batch to its wire form; only a detailed one lists the stages."""
    stages = info.stages
    return copied(
        pb.BatchInfo,
        info,
        writer=info.batch.writer,
        batch_id=info.batch.batch_id,
        run_id=stages[-1].run_id,
        stages=len(stages),
        open_stages=sum(not stage.sealed for stage in stages),
        rows=sum(stage.rows for stage in stages),
        payload_bytes=sum(stage.payload_bytes for stage in stages),
        age_ms=age_ms(stages[-1].touched_us, now_us),
        targets=[pb.BatchTarget(**each._asdict()) for each in info.targets[:_MOST_TARGETS]],
        target_count=len(info.targets),
        details=[
            copied(pb.StageInfo, each, age_ms=age_ms(each.touched_us, now_us))
            for each in stages[: _MOST_STAGES if detailed else 0]
        ],
    )


def writer_info(info: commands.WriterInfo, now_us: int) -> pb.WriterInfo:
    """Converts a writer to its wire form."""
    return copied(
        pb.WriterInfo,
        info,
        committed=info.batch_id >= 0,
        batch_id=max(info.batch_id, 0),
        age_ms=age_ms(info.touched_us, now_us),
    )
