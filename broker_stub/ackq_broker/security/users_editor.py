"""Changes to a users file (A1), for an operator; the rest of the file is kept, also comments."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import tomlkit
from tomlkit.exceptions import ParseError

from ackq.errors import InvalidArgumentError, NotFoundError
from ackq_broker.security.users import PERMISSIONS, User, check_name, load


def add(path: Path, user: User) -> None:
    """Adds a user to a file, which is created if it does not exist.

    Raises:
        InvalidArgumentError: A user of that name exists, or the file cannot be read.
    """
    check_name(user.name)
    document = _read(path)
    users = document.setdefault("users", tomlkit.table(is_super_table=True))
    if user.name in users:
        raise InvalidArgumentError(
            f"There is a user '{user.name}' already; remove it first.", user=user.name
        )
    users[user.name] = tomlkit.table()
    users[user.name].update(_fields(user))
    _write(path, document)


def remove(path: Path, name: str) -> None:
    """Removes a user from a file.

    Raises:
        NotFoundError: No user of that name.
        InvalidArgumentError: The file cannot be read.
    """
    document = _read(path)
    _table(document, path, name)
    del document["users"][name]
    _write(path, document)


def change(path: Path, name: str, changes: Callable[[User], Mapping[str, Any]]) -> User:
    """Changes a user in a file; the lines of unchanged fields and of other users are kept.

    Args:
        path: The file.
        name: The user's name.
        changes: Returns the new values of changed fields, from the previous user.

    Returns:
        The changed user.

    Raises:
        NotFoundError: No user of that name.
        InvalidArgumentError: The file cannot be read.
    """
    document = _read(path)
    table, before = _table(document, path, name), load(path).by_name[name]
    after = replace(before, **changes(before))
    old = _fields(before)
    table.update({key: value for key, value in _fields(after).items() if old.get(key) != value})
    _write(path, document)
    return after


def _fields(user: User) -> dict[str, Any]:
    """The fields of a user for its TOML table."""
    found: dict[str, Any] = {"tokens": list(user.tokens), "role": user.role}
    found.update((each, getattr(user, each).text) for each in PERMISSIONS)
    limits = {name: most for name, most in msgspec.structs.asdict(user.limits).items() if most}
    if limits:
        found["limits"] = tomlkit.inline_table()
        found["limits"].update(limits)
    return found


def _table(document: Any, path: Path, name: str) -> Any:
    """The TOML table of a user; raises NotFoundError."""
    if name not in document.get("users", {}):
        raise NotFoundError(f"There is no user '{name}' in {path}.", user=name)
    return document["users"][name]


def _read(path: Path) -> Any:
    if not path.exists():
        return tomlkit.document()
    load(path)  # refuses a file that the broker would refuse
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8"))
    except ParseError as error:
        raise InvalidArgumentError(f"The users file {path} is not valid TOML: {error}.") from error


def _write(path: Path, document: Any) -> None:
    """Writes the file whole or not at all; only its owner may read a new file.

    An existing file keeps its owner and mode: the broker, which may run as another user, has to
    read it again. A symbolic link is followed.
    """
    path = path.resolve()
    unfinished = path.with_name(path.name + ".new")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    unfinished.write_text(tomlkit.dumps(document), encoding="utf-8")
    if path.exists():
        status = path.stat()
        os.chown(unfinished, status.st_uid, status.st_gid)
        unfinished.chmod(status.st_mode & 0o777)
    unfinished.replace(path)
