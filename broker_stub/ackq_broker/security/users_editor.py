"""Changes to a users file (A1), for an operator; the rest of the file is kept, also comments.

Two changes at the same time follow one another: a lock on the folder is held from reading the file
to replacing it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import tomlkit
from tomlkit.exceptions import ParseError

from ackq.errors import InvalidArgumentError, NotFoundError
from ackq_broker.security.users import PERMISSIONS, User, check_name, load


def _nothing() -> None:
    """Tells nobody."""


def add(path: Path, user: User, tell: Callable[[], None] = _nothing) -> None:
    """Adds a user to a file, which is created if it does not exist.

    Args:
        path: The file.
        user: The user.
        tell: Called just before the change takes effect; if it raises, the file stays as it is.

    Raises:
        InvalidArgumentError: A user of that name exists, or the file cannot be read.
    """
    check_name(user.name)
    with _alone(path):
        document = _read(path)
        users = document.setdefault("users", tomlkit.table(is_super_table=True))
        if user.name in users:
            raise InvalidArgumentError(
                f"There is a user '{user.name}' already; remove it first.", user=user.name
            )
        try:
            users[user.name] = tomlkit.table()
        except ValueError as error:  # the users are in an inline table
            raise _other_form(path) from error
        users[user.name].update(_fields(user))
        _write(path, document, tell)


def remove(path: Path, name: str) -> None:
    """Removes a user from a file.

    Raises:
        NotFoundError: No user of that name.
        InvalidArgumentError: The file cannot be read.
    """
    with _alone(path):
        document = _read(path)
        _table(document, path, name)
        del document["users"][name]
        _write(path, document, _nothing)


def change(
    path: Path,
    name: str,
    changes: Callable[[User], Mapping[str, Any]],
    tell: Callable[[], None] = _nothing,
) -> User:
    """Changes a user in a file; the lines of unchanged fields and of other users are kept.

    Args:
        path: The file.
        name: The user's name.
        changes: Returns the new values of changed fields, from the previous user.
        tell: Called just before the change takes effect; if it raises, the file stays as it is.

    Returns:
        The changed user.

    Raises:
        NotFoundError: No user of that name.
        InvalidArgumentError: The file cannot be read.
    """
    with _alone(path):
        document = _read(path)
        table, before = _table(document, path, name), load(path).by_name[name]
        after = replace(before, **changes(before))
        old, new = _fields(before), _fields(after)
        table.update({key: value for key, value in new.items() if old.get(key) != value})
        _write(path, document, tell)
    return after


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Waits for other changes of files in this folder, and lets no other begin in the block."""
    folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)  # and with it the lock


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


def _check(unfinished: Path, path: Path) -> None:
    """Refuses a result that the broker would refuse, as of keys that are not in tables."""
    try:
        load(unfinished)
    except InvalidArgumentError as error:
        raise _other_form(path) from error


def _other_form(path: Path) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The users file {path} cannot be changed in the form that it has; nothing was changed."
        " Give each user a table [users.NAME], and try again.",
        file=path,
    )


def _write(path: Path, document: Any, tell: Callable[[], None]) -> None:
    """Writes the file whole or not at all; only its owner may read a new file.

    An existing file keeps its owner and mode: the broker, which may run as another user, has to
    read it again. A symbolic link is followed.
    """
    path = path.resolve()
    # A name of its own: where locks have no effect, as on some network disks, another process
    # would else write into the same file.
    handle, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".new", dir=path.parent)
    unfinished = Path(name)
    try:
        with open(handle, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
            file.write(tomlkit.dumps(document))
            file.flush()
            os.fsync(file.fileno())
        _check(unfinished, path)
        if path.exists():
            status = path.stat()
            os.chown(unfinished, status.st_uid, status.st_gid)
            unfinished.chmod(status.st_mode & 0o777)
        tell()
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
