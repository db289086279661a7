"""A broker that is drained before a restart (O6)."""

import re
import subprocess
from concurrent.futures import TimeoutError as NotYetError
from subprocess import PIPE

import pytest

from ackq.client import Admin, Publisher
from ackq.errors import BrokerUnavailableError
from ackq.v1 import publishing_pb2
from tests.eventually import SOON_S, eventually
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import Client, holder, refused
from tests.wire.cli.conftest import ackq_on, command

SILENCE_S = 0.3
TRANSACTION = publishing_pb2.PUBLISH_MODE_TRANSACTION


def drain(endpoint, *options):
    """Runs `ackq broker drain`; returns its exit status and output."""
    done = ackq_on(endpoint)("broker", "drain", *options)
    return done.exit_code, done.stdout


def opens(client):
    """Opens a publisher."""
    with client.publisher():
        pass


def channel(client):
    """Opens a channel."""
    with client.consume() as opened:
        opened.get(1)


def test_nothing_new_is_taken_in_and_the_rest_is_finished(broker, own):
    """O6, P14, C8: a draining broker takes in nothing new, and finishes what is in flight.

    Unacked messages are reported, settled and answered; publishers wait for the restart and go on
    afterwards; consumers get nothing more.
    """
    with (
        Publisher(broker.endpoint, routing_key="q") as publisher,
        Client(broker.endpoint) as other,
    ):
        for number in range(4):
            publisher.publish(b"%d" % number).result(SOON_S)
        with own.consume() as consumer:
            consumer.subscribe(prefetch=2)
            assert [each.body for each in consumer.deliveries(2)] == [b"0", b"1"]

            status, said = drain(broker.endpoint)
            assert (status, said) == (1, "under way: unacked=2 transactions=0 stages=0 bytes=0\n")

            with Admin(broker.endpoint) as admin:
                assert "drained for a restart" in admin.info().blocked
            # Publishes that are sent before it knows are accepted.
            eventually("blocked", lambda: publisher.blocked)
            blocked = publisher.publish(b"4")
            with pytest.raises(NotYetError):
                blocked.result(SILENCE_S)
            for call in (opens, channel, lambda client: client.advance(holder())):
                error, _ = refused(call, other)
                assert isinstance(error, BrokerUnavailableError)
                assert "try again after the restart" in error.message

            consumer.settled(consumer.settle(2, multiple=True), 2)
            status, said = drain(broker.endpoint, "--wait", "60s")
            assert (status, said) == (0, "quiet: unacked=0 transactions=0 stages=0 bytes=0\n")
            info = own.queue()
            assert (info.ready, info.unacked, info.accepted) == (2, 0, 2)
        broker.restart()
        blocked.result(SOON_S)
    with Client(broker.endpoint) as again:
        assert again.browse()[0] == [b"2", b"3", b"4"]


@pytest.mark.parametrize("arguments", [("publish", "q", "a"), ("consume", "q", "--count", "1")])
def test_a_command_tells_that_it_waits_for_a_drained_broker(broker, own, arguments):
    """O6: a command that waits for a drained broker says so on stderr, and goes on at a resume."""
    own.publish(b"a")
    drain(broker.endpoint)
    words = command(broker.endpoint, *arguments)
    with subprocess.Popen(words, text=True, stdout=PIPE, stderr=PIPE) as waiting:
        said = waiting.stderr.readline()
        assert re.fullmatch(
            r"The (publisher|channel) waits for the broker and goes on trying: The broker is being"
            r" drained for a restart, and accepts no new work: try again after the restart\.\n",
            said,
        )
        drain(broker.endpoint, "--resume")
        out, err = waiting.communicate(timeout=SOON_S)
        assert (waiting.returncode, "goes on" in err) == (0, False)
        assert out in {"confirmed=1\n", "a\n"}


def test_what_a_restart_would_interrupt_is_counted(broker, own):
    """O6, P13: a drain reports an open transaction, which can still be committed."""
    with own.publisher(mode=TRANSACTION) as stream:
        block = encoded(body=[b"a"], routing_key=["q"])
        stream.send_data(1, 1, block, transaction_id=b"1" * 16)
        open_one = "under way: unacked=0 transactions=1"
        eventually("it", lambda: drain(broker.endpoint)[1], lambda said: said.startswith(open_one))
        stream.send(
            publishing_pb2.PublishHeader(
                commit=publishing_pb2.PublishTransaction(transaction_id=b"1" * 16, messages=1)
            )
        )
        assert "drained" in stream.answer().blocked.reason
        assert stream.answer().HasField("transaction")
    assert drain(broker.endpoint, "--wait", "60s")[0] == 0
    assert own.browse()[0] == [b"a"]


def test_a_drain_can_be_taken_back(broker, own):
    """O6: after a resume waiting consumers are served, and publishers are admitted."""
    own.publish(b"a", b"b")
    with own.consume() as consumer:
        consumer.subscribe(prefetch=1)
        assert [each.body for each in consumer.deliveries(1)] == [b"a"]
        assert drain(broker.endpoint)[0] == 1
        consumer.settled(consumer.settle(1), 1)
        eventually("a quiet broker", lambda: drain(broker.endpoint)[0] == 0)
        assert isinstance(refused(opens, own)[0], BrokerUnavailableError)
        status, said = drain(broker.endpoint, "--resume")
        assert (status, said) == (0, "the broker takes in new work again\n")
        assert [each.body for each in consumer.deliveries(1)] == [b"b"]
        opens(own)


def test_a_drain_that_waits_is_not_made_again_after_a_resume(broker, own):
    """O6: a command that waits for a quiet broker only looks, and ends when another resumes it."""
    own.publish(b"a")
    with own.consume() as consumer:
        consumer.subscribe()
        consumer.deliveries(1)
        words = command(broker.endpoint, "broker", "drain", "--wait", "60s")
        with (
            subprocess.Popen(words, text=True, stdout=PIPE, stderr=PIPE) as waiting,
            Admin(broker.endpoint) as admin,
        ):
            eventually("a drain", lambda: admin.info().blocked)
            drain(broker.endpoint, "--resume")
            _, err = waiting.communicate(timeout=SOON_S)
            assert (waiting.returncode, err) == (
                4,
                "Error: The drain was ended: the broker was resumed.\n",
            )
            assert not admin.info().blocked
