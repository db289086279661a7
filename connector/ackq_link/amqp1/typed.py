"""AMQP 1.0 values as text, and back: a text is itself, everything else is JSON.

Invariant: a value is restored as it was, with its type: JSON keeps neither the width of a number
nor whether it is signed, so `encode` returns the name of the type along with the text.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import proton

TEXT: Final = ""
JSON: Final = "json"
# Scalar types that JSON shows as a number, or as a text of another type.
_SCALARS: Final[dict[str, Any]] = {
    "byte": proton.byte,
    "ubyte": proton.ubyte,
    "short": proton.short,
    "ushort": proton.ushort,
    "int": proton.int32,
    "uint": proton.uint,
    "ulong": proton.ulong,
    "float": proton.float32,
    "char": proton.char,
    "symbol": proton.symbol,
}
_NAMES: Final = {kind: name for name, kind in _SCALARS.items()}
_PLAIN: Final = (str, int, float, bool, type(None))
_MAX_INT: Final = 2**63 - 1


def encode(value: object) -> tuple[str, str]:
    """The text of a value, and the name of its type: `TEXT`, a scalar's, or `JSON`.

    Raises:
        ValueError: The value has no text form: an array, a described value, a decimal.
    """
    if type(value) is str:
        return value, TEXT
    name = _NAMES.get(type(value))
    if name is None:
        return json.dumps(simple(value)), JSON
    if isinstance(value, str):
        return str(value), name
    return json.dumps(_bare(value)), name


def decode(text: str, name: str) -> object:
    """The value that `encode` was given. Raises ValueError for a text that it never returns."""
    if name == TEXT:
        return text
    try:
        kind = _SCALARS.get(name)
        if kind is None:
            return restore(json.loads(text))
        return kind(text if issubclass(kind, str) else json.loads(text))
    except (TypeError, AssertionError, RecursionError) as error:
        raise ValueError(f"no value of type {name}") from error


def is_json(name: str) -> bool:
    """Whether the text of a value of this type is JSON."""
    return name != TEXT and not issubclass(_SCALARS.get(name, int), str)


def simple(value: object) -> object:
    """A value in JSON's types; a type that JSON does not have becomes an object of one key."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, list):
        return [simple(each) for each in value]
    if isinstance(value, dict):
        if all(type(key) is str for key in value) and not _is_marked(value):
            return {key: simple(each) for key, each in value.items()}
        return {"!map": [[simple(key), simple(each)] for key, each in value.items()]}
    return _marked(value)


def restore(value: Any) -> Any:
    """The value that `simple` was given. ValueError or TypeError for a value it never returns."""
    if isinstance(value, list):
        return [restore(each) for each in value]
    if type(value) is int and abs(value) > _MAX_INT:
        raise ValueError("a number of more than 64 bits")
    if not isinstance(value, dict):
        return value
    if not _is_marked(value):
        return {key: restore(each) for key, each in value.items()}
    ((mark, each),) = value.items()
    restored = _RESTORED.get(mark.removeprefix("!"))
    return restored(each) if restored is not None else value


def _marked(value: object) -> dict[str, object]:
    """A value of a type that JSON does not have, as an object of one key that marks the type."""
    if isinstance(value, bytes):
        return {"!bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, proton.timestamp):
        return {"!timestamp": int(value) / 1000}
    if isinstance(value, uuid.UUID):
        return {"!uuid": str(value)}
    name = _NAMES.get(type(value))
    if name is None:
        raise ValueError(f"a value of type {type(value).__name__}")
    return {f"!{name}": _bare(value)}


def _bare(value: Any) -> object:
    """A scalar as the plain Python type: str, float or int."""
    for kind in (str, float, int):
        if isinstance(value, kind):
            return kind(value)
    raise ValueError(f"a value of type {type(value).__name__}")


def _is_marked(value: dict[Any, Any]) -> bool:
    return len(value) == 1 and str(next(iter(value))).startswith("!")


_RESTORED: Final[dict[str, Callable[[Any], Any]]] = {
    **_SCALARS,
    "bytes": base64.b64decode,
    "timestamp": lambda seconds: proton.timestamp(round(seconds * 1000)),
    "uuid": uuid.UUID,
    "map": lambda pairs: {restore(key): restore(each) for key, each in pairs},
    # Types of AMQP 0-9-1.
    "decimal": lambda text: float(Decimal(text)),
    "longstr": base64.b64decode,
    "text": str,
}
