"""Offsets as stored in Spark's checkpoint: one line of versioned JSON in one key order.

`{"v":1}` is the start of every query; `{"v":1,"session":"s","incarnation":"i","tag":N}` is
everything up to and including delivery tag N of that session. A query of several edges has such a
place for each: `{"v":2,"edges":{"host:port":{"session":"s","incarnation":"i","tag":N},...}}` (S12).
Spark compares offsets as strings, so equal offsets have equal text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ackq.errors import CheckpointMismatchError, OffsetVersionError

# The version of offsets of one broker, and of several.
VERSION: Final = 1
EDGES_VERSION: Final = 2
# The broker's limit of tags.
_LARGEST_TAG: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Offset:
    """A place in a session's deliveries.

    Attributes:
        session: The session's name; empty in the opening offset.
        incarnation: The session's incarnation; empty in the opening offset.
        tag: The last delivery tag before this place; 0 is the place before the first.
    """

    session: str = ""
    incarnation: str = ""
    tag: int = 0

    @property
    def is_opening(self) -> bool:
        """Whether no session exists yet for this query."""
        return not self.incarnation

    def to_dict(self) -> dict[str, object]:
        """The place without a version, in canonical key order."""
        return {"session": self.session, "incarnation": self.incarnation, "tag": self.tag}


OPENING: Final = Offset()


@dataclass(frozen=True, slots=True)
class Offsets:
    """A query's offset: its place at each edge, by endpoint; no place at all is the opening."""

    places: Mapping[str, Offset] = field(default_factory=dict)

    @property
    def is_opening(self) -> bool:
        """Whether no session exists yet for this query."""
        return not self.places

    def at(self, endpoint: str) -> Offset:
        """The place at an edge; the opening if it has none."""
        return self.places.get(endpoint, OPENING)

    def start_of(self, endpoint: str, end: Offset) -> Offset:
        """The place from which a batch ends at `end`; a renamed edge is known by its session."""
        renamed = (each for each in self.places.values() if each.incarnation == end.incarnation)
        return self.places.get(endpoint) or next(renamed, OPENING)

    def to_dict(self, endpoints: Sequence[str]) -> dict[str, object]:
        """The offset as Spark's API takes it, for a query of these edges."""
        if self.is_opening:
            return {"v": VERSION}
        if len(endpoints) == 1:
            return {"v": VERSION, **self.at(endpoints[0]).to_dict()}
        edges = {endpoint: self.places[endpoint].to_dict() for endpoint in sorted(self.places)}
        return {"v": EDGES_VERSION, "edges": edges}

    @classmethod
    def from_dict(cls, raw: Mapping[str, object], endpoints: Sequence[str]) -> Offsets:
        """The offset a checkpoint holds; a place without an endpoint is that of the first.

        Raises:
            OffsetVersionError: It was written by a newer version of this software.
            CheckpointMismatchError: It is no offset of this source.
        """
        version = raw.get("v") if isinstance(raw, Mapping) else None
        if type(version) is int and version > EDGES_VERSION:
            raise OffsetVersionError(
                f"The checkpoint holds an offset of version {version}; this ackq knows versions"
                f" up to {EDGES_VERSION}. Run the query with the newer ackq that wrote it.",
                version=version,
                known=EDGES_VERSION,
            )
        rest = dict(raw) if isinstance(raw, Mapping) and type(version) is int else {"": raw}
        rest.pop("v", None)
        edges = rest.get("edges")
        if version == VERSION and not rest:
            return cls()
        if version == VERSION:
            edges = {endpoints[0]: rest}
        elif version != EDGES_VERSION or len(rest) != 1:
            edges = None
        if not isinstance(edges, Mapping) or not edges:
            raise _no_offset(raw)
        return cls({endpoint: _place(raw, place) for endpoint, place in edges.items()})


def _place(raw: object, place: object) -> Offset:
    if isinstance(place, Mapping) and len(place) == 3:  # noqa: PLR2004 - session, incarnation, tag
        session, incarnation, tag = (place.get(name) for name in ("session", "incarnation", "tag"))
        if (
            isinstance(session, str)
            and isinstance(incarnation, str)
            and type(tag) is int
            and session
            and incarnation
            and 0 <= tag <= _LARGEST_TAG
        ):
            return Offset(session, incarnation, tag)
    raise _no_offset(raw)


def _no_offset(raw: object) -> CheckpointMismatchError:
    shown = dict(raw) if isinstance(raw, Mapping) else raw
    return CheckpointMismatchError(
        f"The checkpoint holds the offset {shown}, which is not an offset of ackq."
        " It belongs to another source: give this query a checkpoint location of its own.",
        offset=shown,
    )
