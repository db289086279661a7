"""The extras of the package: what to install for a part whose dependencies are missing."""

from __future__ import annotations

import json
from importlib import metadata
from urllib.parse import unquote, urlsplit

_OURS = ("ackq", "ackq_broker")
# There is no release yet: a stranger who registers the name on a package index would run code at
# each `pip install`.
SOURCES = "a checkout of ackq, or its wheel"


def requirement(extra: str) -> str:
    """The arguments of `pip install` for this installation's own source with an extra.

    Returns:
        The arguments; if the source is not known, with CHECKOUT in its place.
    """
    try:
        text = metadata.distribution("ackq").read_text("direct_url.json")
        found = json.loads(text) if text else {}
    except (metadata.PackageNotFoundError, ValueError):
        found = {}
    url = urlsplit(str(found.get("url", "")))
    if url.scheme != "file":
        return f"'CHECKOUT[{extra}]'  (CHECKOUT: {SOURCES})"
    editable = "-e " if found.get("dir_info", {}).get("editable") else ""
    return f"{editable}'{unquote(url.path)}[{extra}]'"


def missing(error: ModuleNotFoundError, part: str, extra: str) -> str:
    """One line that says what to install for a part of the product that lacks a module.

    Args:
        error: As the import raised it.
        part: The part that lacks the module: the beginning of the sentence.
        extra: The extra that brings the module.

    Raises:
        ModuleNotFoundError: The same error, for a module of the product itself: no extra brings it.
    """
    name = (error.name or "").partition(".")[0]
    if name in _OURS:
        raise error
    return f"{part} needs '{name}': run  pip install {requirement(extra)}"
