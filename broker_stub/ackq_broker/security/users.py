"""Users (A1) with their tokens, permissions and limits, as read from a TOML file.

A token has 256 random bits. So its plain SHA-256 is kept: it cannot be guessed, so a slow hash
would protect nothing, and each call is checked in microseconds.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import msgspec

from ackq.errors import InvalidArgumentError
from ackq.secret_files import warn_if_public
from ackq_broker.security.name_pattern import NamePattern

ROLES: Final = ("none", "observer", "operator")
PERMISSIONS: Final = ("configure", "write", "read")
# A prefix that a scanner for secrets can look for.
_PREFIX: Final = "ackq_"
_TOKEN_BYTES: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_NOTHING: Final = NamePattern()


class UserLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a user at a time (A5); 0: only the broker's own limits apply."""

    connections: int = 0
    streams: int = 0
    queues: int = 0
    staged_bytes: int = 0


@dataclass(frozen=True, slots=True)
class User:
    """A user of the broker; equal users are the same in everything that a call depends on.

    Attributes:
        name: Its name.
        tokens: SHA-256 of each of its tokens, in hex; two while a token is being replaced.
        role: One of `ROLES`: an observer sees everything that is listed, an operator also acts on
            what others hold.
        configure: The queues and exchanges that it may declare and delete.
        write: The queues and exchanges that it may publish to.
        read: The queues that it may consume from, and the exchanges that it may bind to queues.
        limits: Its limits.
    """

    name: str
    tokens: tuple[str, ...]
    role: str = "none"
    configure: NamePattern = _NOTHING
    write: NamePattern = _NOTHING
    read: NamePattern = _NOTHING
    limits: UserLimits = field(default_factory=UserLimits)


class Users:
    """The users of a file, indexed by name and by token."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self.by_name = dict(users)
        self._by_hash = {each: user for user in users.values() for each in user.tokens}

    def of_token(self, token: str) -> User | None:
        """The user of a token; None if it belongs to none.

        The table is searched by the hash, which a caller cannot choose: the time this takes reveals
        nothing about a token. The entry found is compared in constant time.
        """
        found = hash_of(token)
        user = self._by_hash.get(found)
        known = user is not None and any(hmac.compare_digest(found, each) for each in user.tokens)
        return user if known else None


def hash_of(token: str) -> str:
    """The SHA-256 of a token, in hex."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def new_token() -> str:
    """Makes a token of 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def load(path: Path) -> Users:
    """Reads the users of a file.

    Raises:
        InvalidArgumentError: It cannot be read; names the file, the user and the error.
    """
    try:
        warn_if_public(path)
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgumentError(
            f"The users file {path} cannot be read: {error.strerror}.", users=path
        ) from error
    except (ValueError, RecursionError) as error:  # of TOML, UTF-8, or a number's length
        raise InvalidArgumentError(
            f"The users file {path} is not valid TOML: {error}.", users=path
        ) from error
    if set(content) - {"users"} or not isinstance(content.get("users", {}), dict):
        raise InvalidArgumentError(
            f"The users file {path} may hold only tables [users.NAME]; it has: "
            f"{', '.join(content)}.",
            users=path,
        )
    found = {name: _user(path, name, table) for name, table in content.get("users", {}).items()}
    hashes = [each for user in found.values() for each in user.tokens]
    if len(set(hashes)) < len(hashes):
        raise InvalidArgumentError(f"The users file {path} has the same token twice.", users=path)
    return Users(found)


def check_name(name: str) -> None:
    """Checks the name of a user; raises InvalidArgumentError."""
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"A user's name has letters, digits and . _ @ -, not '{name}'.", user=name
        )


def _user(path: Path, name: str, table: Any) -> User:
    """The user of one table of a file; raises InvalidArgumentError."""
    try:
        return _parsed(name, table)
    except (InvalidArgumentError, msgspec.ValidationError) as error:
        raise InvalidArgumentError(
            f"The users file {path} is wrong about user '{name}': {error}", users=path, user=name
        ) from error


def _parsed(name: str, table: Any) -> User:
    check_name(name)
    if not isinstance(table, dict):
        raise InvalidArgumentError(f"it is not a table [users.{name}].")
    unknown = set(table) - {each.name for each in fields(User)} | {"name"} & set(table)
    if unknown:
        raise InvalidArgumentError(f"a user has no key '{min(unknown)}'.")
    tokens, role = table.get("tokens", []), table.get("role", "none")
    if not isinstance(tokens, list) or not all(
        isinstance(each, str) and _HASH.fullmatch(each) for each in tokens
    ):
        raise InvalidArgumentError("'tokens' are SHA-256 in hex, as `ackq-broker user add` makes.")
    if role not in ROLES:
        raise InvalidArgumentError(f"the role is one of {', '.join(ROLES)}.")
    texts = {each: table.get(each, "") for each in PERMISSIONS}
    if not all(isinstance(text, str) for text in texts.values()):
        raise InvalidArgumentError(f"{', '.join(PERMISSIONS)} are regular expressions.")
    limits = msgspec.convert(table.get("limits", {}), UserLimits)
    if min(msgspec.structs.astuple(limits)) < 0:
        raise InvalidArgumentError("a limit is below 0.")
    return User(
        name,
        tuple(tokens),
        role,
        **{each: NamePattern(text) for each, text in texts.items()},
        limits=limits,
    )
