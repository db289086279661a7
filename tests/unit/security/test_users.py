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
        path.chmod(0o644)
        return users.load(path)

    return loaded


def test_a_user(load, tmp_path, caplog):
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
    assert caplog.text.count(f"chmod 600 {tmp_path}/users.toml") == 1  # every user can read it


def test_a_token_is_long_and_new():
    """A1: a new token has 256 random bits and a prefix that secret scanners can find."""
    assert re.fullmatch(r"ackq_[\w-]{43}", TOKEN)
    assert len({users.new_token() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[users", "is not valid TOML"),
        ("a = " + "[" * 100_000, "is not valid TOML"),
        ("a = " + "9" * 5000, "is not valid TOML"),
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
        pytest.param(
            f"[users.a]\ntokens=['{HASH}']\n[users.b]\ntokens=['{HASH}']",
            "has the same token twice",
            id="a token twice",
        ),
    ],
    ids=lambda given: given[:30],
)
def test_a_file_that_is_wrong(load, text, wrong):
    """A1: the refusal of an invalid users file names the user and what is wrong."""
    with pytest.raises(InvalidArgumentError, match=re.escape(wrong)):
        load(text)
