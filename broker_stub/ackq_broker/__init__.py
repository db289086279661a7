"""The reference broker of ackq: `embedded()` starts one for a program or notebook."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackq_broker.embedding import EmbeddedBroker

__all__ = ["embedded"]


def embedded(
    data: str | os.PathLike[str] | None = None,
    *,
    sync: bool = True,
    env: Mapping[str, str] | None = None,
    http: bool = False,
) -> EmbeddedBroker:
    """A broker in a child process, on a free port of this machine, for a `with` statement.

    Args:
        data: Data directory, kept afterwards. None: a temporary one, removed at the end.
        sync: False does not sync to disk: for tests of other things.
        env: Added to the child's environment.
        http: Whether the broker also serves HTTP, on a free port.
    """
    # Imported late: a program that only reads the version, or runs the broker, does not need it.
    from ackq_broker.embedding import EmbeddedBroker  # noqa: PLC0415

    return EmbeddedBroker(data, sync=sync, env=env, http=http)
