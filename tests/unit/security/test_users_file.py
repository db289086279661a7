"""The users file of a running broker."""

import os

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.security.users_file import UsersFile


def test_a_change_is_seen_once(tmp_path):
    """A1: a change of contents, owner or mode is seen once; an unreadable file changes nothing."""
    path = tmp_path / "users.toml"
    path.write_text("[users.a]\n")
    file = UsersFile(path)
    assert not file.changed()
    path.write_text("[users.b]\n[users.c]\n")
    assert (file.changed(), file.changed()) == (True, False)
    assert set(file.read().by_name) == {"b", "c"}
    path.unlink()
    assert (file.changed(), file.changed()) == (True, False)
    with pytest.raises(InvalidArgumentError):
        file.read()
    assert set(file.users.by_name) == {"b", "c"}
    path.write_text("[users.b]\n[users.d]\n")
    os.utime(path, ns=(0, 0))
    assert file.changed()
    path.chmod(0o400)
    assert (file.changed(), file.changed()) == (True, False)
