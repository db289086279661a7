"""The classes that `Admin` returns, and the protocol messages that they are made from."""

import dataclasses
import inspect
import runpy
import typing
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ackq.client import admin, admin_calls
from ackq.info import QueueInfo
from ackq.v1 import admin_pb2, links_pb2, publishing_pb2, sessions_pb2
from ackq.wire.answers import copied, decoded
from ackq_broker.core import commands

ANSWERS = (admin_pb2, sessions_pb2, links_pb2, publishing_pb2)
# Has the classes' messages, where they have another name, and the fields that a class leaves out.
GENERATOR = runpy.run_path(Path(__file__).parents[3] / "proto/info_classes.py")


def parts(hint):
    """The dataclasses in a type: itself, and its arguments."""
    return [each for each in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(each)]


def returned():
    """The return type of each method of `Admin`, by name."""
    names = {**vars(admin), **vars(admin_calls), "pa": pa}
    return {
        name: typing.get_type_hints(method, names)["return"]
        for name, method in inspect.getmembers(admin.Admin, inspect.isfunction)
        if not name.startswith("_")
    }


def told():
    """All classes that methods of `Admin` return, and the classes of their fields."""
    found, waiting = set(), [kind for hint in returned().values() for kind in parts(hint)]
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            for hint in typing.get_type_hints(kind).values():
                waiting += parts(hint)
    return sorted(found, key=lambda kind: kind.__name__)


def message_of(kind):
    name = GENERATOR["CLASSES"][kind.__name__] or kind.__name__
    return next(getattr(each, name) for each in ANSWERS if hasattr(each, name))


def filled(descriptor):
    """A protocol message with a non-default value in each field."""
    message = descriptor._concrete_class()
    for field in descriptor.fields:
        held, kind = getattr(message, field.name), field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            held["k"] = 7
            continue
        scalars = {field.CPPTYPE_BOOL: True, field.CPPTYPE_STRING: "x", field.CPPTYPE_ENUM: 2}
        value = filled(kind) if kind is not None else scalars.get(field.cpp_type, 7)
        value = b"x" if field.type == field.TYPE_BYTES else value
        if hasattr(held, "append"):
            held.append(value)
        elif kind is not None:
            held.CopyFrom(value)
        else:
            setattr(message, field.name, value)
    return message


def test_no_method_of_admin_returns_a_message_of_the_protocol():
    """Each method returns classes of `ackq.info`, plain values, or rows."""
    assert len(told()) > 20
    assert {kind.__module__ for kind in told()} == {"ackq.v1.info"}
    others = {hint for hint in returned().values() if not parts(hint)}
    assert others == {bool, int, str, Iterator[pa.RecordBatch]}


@pytest.mark.parametrize("kind", told(), ids=lambda kind: kind.__name__)
def test_a_class_has_each_field_of_its_message(kind):
    """Fields are in the protocol's order, with their values and declared types."""
    message = filled(message_of(kind).DESCRIPTOR)
    told = [each.name for each in message.DESCRIPTOR.fields]
    left_out = {name for owner, name in GENERATOR["NOT_TOLD"] if owner == kind.__name__}
    assert [each.name for each in dataclasses.fields(kind)] == [
        name for name in told if name not in left_out
    ]
    info = decoded(kind, message)
    for name, hint in typing.get_type_hints(kind).items():
        value = getattr(info, name)
        assert value, name
        if typing.get_origin(hint) is typing.Literal:
            assert value in typing.get_args(hint)
        elif typing.get_origin(hint) is tuple:
            assert isinstance(value, tuple)
            assert isinstance(value[0], typing.get_args(hint)[0])
        elif not typing.get_args(hint):
            assert isinstance(value, hint)


def test_a_value_of_a_newer_broker_is_its_number():
    """An enum value of a newer broker is kept as its number."""
    properties = admin_pb2.QueueProperties(overflow=77)
    queue = decoded(QueueInfo, admin_pb2.QueueInfo(properties=properties))
    assert queue.properties.overflow == "77"


def test_a_token_is_never_copied():
    """S3: who may read a view of a session or a link does not learn its holder's token."""
    holder = commands.HolderInfo(b"secret", "host", 7, "app")
    found = copied(sessions_pb2.Holder, holder)
    assert (found.host, found.pid, found.application, found.token) == ("host", 7, "app", b"")


# What the broker says of a caller, and no caller of itself.
BY_THE_BROKER = {"user", "incumbent_live", "new_incarnation", "stream"}


def test_no_request_has_a_field_that_the_broker_fills():
    """A10, S3: `copied` would let a caller say who it is, or that its rival is gone."""
    requests = [
        message
        for file in ANSWERS
        for message in file.DESCRIPTOR.message_types_by_name.values()
        if message.name.endswith(("Request", "Open", "Owner"))
    ]
    found = {
        (message.name, field.name)
        for message in requests
        for field in message.fields
        if field.name in BY_THE_BROKER
    }
    # An operator gives a writer to a user: the command has the same word for that.
    assert found == {("AssignWriterRequest", "user")}
