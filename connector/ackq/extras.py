"""The extras of the package: what to install for a part whose dependencies are not there."""

from __future__ import annotations

_OURS = ("ackq", "ackq_broker")


def missing(error: ModuleNotFoundError, part: str, extra: str) -> str:
    """What to install, in one line, for a part of the product that found a module missing.

    Args:
        error: As the import raised it.
        part: What was to be used: the beginning of the sentence.
        extra: The extra that brings the module.

    Raises:
        ModuleNotFoundError: The same error, for a module of the product itself: no extra brings it.
    """
    name = (error.name or "").partition(".")[0]
    if name in _OURS:
        raise error
    return f"{part} needs '{name}': run  pip install 'ackq[{extra}]'"
