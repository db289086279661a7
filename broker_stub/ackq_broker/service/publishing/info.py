"""Staged batches and writers as operators see them (K3), a page at a time."""

from __future__ import annotations

from typing import Final

from ackq.v1 import publishing_pb2 as pb
from ackq_broker.core import commands
from ackq_broker.engine.clock import age_ms

# A page is at most 10 MB, with names of their full length.
PAGE: Final = 1_000
_MOST_TARGETS: Final = 20
_MOST_STAGES: Final = 1_000


def batch_key(key: pb.BatchKey) -> commands.BatchKey:
    """The core's form of a batch's name."""
    return commands.BatchKey(key.writer, key.batch_id)


def batch_info(info: commands.BatchInfo, now_us: int, *, detailed: bool = False) -> pb.BatchInfo:
    """The wire form; only a detailed one lists the stages."""
    stages = info.stages
    return pb.BatchInfo(
        writer=info.batch.writer,
        batch_id=info.batch.batch_id,
        run_id=stages[-1].run_id,
        stages=len(stages),
        open_stages=sum(not stage.sealed for stage in stages),
        rows=sum(stage.rows for stage in stages),
        payload_bytes=sum(stage.payload_bytes for stage in stages),
        age_ms=age_ms(stages[-1].touched_us, now_us),
        committed=info.committed,
        targets=[pb.BatchTarget(**each._asdict()) for each in info.targets[:_MOST_TARGETS]],
        target_count=len(info.targets),
        details=[_stage_info(each, now_us) for each in stages[:_MOST_STAGES]] if detailed else (),
        single=info.single,
        user=info.user,
    )


def writer_info(info: commands.WriterInfo, now_us: int) -> pb.WriterInfo:
    """The wire form."""
    return pb.WriterInfo(
        writer=info.writer,
        committed=info.batch_id >= 0,
        batch_id=max(info.batch_id, 0),
        rows=info.rows,
        age_ms=age_ms(info.touched_us, now_us),
        stages=info.stages,
        single=info.single,
        user=info.user,
    )


def _stage_info(stage: commands.StageInfo, now_us: int) -> pb.StageInfo:
    return pb.StageInfo(
        stage_id=stage.stage_id,
        label=stage.label,
        run_id=stage.run_id,
        rows=stage.rows,
        payload_bytes=stage.payload_bytes,
        sealed=stage.sealed,
        age_ms=age_ms(stage.touched_us, now_us),
    )
