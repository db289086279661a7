"""Changes to a users file (A1), for an operator; what else stands in it, comments too, is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import tomlkit
from tomlkit.exceptions import ParseError

from ackq.errors import InvalidArgumentError, NotFoundError
from ackq_broker.service.security.users import PERMISSIONS, User, check_name, load


def add(path: Path, user: User) -> None:
    """Adds a user to a file, which is made if it is not there.

    Raises:
        InvalidArgumentError: There is a user of that name, or the file cannot be read.
    """
    check_name(user.name)
    document = _read(path)
    users = document.setdefault("users", tomlkit.table(is_super_table=True))
    if user.name in users:
        raise InvalidArgumentError(
            f"There is a user '{user.name}' already; remove it first.", user=user.name
        )
    table = tomlkit.table()
    table["tokens"] = list(user.tokens)
    table["role"] = user.role
    for permission in PERMISSIONS:
        table[permission] = getattr(user, permission).text
    taken = {name: most for name, most in msgspec.structs.asdict(user.limits).items() if most}
    if taken:
        table["limits"] = tomlkit.inline_table()
        table["limits"].update(taken)
    users[user.name] = table
    _write(path, document)


def remove(path: Path, name: str) -> None:
    """Removes a user from a file.

    Raises:
        NotFoundError: There is no user of that name.
        InvalidArgumentError: The file cannot be read.
    """
    document = _read(path)
    if name not in document.get("users", {}):
        raise NotFoundError(f"There is no user '{name}' in {path}.", user=name)
    del document["users"][name]
    _write(path, document)


def _read(path: Path) -> Any:
    if not path.exists():
        return tomlkit.document()
    load(path)  # refuses what the broker would refuse
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8"))
    except ParseError as error:
        raise InvalidArgumentError(f"The users file {path} is no TOML: {error}.") from error


def _write(path: Path, document: Any) -> None:
    """Writes the file whole or not at all; only its owner may read it.

    One that is there keeps owner and mode: the broker, another user, has to read it again. Of a
    link it is the file that it leads to.
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
