"""Builds the requests that stage a task's outcomes for messages of a lease (S6).

Invariant: the requests of a stage are complete before the first is sent, so that all of them can be
sent again under the same stage id, and only the last has the seal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

from ackq import limits
from ackq.client import outcomes
from ackq.errors import InvalidArgumentError, LimitError
from ackq.outcomes import Outcome, OutcomeName
from ackq.v1 import sessions_pb2 as pb
from ackq.wire import frame
from ackq.wire.outcomes import TO_WIRE

_ID_BYTES: Final = 16
_TAG_TYPES: Final = (pa.int64(), pa.uint64())
# The field `tags` of an OutcomeGroup, packed: its key as protobuf writes it.
_TAGS_KEY: Final = bytes((pb.OutcomeGroup.TAGS_FIELD_NUMBER << 3 | 2,))


class OutcomeStage(NamedTuple):
    """A sealed stage of outcomes, named by its commit; part of a task's commit message.

    Attributes:
        stage_id: 16 random bytes.
        tags: Number of different tags in the stage.
    """

    stage_id: bytes
    tags: int


def outcome_group(
    outcome: Outcome | OutcomeName, tags: pa.Array, reason: str = "", delay_ms: int = 0
) -> pb.OutcomeGroup:
    """A group of tags with the same outcome; their bytes are copied without Python integers.

    Args:
        outcome: The outcome, or its name.
        tags: Delivery tags, int64 or uint64 without nulls.
        reason: Why, for REJECTED and FAILED.
        delay_ms: Redelivery delay for FAILED and RELEASED; 0 takes the queue's delay.

    Raises:
        InvalidArgumentError: No such outcome, tags of another type, too long a reason or delay.
    """
    disposition = outcomes.disposition(outcomes.outcome_of(outcome), reason, delay_ms)
    if tags.type not in _TAG_TYPES or tags.null_count:
        raise InvalidArgumentError(
            f"Delivery tags are bigint and never null; these are {tags.type} with "
            f"{tags.null_count} nulls.",
            argument="tags",
        )
    group = pb.OutcomeGroup(
        outcome=TO_WIRE[disposition.outcome],
        reason=disposition.reason,
        delay_ms=disposition.delay_ms,
    )
    if len(tags):
        packed = memoryview(tags.buffers()[1])[8 * tags.offset : 8 * (tags.offset + len(tags))]
        group.MergeFromString(_TAGS_KEY + frame.varint(len(packed)) + packed)
    return group


def requests(
    owner: pb.LeaseOwner,
    stage_id: bytes,
    label: str,
    groups: Iterable[Iterable[pb.OutcomeGroup]],
    *,
    discard: bool,
) -> list[pb.StageOutcomesRequest]:
    """The requests of a stage, one for each inner iterable.

    Raises:
        InvalidArgumentError: The stage id is not 16 bytes.
        LimitError: The stage is larger than the limit (`limits.MAX_OUTCOME_STAGE_BYTES`).
    """
    if len(stage_id) != _ID_BYTES:
        raise InvalidArgumentError(
            f"A stage id has {_ID_BYTES} random bytes, not {len(stage_id)}.", argument="stage_id"
        )
    made, size = [], 0
    for part in groups:
        made.append(pb.StageOutcomesRequest(groups=part))
        size += made[-1].ByteSize()
        if size > limits.MAX_OUTCOME_STAGE_BYTES:
            raise LimitError(
                f"The outcomes of the task '{label}' have more than "
                f"{limits.MAX_OUTCOME_STAGE_BYTES} bytes. Settle fewer rows in a task (more "
                "partitions), with fewer or shorter reasons: one is the kind of fault, not the "
                "value.",
                limit=limits.MAX_OUTCOME_STAGE_BYTES,
            )
    made = made or [pb.StageOutcomesRequest()]
    opening = pb.StageOutcomesRequest(owner=owner, stage_id=stage_id, label=label, discard=discard)
    made[0].MergeFrom(opening)
    made[-1].seal = True
    return made
