"""Users as loaded from their file."""

import re

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.security import users
from ackq_broker.security.name_pattern import NamePattern

TOKEN = users.new_token()
HASH = users.hash_of(TOKEN)


@pytest.fixture
def load(tmp_path):
    """Returns a function that loads a users file with the given text."""

    def loaded(text):
        path = tmp_path / "users.toml"
        path.write_text(text)
        return users.load(path)

    return loaded


def test_a_user(load):
    """A1, A2: a user is found by token, with the file's values and defaults for missing ones."""
    found = load(f"""
[users.app]
tokens = ["{HASH}"]
read = "orders"
limits = {{ streams = 3 }}
[users."ops@shop"]
role = "operator"
""")
    app = found.of_token(TOKEN)
    assert app == users.User(
        "app", (HASH,), read=NamePattern("orders"), limits=users.UserLimits(streams=3)
    )
    assert (app.role, app.write, app.configure) == ("none", NamePattern(), NamePattern())
    assert found.of_token("") is found.of_token(HASH) is found.of_token(TOKEN + " ") is None
    assert found.by_name["ops@shop"].role == "operator"


def test_a_token_is_long_and_new():
    """A1: a new token has 256 random bits and a prefix that secret scanners can find."""
    assert re.fullmatch(r"ackq_[\w-]{43}", TOKEN)
    assert len({users.new_token() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[users", "is not valid TOML"),
        ("a = 1", "may hold only tables [users.NAME]; it has: a"),
        ("users = 1", "may hold only tables"),
        ("[users]\napp = 1", "user 'app': it is not a table"),
        ('[users."a b"]', "A user's name has letters"),
        ("[users.app]\nrule = 'x'", "user 'app': a user has no key 'rule'"),
        ("[users.app]\nname = 'x'", "user 'app': a user has no key 'name'"),
        ("[users.app]\ntokens = 'x'", "user 'app': 'tokens' are SHA-256 in hex"),
        ("[users.app]\ntokens = ['ackq_x']", "user 'app': 'tokens' are SHA-256 in hex"),
        ("[users.app]\nrole = 'king'", "user 'app': the role is one of none, observer, operator"),
        ("[users.app]\nread = 1", "user 'app': configure, write, read are regular expressions"),
        ("[users.app]\nread = '('", "user 'app': '(' is not a regular expression"),
        ("[users.app]\nlimits = {queue = 1}", "user 'app': Object contains unknown field `queue`"),
        ("[users.app]\nlimits = {queues = -1}", "user 'app': a limit is below 0"),
        (f"[users.a]\ntokens=['{HASH}']\n[users.b]\ntokens=['{HASH}']", "has the same token twice"),
    ],
)
def test_a_file_that_is_wrong(load, text, wrong):
    """A1: the refusal of an invalid users file names the user and what is wrong."""
    with pytest.raises(InvalidArgumentError, match=re.escape(wrong)):
        load(text)


def test_a_file_that_is_not_there(tmp_path):
    """A1: a missing users file is refused, naming its path."""
    with pytest.raises(InvalidArgumentError, match=r"no\.toml cannot be read: No such file"):
        users.load(tmp_path / "no.toml")


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 5000])
def test_a_file_that_the_parser_gives_up_on(tmp_path, text):
    """A1: a file on which the TOML parser gives up is refused like any invalid TOML."""
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(InvalidArgumentError, match="is not valid TOML"):
        users.load(path)


@pytest.mark.parametrize(("mode", "warnings"), [(0o644, 1), (0o640, 0)])
def test_a_users_file_that_everybody_can_read_is_named(tmp_path, caplog, mode, warnings):
    """A1: a world-readable users file is warned of, and used all the same."""
    path = tmp_path / "users.toml"
    path.touch()
    path.chmod(mode)
    users.load(path)
    assert caplog.text.count(f"chmod 600 {path}") == warnings
