"""Copies fields of equal names between protocol messages and Python classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf import descriptor_pool, message_factory

if TYPE_CHECKING:
    from google.protobuf.descriptor import (
        Descriptor,
        EnumDescriptor,
        FieldDescriptor,
        MethodDescriptor,
    )
    from google.protobuf.message import Message

T = TypeVar("T")
# Fields that `copied` leaves out.
_SECRET: Final = frozenset({"token"})


def decoded(kind: Callable[..., T], message: Message) -> T:
    """Converts a protocol message to a class of `ackq.info` with fields of the same names.

    Enums become their short names.

    Args:
        kind: The class.
        message: The protocol message; fields that the class does not have are left out.
    """
    names, values_of, others = _fields(kind, message.DESCRIPTOR)
    values = dict(zip(names, values_of(message), strict=True))
    for name, decode, optional in others:
        absent = optional and not message.HasField(name)
        values[name] = None if absent else decode(values[name])
    return kind(**values)


def copied(kind: Callable[..., T], source: object, **others: Any) -> T:
    """Makes a protocol message from a view, or a command from a request, by field names.

    A token is never copied: who may read a view must not learn it (S3).

    Args:
        kind: The class to make: a message, a named tuple, a dataclass, a struct.
        source: An object of such a class; the fields that `kind` has as well are copied.
        others: The other fields of `kind`, and fields whose value is converted.
    """
    given: Callable[..., object] = type(source)
    names = (_names(kind) & _names(given)) - others.keys() - _SECRET
    return kind(**{name: getattr(source, name) for name in names}, **others)


@cache
def answer_class(method: str) -> type[Message]:
    """The protocol message class of a call's answer.

    Args:
        method: Such as `AdminService/Backup`; the module of its messages must be imported.
    """
    name = f"ackq.v1.{method.replace('/', '.')}"
    found: MethodDescriptor = descriptor_pool.Default().FindMethodByName(name)
    return message_factory.GetMessageClass(found.output_type)


def short_names(enum: EnumDescriptor) -> dict[int, str]:
    """Short names of an enum's values, without the enum's name, such as `reject-publish`."""
    own = "".join(f"_{c}" if c.isupper() else c.upper() for c in enum.name).lstrip("_")
    return {
        value.number: value.name.removeprefix(f"{own}_").lower().replace("_", "-")
        for value in enum.values
    }


@cache
def _names(kind: Any) -> frozenset[str]:
    """The field names of a message, a named tuple, a dataclass or a struct."""
    message = getattr(kind, "DESCRIPTOR", None)
    return frozenset(kind.__annotations__ if message is None else message.fields_by_name)


@cache
def _fields(
    kind: Callable[..., object], message: Descriptor
) -> tuple[
    tuple[str, ...],
    Callable[[Message], tuple[Any, ...]],
    tuple[tuple[str, Callable[[Any], Any], bool], ...],
]:
    """The field names of a class, a function that reads all, and decoders of some fields."""
    hints = get_type_hints(kind)
    names = tuple(hints)
    others = (
        (name, _decoder(message.fields_by_name[name], hints[name]), _may_be_none(hints[name]))
        for name in names
    )
    # For 10,000 queues, reading all fields at once takes a third of the time of one by one.
    read = attrgetter(*names)
    return (
        names,
        read if len(names) > 1 else lambda message: (read(message),),
        tuple((name, decode, optional) for name, decode, optional in others if decode is not None),
    )


def _may_be_none(hint: Any) -> bool:
    return type(None) in get_args(hint)


def _decoder(field: FieldDescriptor, hint: Any) -> Callable[[Any], Any] | None:
    """The function that decodes a field's value; None if the value needs no decoding."""
    inner = next((each for each in (hint, *get_args(hint)) if is_dataclass(each)), None)
    one: Callable[[Any], Any] | None = None
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict
    if isinstance(inner, type):
        one = partial(decoded, inner)
    elif field.enum_type is not None:
        names = short_names(field.enum_type)
        one = lambda value: names.get(value, str(value))  # noqa: E731 - a newer broker's number
    elif _may_be_none(hint):
        one = _same
    # Repeated fields are known by the class's type hint: descriptors of protobuf 5 and 7 differ.
    if get_origin(hint) is not tuple:
        return one
    return tuple if one is None else lambda values: tuple(map(one, values))


def _same(value: T) -> T:
    return value
