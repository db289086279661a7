"""Copies fields of equal names between messages of the protocol and classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

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


def decoded(kind: Callable[..., T], message: Message) -> T:
    """An object of a class of `ackq.info`: fields of the same names, enums by their short names.

    Args:
        kind: The class.
        message: Its message of the protocol; fields that the class does not have are left out.
    """
    names, values_of, others = _fields(kind, message.DESCRIPTOR)
    values = dict(zip(names, values_of(message), strict=True))
    for name, decode, optional in others:
        absent = optional and not message.HasField(name)
        values[name] = None if absent else decode(values[name])
    return kind(**values)


def copied(kind: Callable[..., T], source: object, **others: Any) -> T:
    """A message of the protocol made of a view, or a command made of a request.

    Args:
        kind: What is made: a message, a named tuple, a dataclass, a struct.
        source: An object of such a class; its fields are taken that `kind` has, too.
        others: The other fields of `kind`, and those that are converted.
    """
    given: Callable[..., object] = type(source)
    names = _names(kind) & _names(given) - others.keys()
    return kind(**{name: getattr(source, name) for name in names}, **others)


@cache
def answer_class(method: str) -> type[Message]:
    """The message that a call is answered with.

    Args:
        method: Such as `AdminService/Backup`; the module of its messages has been imported.
    """
    name = f"ackq.v1.{method.replace('/', '.')}"
    found: MethodDescriptor = descriptor_pool.Default().FindMethodByName(name)
    return message_factory.GetMessageClass(found.output_type)


def short_names(enum: EnumDescriptor) -> dict[int, str]:
    """Values of an enum without its own name before theirs, such as `reject-publish`."""
    own = "".join(f"_{c}" if c.isupper() else c.upper() for c in enum.name).lstrip("_")
    return {
        value.number: value.name.removeprefix(f"{own}_").lower().replace("_", "-")
        for value in enum.values
    }


@cache
def _names(kind: Any) -> frozenset[str]:
    """The names of the fields of a message, a named tuple, a dataclass, a struct."""
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
    """The fields of a class, what reads them all, and what decodes those that need it."""
    hints = get_type_hints(kind)
    names = tuple(hints)
    others = (
        (name, _decoder(message.fields_by_name[name], hints[name]), _may_be_none(hints[name]))
        for name in names
    )
    # Of 10,000 queues all fields at once take a third of the time of each by itself.
    read = attrgetter(*names)
    return (
        names,
        read if len(names) > 1 else lambda message: (read(message),),
        tuple((name, decode, optional) for name, decode, optional in others if decode is not None),
    )


def _may_be_none(hint: Any) -> bool:
    return type(None) in get_args(hint)


def _decoder(field: FieldDescriptor, hint: Any) -> Callable[[Any], Any] | None:
    """What decodes the value of a field; None: it is as it shall be."""
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
    # The class says it: a descriptor says it differently in protobuf 5 and in 7.
    if get_origin(hint) is not tuple:
        return one
    return tuple if one is None else lambda values: tuple(map(one, values))


def _same(value: T) -> T:
    return value
