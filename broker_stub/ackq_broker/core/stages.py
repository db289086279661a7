"""Names of sealed stages, in commands and records (K3, K14)."""

from __future__ import annotations

from typing import NamedTuple


class StageRef(NamedTuple):
    """A stage with its rows and bytes as its writer counted them."""

    stage_id: bytes
    rows: int
    payload_bytes: int


class EdgeStages(NamedTuple):
    """The stages of a batch at another edge (K14)."""

    endpoint: str
    stages: tuple[StageRef, ...]
