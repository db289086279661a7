"""`ackq session release --finished`: the sessions that it does not release."""

import json
from contextlib import nullcontext

import pytest
from click.testing import CliRunner

from ackq import client, errors
from ackq.cli.sessions import session
from ackq.info import SessionInfo


class Admin:
    """A broker with named sessions; changes during the command are scripted by `meanwhile`."""

    def __init__(self, **meanwhile):
        self.meanwhile = meanwhile
        self.released = []

    def sessions(self, *, finished=False):
        names = ("a", "b", "z") if finished else ("z",)
        return [SessionInfo(session=name, incarnation="1", epoch=3) for name in names]

    def session(self, name):
        happened = self.meanwhile.get(name, {})
        if isinstance(happened, Exception):
            raise happened
        return SessionInfo(**{"session": name, "incarnation": "1", "epoch": 3, **happened})

    def release_session(self, name, *, fence=False):
        if name in self.meanwhile:
            raise errors.AlreadyHeldError("A live holder is attached.")
        assert not fence
        self.released.append(name)


@pytest.fixture
def run(monkeypatch):
    def invoke(admin, *arguments):
        monkeypatch.setattr(client, "Admin", lambda *_, **__: nullcontext(admin))
        return CliRunner().invoke(session, ["release", *arguments])

    return invoke


GONE = errors.SessionNotFoundError("It is gone.")


@pytest.mark.parametrize(
    "happened", [{"epoch": 4}, {"incarnation": "2"}, {"end_tag": 5}, {"live": True}, GONE]
)
def test_what_a_query_took_up_meanwhile_stays(run, happened):
    """S8: a session that changed after the listing stays; the others are released."""
    admin = Admin(a=happened)
    done = run(admin, "--finished", "--yes", "--json")
    assert json.loads(done.stdout)["data"] == {"sessions": ["b"], "released": True}
    assert admin.released == ["b"]


def test_sessions_released_before_an_error_are_named(run):
    """S8: an error at a later session does not hide those that were released before it."""
    done = run(Admin(b=errors.PermissionDeniedError("No.")), "--finished", "--yes", "--json")
    assert json.loads(done.stdout)["data"] == {"sessions": ["a"], "released": True}
    assert done.exit_code != 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *((words, "Give NAME") for words in ("", "a --finished", "a --dry-run", "a --yes")),
        *((f"--finished {words}", "Give NAME") for words in ("--fence", "--tags 1 --dry-run")),
        ("--tags 1", "Give NAME"),
        ("a --incarnation 0a", "--incarnation needs --tags"),
    ],
)
def test_what_does_not_go_together(run, arguments, said):
    """S8: contradictory arguments are a usage error, and nothing is released."""
    admin = Admin()
    refused = run(admin, *arguments.split())
    assert (refused.exit_code, said in refused.output) == (2, True)
    assert admin.released == []
