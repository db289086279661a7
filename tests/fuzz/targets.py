"""The registry of targets, and what they share.

A target is a function of a random generator. It returns the outcome of its example, in a word, and
fails if that is neither a typed error nor a sound result.
"""

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from typing import NamedTuple

from ackq.errors import AckqError
from ackq.v1 import admin_pb2, consuming_pb2, links_pb2, publishing_pb2, sessions_pb2

# The methods of the protocol, by the path of their calls.
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for module in (publishing_pb2, consuming_pb2, sessions_pb2, admin_pb2, links_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
_TARGETS = {}


class Target(NamedTuple):
    """A target, its examples in the short form, and the context that is around all examples."""

    run: Callable
    examples: int
    around: Callable


def target(examples, around=nullcontext):
    """Registers the decorated function; half a second is about the time of its `examples`."""

    def register(run):
        _TARGETS[run.__name__] = Target(run, examples, around)
        return run

    return register


def targets():
    """All targets, by name."""
    for name in ("answers", "blocks", "calls", "journals", "links", "texts"):
        import_module(f"tests.fuzz.{name}")
    return _TARGETS


def outcome_of(call):
    """The outcome of a call in a word, and what it returned; None for an error."""
    try:
        return "taken", call()
    except AckqError as error:
        return type(error).__name__, None


@cache
def folder():
    """A folder of this process for the files of examples, deleted at its end."""
    return tempfile.TemporaryDirectory()
