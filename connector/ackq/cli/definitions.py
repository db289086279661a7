"""`ackq definitions`: queues, exchanges and bindings of a broker as one JSON file (O7).

    {"format": 1,
     "queues": [{"queue": "orders", "properties": {"durable": true, ...}}],
     "exchanges": [{"exchange": "events", "type": "topic", "durable": true}],
     "bindings": [{"exchange": "events", "queue": "orders", "binding_key": "order.*"}]}

Invariant: an import changes nothing that exists. It compares everything before it declares
anything.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from ackq import client
from ackq.cli.context import Group, Target, connected
from ackq.cli.json_lines import json_flaw
from ackq.cli.output import as_dict
from ackq.errors import (
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PropertiesDifferError,
)

if TYPE_CHECKING:
    from ackq.client import Admin

_FORMAT: Final = 1
# The names that identify a definition of each kind; kinds in the order in which they are declared.
_KEYS: Final = {
    "queues": ("queue",),
    "exchanges": ("exchange",),
    "bindings": ("exchange", "queue", "binding_key"),
}
# What else an entry of a file may have, with an example of each.
_OPTIONAL: Final[dict[str, dict[str, object]]] = {
    "queues": {"properties": {}},
    "exchanges": {"type": "topic", "durable": True},
    "bindings": {},
}
_SHOWN: Final = 20

Key = tuple[str, ...]
Definition = dict[str, Any]


@click.group(cls=Group)
def definitions() -> None:
    """Export and import the definitions of queues, exchanges and bindings, without messages."""


@definitions.command("export")
@click.argument("file", type=click.File("w", encoding="utf-8"), default="-")
@connected
def export(target: Target, *, file: TextIO) -> None:
    """Write all queues, exchanges and bindings to FILE as JSON; default: standard output."""
    with target.admin() as admin:
        found = _declared(admin)
    document = {"format": _FORMAT, **{kind: list(found[kind].values()) for kind in _KEYS}}
    json.dump(document, file, ensure_ascii=False, indent=1)
    file.write("\n")


@definitions.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option(
    "--dry-run",
    is_flag=True,
    help="Change nothing; print what would be declared, and what differs.",
)
@connected
def import_(target: Target, *, file: TextIO, dry_run: bool) -> None:
    """Declare the queues, exchanges and bindings of FILE that the broker does not have.

    A second import changes nothing. If a queue or exchange exists with other properties, the error
    names every difference, and nothing is declared.
    """
    wanted = _read(file)
    with target.admin() as admin:
        there = _declared(admin)
        if differences := _differences(admin, wanted):
            raise PropertiesDifferError(
                f"Nothing was made. {_listed(differences)}. Change the file,"
                " or delete the queues and exchanges that differ."
            )
        missing = {
            kind: [each for key, each in wanted[kind].items() if key not in there[kind]]
            for kind in _KEYS
        }
        if not dry_run:
            _make(admin, missing)
    made = {kind: len(each) for kind, each in missing.items()}
    counts = " ".join(f"{kind}={count}" for kind, count in made.items())
    text = f"{'would make' if dry_run else 'made'}: {counts}"
    target.answer({"made": made, "dry_run": dry_run}, text)


def _declared(admin: Admin) -> dict[str, dict[Key, Definition]]:
    """The definitions that a broker has, by kind and names."""
    queues = {(each.queue,): as_dict(each) for each in admin.queues()}
    found: dict[str, dict[Key, Definition]] = {
        "queues": {
            key: {"queue": each["queue"], "properties": each["properties"]}
            for key, each in queues.items()
        },
        "exchanges": {},
        "bindings": {},
    }
    for each in map(as_dict, admin.exchanges()):
        exchange, bound = each["exchange"], each.pop("bindings")
        found["exchanges"][exchange,] = each
        for one in bound:
            binding = {"exchange": exchange, **one}
            found["bindings"][_key("bindings", binding)] = binding
    return found


def _read(file: TextIO) -> dict[str, dict[Key, Definition]]:
    """Reads the definitions of a file; refuses missing names, unknown kinds, contradictions."""
    try:
        document = json.load(file, object_pairs_hook=partial(_object, file.name))
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"{file.name} is {json_flaw(error)}. `ackq definitions export` writes such a file."
        ) from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise InvalidArgumentError(
            f"{file.name} is not a file of `ackq definitions export` that this version reads: its"
            f" format must be {_FORMAT}."
        )
    unknown = sorted(set(document) - {"format", *_KEYS})
    if unknown:
        raise InvalidArgumentError(
            f"{file.name} has the unknown key {unknown[0]!r}. Known are format, {', '.join(_KEYS)}."
        )
    found: dict[str, dict[Key, Definition]] = {}
    twice: list[str] = []
    for kind in _KEYS:
        entries = document.get(kind, [])
        if not isinstance(entries, list):
            raise InvalidArgumentError(f"{file.name}: {kind} must be a list of objects.")
        found[kind] = {}
        for number, each in enumerate(entries, 1):
            try:
                _check(kind, each)
            except InvalidArgumentError as error:
                place = f"{file.name}, entry {number} of {kind}"
                raise InvalidArgumentError(f"{place}: {error.message}") from error
            key = _key(kind, each)
            twice += _contradictions(kind, found[kind].get(key), each)
            found[kind][key] = each
    if twice:
        raise InvalidArgumentError(
            f"Nothing was made. {file.name} contradicts itself: {_listed(twice)}. Name each queue "
            "and exchange once."
        )
    return found


def _object(file: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of a file, which names nothing twice; raises InvalidArgumentError."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = Counter(name for name, _ in pairs)
        raise InvalidArgumentError(
            f"{file} has '{names.most_common(1)[0][0]}' twice in one object; keep one of them."
        )
    return found


def _contradictions(kind: str, before: Definition | None, again: Definition) -> Iterator[str]:
    """Describes the properties in which two entries of one name differ.

    A property that an entry does not have is at its default.
    """
    one, other, default = _flat(before or again), _flat(again), _defaults(kind)
    for name in sorted(one.keys() | other.keys()):
        if one.get(name, default.get(name)) != other.get(name, default.get(name)):
            values = (json.dumps(each[name]) if name in each else "absent" for each in (one, other))
            what = f"{_KEYS[kind][0]} '{_key(kind, again)[0]}'"
            yield f"{what} is given twice: {name} is {' and '.join(values)}"


def _defaults(kind: str) -> Mapping[str, object]:
    """The properties that a declaration gives to an entry that does not have them."""
    if kind != "queues":
        return _OPTIONAL[kind]
    parameters = inspect.signature(client.Admin.declare_queue).parameters.values()
    return {each.name: each.default for each in parameters}


def _listed(differences: list[str]) -> str:
    """Differences in one text, but no endless one."""
    more = len(differences) - _SHOWN
    return "; ".join(differences[:_SHOWN] + ([f"and {more} more"] if more > 0 else []))


def _check(kind: str, entry: Any) -> None:
    """Checks an entry of a file without the broker; raises InvalidArgumentError."""
    from ackq.client import arguments  # noqa: PLC0415 - imports gRPC

    fields = {**dict.fromkeys(_KEYS[kind], "..."), **_OPTIONAL[kind]}
    remedy = f"write {json.dumps(fields)}."
    if not isinstance(entry, dict):
        raise InvalidArgumentError(f"it is {json.dumps(entry)}; {remedy}")
    for name, value in {**dict.fromkeys(_KEYS[kind]), **entry}.items():
        if name not in fields:
            raise InvalidArgumentError(f"'{name}' is unknown; {remedy}")
        if type(value) is not type(fields[name]):
            found = json.dumps(value) if name in entry else "missing"
            raise InvalidArgumentError(f"'{name}' is {found}; {remedy}")
    arguments.queue_properties(**entry.get("properties", {}))
    arguments.choice(arguments.EXCHANGE_KINDS, "type", entry.get("type", "topic"))


def _key(kind: str, definition: Mapping[str, Any]) -> Key:
    """The names of a definition."""
    return tuple(definition[name] for name in _KEYS[kind])


def _flat(definition: Definition) -> Definition:
    properties = definition.get("properties", {})
    return {**{k: v for k, v in definition.items() if k != "properties"}, **properties}


def _differences(admin: Admin, wanted: Mapping[str, Mapping[Key, Definition]]) -> list[str]:
    """The differences that the broker finds, also from what this user may not see (O7)."""
    found = []
    for step in _steps({kind: list(each.values()) for kind, each in wanted.items()}):
        try:
            step(admin, check=True)
        except NotFoundError:
            pass  # a binding of a queue or exchange that the file declares before it
        except PermissionDeniedError as error:
            raise PermissionDeniedError(f"Nothing was made. {error.message}") from error
        except PropertiesDifferError as error:
            found.append(error.message.partition(". Declare it")[0])
    return found


def _make(admin: Admin, missing: Mapping[str, list[Definition]]) -> None:
    """Declares the missing definitions."""
    for step in _steps(missing):
        step(admin, check=False)


def _steps(wanted: Mapping[str, list[Definition]]) -> Iterator[Callable[..., None]]:
    """The calls that declare the definitions, dead-letter queues before queues that name them."""
    targets = [_flat(each).get("dead_letter_queue") for each in wanted["queues"]]
    for each in sorted(wanted["queues"], key=lambda one: one["queue"] not in targets):
        yield partial(_make_queue, each)
    for each in wanted["exchanges"]:
        yield partial(_make_exchange, each)
    for each in wanted["bindings"]:
        yield partial(_make_binding, each)


def _make_queue(each: Definition, admin: Admin, *, check: bool) -> None:
    admin.declare_queue(each["queue"], **each.get("properties", {}), check=check)


def _make_exchange(each: Definition, admin: Admin, *, check: bool) -> None:
    kind, durable = each.get("type", "topic"), each.get("durable", True)
    admin.declare_exchange(each["exchange"], kind, durable=durable, check=check)


def _make_binding(each: Definition, admin: Admin, *, check: bool) -> None:
    admin.bind(each["exchange"], each["queue"], each["binding_key"], check=check)
