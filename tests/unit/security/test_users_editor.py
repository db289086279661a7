"""Changes to a users file."""

import fcntl
import os
import stat
from operator import attrgetter

import pytest

from ackq.errors import InvalidArgumentError, NotFoundError
from ackq_broker.security import users, users_editor
from ackq_broker.security.name_pattern import NamePattern
from tests.libraries import replace


def user(name="app", **fields):
    return users.User(name, (users.hash_of(name),), **fields)


def test_what_is_added_is_loaded(tmp_path):
    """A1: an added user is loaded with all fields, whatever characters its patterns have."""
    path = tmp_path / "users.toml"
    read = NamePattern(r"""orders\..*|"'\\|本""")
    added = user(role="observer", read=read, limits=users.UserLimits(queues=2, staged_bytes=10))
    users_editor.add(path, added)
    users_editor.add(path, user("other"))
    assert users.load(path).by_name == {"app": added, "other": user("other")}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_change_leaves_every_other_line(tmp_path):
    """A1: a change of a user keeps comments, other users and its unchanged fields."""
    path = tmp_path / "users.toml"
    token = users.hash_of("old")
    text = f"""# of the shop
[users.app]  # since 2013
read = 'orders'  # theirs
tokens = ["{token}"]

[users.other]
read = 'orders'
"""
    path.write_text(text)
    changes = {"read": NamePattern("bills"), "role": "observer"}
    changed = users_editor.change(path, "app", lambda _: changes)
    assert changed == users.load(path).by_name["app"]
    assert changed == users.User("app", (token,), "observer", read=NamePattern("bills"))
    new = text.replace("'orders'  # theirs", '"bills"  # theirs')
    new = new.replace(f'["{token}"]\n', f'["{token}"]\nrole = "observer"\n')
    assert path.read_text() == new


def test_a_change_is_on_disk(tmp_path, monkeypatch):
    """A1: a change is on disk when the command ends: the content first, then the new name."""
    path, synced = tmp_path / "users.toml", []

    def fsync(descriptor):
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), path.exists()))

    replace(monkeypatch, users_editor, os, fsync=fsync)
    users_editor.add(path, user())
    assert synced == [(False, False), (True, True)]


def test_who_may_read_the_file_stays(tmp_path):
    """A1: owner, mode and symbolic link of the users file stay, so that the broker can read it."""
    path, link = tmp_path / "users.toml", tmp_path / "link"
    seen = attrgetter("st_uid", "st_gid", "st_mode")
    users_editor.add(path, user())
    path.chmod(0o640)
    if os.getuid() == 0:
        os.chown(path, 65_534, 65_534)
    before = seen(path.stat())
    link.symlink_to(path)
    users_editor.add(link, user("other"))
    users_editor.remove(link, "app")
    assert seen(path.stat()) == before
    assert link.is_symlink()
    assert set(users.load(path).by_name) == {"other"}


@pytest.mark.parametrize("change", ["add", "change"])
def test_a_change_is_alone(tmp_path, change):
    """A1: while a user is added or changed, no other change of the file begins: none is lost."""
    path = tmp_path / "users.toml"
    users_editor.add(path, user())

    def refused(*_):
        folder = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)
        return {"role": "observer"}

    if change == "add":
        users_editor.add(path, user("other"), refused)
    else:
        users_editor.change(path, "app", refused)
    users_editor.remove(path, "app")
    assert [each.name for each in tmp_path.iterdir()] == ["users.toml"]


def test_what_cannot_be_changed(tmp_path):
    """A1: adding an existing user, changing an unknown one or an invalid file is refused."""
    path = tmp_path / "users.toml"
    users_editor.add(path, user())
    before = path.read_text()
    with pytest.raises(InvalidArgumentError, match="There is a user 'app' already"):
        users_editor.add(path, user())
    with pytest.raises(InvalidArgumentError, match="A user's name has"):
        users_editor.add(path, user("a b"))
    with pytest.raises(NotFoundError, match="There is no user 'other'"):
        users_editor.remove(path, "other")
    with pytest.raises(NotFoundError, match="There is no user 'other'"):
        users_editor.change(path, "other", lambda _: {})
    assert path.read_text() == before
    told = []
    dotted = "users.a.role = 'observer'\nusers.b.read = 'x'\n"
    for other in (dotted, "users = {a = {role = 'observer'}}\n"):
        path.write_text(other)
        with pytest.raises(InvalidArgumentError, match=r"Give each user a table \[users.NAME\]"):
            users_editor.add(path, user("new.name"), lambda: told.append(1))
        assert (path.read_text(), told) == (other, [])
    path.write_text("[users.app]\nrole = 'king'")
    with pytest.raises(InvalidArgumentError, match="is wrong about user 'app'"):
        users_editor.add(path, user("other"))
