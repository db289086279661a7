"""Arguments of administration as requests hold them; an error names the argument and its range."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from ackq.errors import InvalidArgumentError
from ackq.v1 import admin_pb2 as pb

T = TypeVar("T")

OVERFLOWS: Final = {
    "reject-publish": pb.OVERFLOW_REJECT_PUBLISH,
    "drop-head": pb.OVERFLOW_DROP_HEAD,
}
EXCHANGE_KINDS: Final = {
    "direct": pb.EXCHANGE_TYPE_DIRECT,
    "fanout": pb.EXCHANGE_TYPE_FANOUT,
    "topic": pb.EXCHANGE_TYPE_TOPIC,
}


def queue_properties(**given: Any) -> pb.QueueProperties:
    """The properties of a queue; raises InvalidArgumentError, which names the property."""
    properties = pb.QueueProperties()
    for name, value in given.items():
        field = properties.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise InvalidArgumentError(f"'{name}' is no property of a queue.", argument=name)
        to_wire = choice(OVERFLOWS, name, value) if name == "overflow" else value
        try:
            setattr(properties, name, to_wire)
        except (TypeError, ValueError, OverflowError) as error:
            most = 2 ** (32 if field.type == field.TYPE_UINT32 else 64) - 1
            takes = {bool: "true or false", str: "text"}.get(type(getattr(properties, name)))
            raise InvalidArgumentError(
                f"'{name}' is {value!r}; it must be {takes or f'a whole number from 0 to {most}'}.",
                argument=name,
            ) from error
    return properties


def choice(choices: dict[str, T], name: str, value: str) -> T:
    """The choice of a name; raises InvalidArgumentError."""
    if value not in list(choices):
        raise InvalidArgumentError(
            f"'{name}' is '{value}'; it must be one of {', '.join(choices)}.", argument=name
        )
    return choices[value]


def uint64(name: str, value: int) -> int:
    """A whole number that a request can hold; raises InvalidArgumentError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
        raise InvalidArgumentError(
            f"'{name}' is {value!r}; it must be an int from 0 to {2**64 - 1}.", argument=name
        )
    return value
