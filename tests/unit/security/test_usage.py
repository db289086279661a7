"""Limits of a user on queues, exchanges, bindings and staged bytes."""

from types import SimpleNamespace

import pytest

from ackq import limits
from ackq.errors import LimitError
from ackq.v1 import admin_pb2, publishing_pb2
from ackq.wire.frame import Frame
from ackq_broker.security.callers import Caller, Rights
from ackq_broker.security.name_pattern import NamePattern
from ackq_broker.security.usage import Usage
from ackq_broker.security.users import User, UserLimits

DECLARE_EXCHANGE = "ackq.v1.AdminService.DeclareExchange"
BIND = "ackq.v1.AdminService.Bind"
STAGE = "ackq.v1.PublishingService.Stage"


@pytest.fixture
def broker(monkeypatch):
    """A broker's queues, with their bindings, exchanges and stages, as the views show them."""
    found = SimpleNamespace(queues={}, exchanges={}, stages={})
    found.queue_names = found.bindings_of_queues = lambda _: found.queues
    found.exchange_names = lambda _: found.exchanges
    found.binding_count = lambda _: sum(found.queues.values())
    found.staged_bytes = lambda _, ids: {at: found.stages[at] for at in ids if at in found.stages}
    monkeypatch.setattr("ackq_broker.security.usage.views", found)
    return found


def caller(name="app", *, configure="q.*", write="", **most):
    user = User(
        name,
        (),
        configure=NamePattern(configure),
        write=NamePattern(write),
        limits=UserLimits(**most),
    )
    return Caller("ipv4:127.0.0.1:1", Rights(user))


def test_exchanges_and_bindings_are_those_that_permissions_name(broker, monkeypatch):
    """A5, I6: a user has half of the limits on exchanges and bindings; others are not affected."""
    monkeypatch.setattr(limits, "MAX_EXCHANGES", 4)
    monkeypatch.setattr(limits, "MAX_BINDINGS", 6)
    usage, app = Usage(broker), caller(write="q.*")
    other = caller("other", write="other", configure="other.*")
    broker.exchanges = dict.fromkeys(("q1", "other", "q2"))
    declare = admin_pb2.DeclareExchangeRequest
    usage.check(app, DECLARE_EXCHANGE, declare(exchange="q1"))
    with pytest.raises(LimitError, match="'app' is at its limit of 2 exchanges"):
        usage.check(app, DECLARE_EXCHANGE, declare(exchange="q3"))
    usage.check(other, DECLARE_EXCHANGE, declare(exchange="other2"))
    bind = admin_pb2.BindRequest(exchange="q1", queue="q1")
    broker.queues = {"q1": 2, "other": 2}
    usage.check(app, BIND, bind)
    broker.queues["q2"] = 1
    with pytest.raises(LimitError, match="'app' is at its limit of 3 bindings"):
        usage.check(app, BIND, bind)
    usage.check(other, BIND, bind)


def opened(stage_id):
    return Frame(publishing_pb2.StageHeader(open=publishing_pb2.StageOpen(stage_id=stage_id)), b"")


def data(size):
    return Frame(publishing_pb2.StageHeader(data=publishing_pb2.StageData(rows=1)), b"x" * size)


def test_staged_bytes_are_those_of_its_stages(broker):
    """A5: staged bytes count all stages of the user, except committed and dropped ones."""
    usage, app = Usage(broker), caller(staged_bytes=100)
    usage.check(app, STAGE, opened(b"1"))
    broker.stages = {b"1": 60, b"another's": 1000}
    usage.check(app, STAGE, data(40))
    usage.check(app, STAGE, opened(b"2"))
    with pytest.raises(LimitError, match="limit of 100 staged bytes"):
        usage.check(app, STAGE, data(41))
    usage.check(caller("other", staged_bytes=100), STAGE, data(41))
    del broker.stages[b"1"]
    usage.check(app, STAGE, data(41))
