"""Attacks by strangers and by users without permission: they read, forge and freeze nothing."""

import itertools
import re
import secrets
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ackq.errors import PermissionDeniedError, UnauthenticatedError
from ackq.v1 import admin_pb2, consuming_pb2, links_pb2, publishing_pb2, sessions_pb2
from tests.eventually import SOON_S, eventually
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import (
    TIMEOUT_S,
    Client,
    denial_in,
    error_of,
    publish_requests,
    reflected,
    refused,
    refused_with,
)

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) [\w.]+ .*|  \| .*"
)
EVIL = "x\n2026-01-01T00:00:00.000Z ERROR forged\r\x1b[2J\u2028\u202e"


def test_a_stranger_learns_nothing(guarded):
    """A1, A3: a stranger gets health alone; every other call is refused with the same text."""
    with Client(guarded.broker.endpoint) as stranger:
        health = health_pb2_grpc.HealthStub(stranger.channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == 1
        for call in (
            health.Watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S),
            reflected(stranger),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                list(call)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        said = {
            str(refused_with(UnauthenticatedError, call, request))
            for call, request in (
                (stranger.admin.ListQueues, admin_pb2.ListQueuesRequest(queue="q")),
                (stranger.admin.DeleteQueue, admin_pb2.DeleteQueueRequest(queue="none")),
                (stranger.sessions.ListSessions, sessions_pb2.ListSessionsRequest()),
            )
        }
        assert len(said) == 1
    with guarded.client("master") as master:
        (answer,) = reflected(master)
        assert len(answer.list_services_response.service) == 7


def test_nobody_forges_a_line(guarded):
    """A7: names, labels and reasons with line ends and escapes stay inside their log line."""
    with guarded.client("master") as master:
        master.declare()
        for call, request in (
            (master.admin.DeclareQueue, admin_pb2.DeclareQueueRequest(queue=EVIL)),
            (master.admin.PurgeQueue, admin_pb2.PurgeQueueRequest(queue=EVIL)),
            (master.admin.DeclareExchange, admin_pb2.DeclareExchangeRequest(exchange=EVIL, type=1)),
            (master.sessions.ReleaseSession, sessions_pb2.ReleaseSessionRequest(session=EVIL)),
            (master.publishing.ForgetWriter, publishing_pb2.ForgetWriterRequest(writer=EVIL)),
        ):
            message = refused(call, request)[0].message
            assert message.isprintable(), message
        with master.consume(label=EVIL) as channel:
            channel.send(subscribe=consuming_pb2.Subscribe(consumer=EVIL, queue=EVIL))
            assert channel.refusal()[0].message.isprintable()
        opened = master.advance(
            sessions_pb2.Holder(token=secrets.token_bytes(16), host=EVIL, pid=1, application=EVIL),
            session="evil\nsession",
        )
        assert opened.session
        # A commit repeated with other rows is logged with the names that it gives.
        for target in ("queue/q", f"queue/q{EVIL}"):
            master.commit(writer="writer", target=target, keep_changed=True)
    eventually("the audit", lambda: len(guarded.audit()) >= 5)
    lines = guarded.broker.log_file.read_text(errors="surrogateescape").split("\n")
    assert [line for line in lines if line and not LINE.fullmatch(line)] == []
    assert not any(line.startswith("2026-01-01") for line in lines)


def test_strangers_freeze_nobody(guarded):
    """A3: a user is served while many fail to log in from the same address."""
    stop = threading.Event()
    refusals = []

    def knock():
        with Client(guarded.broker.endpoint, "ackq_wrong") as stranger:
            while not stop.is_set():
                try:
                    stranger.admin.ServerInfo(admin_pb2.ServerInfoRequest(), timeout=TIMEOUT_S)
                except grpc.RpcError as refused:
                    refusals.append(refused.code())

    place, began = guarded.broker.endpoint.split(":"), time.monotonic()
    with ExitStack() as ends, guarded.client("master") as master:
        for _ in range(50):
            ends.enter_context(socket.create_connection(place, SOON_S))
        strangers = ends.enter_context(ThreadPoolExecutor(20))
        ends.callback(stop.set)
        for _ in range(20):
            strangers.submit(knock)
        eventually("refusals", lambda: len(refusals) > 50)
        master.declare()
        with master.publisher() as stream:
            for number in range(1, 101):
                stream.publish(number, b"x", routing_key="q")
                stream.confirmed(1, first=number)
    assert set(refusals) == {grpc.StatusCode.UNAUTHENTICATED}
    # A line a second, not one for each refusal.
    assert len(guarded.audit()) < time.monotonic() - began + 10


def cpu_s(guarded):
    times = psutil.Process(guarded.broker.pid).cpu_times()
    return times.user + times.system


def test_a_refusal_costs_less_than_the_request(guarded):
    """A3: refusing a large frame, of a stranger or a user, costs less CPU than storing it."""
    guarded.add("app", write="mine")
    frames, block = 30, encoded(body=[b"x" * 100] * 10_000, routing_key="q")

    def publish(client):
        """Publishes a frame on a new stream; returns the type of its refusal."""
        requests = publish_requests(({"first_number": 1, "rows": 10_000}, block))
        try:
            denied = denial_in(client.publishing.Publish(requests, timeout=60))
        except grpc.RpcError as refused:
            return type(error_of(refused)[0])
        return denied and type(denied)

    cost_s, ends = {}, {}
    guarded.tokens["nobody"] = "ackq_wrong"
    for name in ("master", "app", "", "nobody"):
        with guarded.client(name) as client:
            if name == "master":
                client.declare()
            publish(client)
            before = cpu_s(guarded)
            # All at once: only a few failed logins of one address wait, one after the other.
            with ThreadPoolExecutor(frames) as pool:
                ends[name] = set(pool.map(publish, [client] * frames))
            cost_s[name] = cpu_s(guarded) - before
    stranger = {UnauthenticatedError}
    denied = {"app": {PermissionDeniedError}, "": stranger, "nobody": stranger}
    assert ends == {"master": {None}, **denied}
    # CPU of the whole process, in hundredths of a second; the frames were received in any case.
    assert max(cost_s["app"], cost_s[""], cost_s["nobody"]) < cost_s["master"] + 0.1, cost_s


def act(method, service="Admin", **fields):
    """An audit line about an act of the master."""
    return {"event": "act", "call": f"{service}Service.{method}", "user": "master", **fields}


def test_the_audit_says_who(guarded):
    """A8: each act and refusal is audited with user, call and result, without secrets."""
    guarded.add("app")
    with guarded.client("master") as master, guarded.client("app") as app:
        master.declare()
        refused(master.admin.PurgeQueue, admin_pb2.PurgeQueueRequest(queue="none"))
        refused(master.links.PauseLink, links_pb2.PauseLinkRequest(link="none", paused=True))
        refused_with(PermissionDeniedError, app.delete)
        refused_with(PermissionDeniedError, app.delete)

    def audited():
        return [each for each in guarded.audit() if each.get("reason") != "unauthenticated"]

    found = eventually("the audit", audited, lambda lines: len(lines) >= 4)
    peers = {each.pop("peer").rpartition(":")[0] for each in found}
    assert peers == {"ipv4:127.0.0.1"}
    declared = {"queue": "q", "properties": {"durable": True}}
    paused = {"link": "none", "paused": True}
    # The same refusal is not repeated at once, but is after a while.
    assert [line for line, _ in itertools.groupby(found)] == [
        act("DeclareQueue", request=declared, result="done"),
        act("PurgeQueue", request={"queue": "none"}, result="queue_not_found"),
        act("PauseLink", "Links", request=paused, result="link_not_found"),
        {
            "event": "refused",
            "call": "AdminService.DeleteQueue",
            "user": "app",
            "reason": "configure on queue 'q'",
        },
    ]
    log = guarded.broker.log_file.read_text()
    assert not any(token in log for token in guarded.tokens.values())
