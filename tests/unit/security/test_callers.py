"""The permissions of a caller."""

import pytest

from ackq import limits
from ackq.errors import PermissionDeniedError
from ackq_broker.core.commands import Routes
from ackq_broker.security import callers
from ackq_broker.security.callers import Caller, Rights, check_targets, current
from ackq_broker.security.name_pattern import NamePattern
from ackq_broker.security.permissions import ANY, Need
from ackq_broker.security.users import User


def caller(role="none", **patterns):
    compiled = {name: NamePattern(text) for name, text in patterns.items()}
    return Caller("ipv4:127.0.0.1:1", Rights(User("app", (), role, **compiled)))


def test_what_is_missing_first_is_named():
    """A3: a refusal names only the first missing permission."""
    needs = [Need("read", "queue", "a"), Need("write", "queue", "b"), Need("write", "queue", "c")]
    with pytest.raises(PermissionDeniedError) as refused:
        caller(read="a").require(needs)
    assert str(refused.value) == "The user 'app' does not have write on queue 'b'."


def test_answers_are_remembered_within_a_bound(monkeypatch):
    """A2, I6: a pattern is matched once per name, and remembered answers are bounded."""
    monkeypatch.setattr(callers, "_REMEMBERED", 3)
    rights = caller(read="q.").rights
    for _ in range(2):
        assert [rights.allow("read", f"q{n}") for n in range(5)] == [True] * 5
        assert len(rights._answers) <= 3
    assert (rights.allow(ANY, "q1"), rights.allow(ANY, "r1")) == (True, False)


def test_many_names_at_once():
    """A2: each of many names gets its own answer, whether remembered, new or repeated."""
    rights = caller(read="a.", write="b.").rights
    assert rights.allow("read", "a1")
    assert rights.allow_each("read", ["a2", "b1", "a1", "b1"]) == [True, False, True, False]
    assert rights.allow_each(ANY, ["a1", "b1", "c1"]) == [True, True, False]
    assert rights.allow_each("configure", []) == []


def test_targets_of_a_frame():
    """A2: on the default exchange each routing key is checked as a queue, else the exchange."""
    routes = Routes(("a", "b"))
    check_targets("", routes)  # without users
    token = current.set(caller(write="a|x"))
    try:
        check_targets("x", routes)
        check_targets("", Routes(("a",)))
        with pytest.raises(PermissionDeniedError, match="write on queue 'b'"):
            check_targets("", routes)
        with pytest.raises(PermissionDeniedError, match="write on exchange 'y'"):
            check_targets("y", routes)
    finally:
        current.reset(token)


def test_a_name_beyond_the_limit_is_neither_matched_nor_kept_whole():
    """A3, I6: a refusal of an oversized name costs less than its request, in memory and answer."""
    app, name = caller(read="q.*", write="q{255}|no"), "q" * limits.MIB
    assert app.has(Need("read", "queue", name))  # nothing has that name, and the core says so
    assert app.has(Need("write", "queue", name))
    assert all(len(kept) <= limits.MAX_NAME_BYTES for _, kept in app.rights._answers)
    with pytest.raises(PermissionDeniedError) as refused:
        app.require([Need("configure", "queue", name)])
    assert len(str(refused.value)) < 1024
    assert len(refused.value.fields["permission"]) < 1024
