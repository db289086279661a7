"""Offsets as stored in Spark's checkpoint: one line of versioned JSON in one key order.

`{"v":1}` is the start of every query; `{"v":1,"session":"s","incarnation":"i","tag":N}` is
everything up to and including delivery tag N of that session. Spark compares offsets as strings, so
equal offsets have equal text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ackq.errors import CheckpointMismatchError, OffsetVersionError

VERSION: Final = 1
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
        """The offset as Spark's API takes it, in canonical key order."""
        if self.is_opening:
            return {"v": VERSION}
        return {
            "v": VERSION,
            "session": self.session,
            "incarnation": self.incarnation,
            "tag": self.tag,
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, object]) -> Offset:
        """The offset a checkpoint holds.

        Raises:
            OffsetVersionError: It was written by a newer version of this software.
            CheckpointMismatchError: It is no offset of this source.
        """
        if not isinstance(raw, Mapping):
            raise _no_offset(raw)
        version = raw.get("v")
        if type(version) is int and version > VERSION:
            raise OffsetVersionError(
                f"The checkpoint holds an offset of version {version}; this ackq knows versions up"
                f" to {VERSION}. Run the query with the newer ackq that wrote the checkpoint.",
                version=version,
                known=VERSION,
            )
        if type(version) is int and dict(raw) == {"v": VERSION}:
            return OPENING
        session, incarnation, tag = raw.get("session"), raw.get("incarnation"), raw.get("tag")
        if (
            version == VERSION
            and len(raw) == 4  # noqa: PLR2004 - v, session, incarnation, tag
            and isinstance(session, str)
            and isinstance(incarnation, str)
            and type(tag) is int
            and session
            and incarnation
            and 0 <= tag <= _LARGEST_TAG
        ):
            return cls(session, incarnation, tag)
        raise _no_offset(dict(raw))


def _no_offset(raw: object) -> CheckpointMismatchError:
    return CheckpointMismatchError(
        f"The checkpoint holds the offset {raw}, which is not an offset of ackq."
        " It belongs to another source: give this query a checkpoint location of its own.",
        offset=raw,
    )


OPENING: Final = Offset()
