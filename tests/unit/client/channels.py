"""Channels for tests, scripts of a broker that serves them, and what they leave behind."""

import threading

from ackq.client import Channel
from tests.fakes import scripted_channel as fake
from tests.unit.client.settlements import Ledger

# For what happens at once, on a machine that may do much else.
SOON_S = 60


def channel(broker, **options):
    return Channel(broker.endpoint, **options)


def channel_threads():
    """The client's threads; a broker's engine in this process has workers of its own."""
    return [
        each
        for each in threading.enumerate()
        if each.name.startswith("ackq-") and not each.name.startswith("ackq-worker")
    ]


def logged(caplog):
    """What the client logged: the server in this process may have something to say as well."""
    return [each for each in caplog.records if each.name.startswith("ackq")]


def refuse_threads(monkeypatch, name):
    """No thread of this name can start; those of the broker in this process can."""
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


def serve(*frames, settle=True, resumed=False, settle_runs=False, asked=None):
    """A script: opens, sends the frames once a consumer or pull asks, then answers settlements.

    With an event `asked`, it answers them when that is set.
    """

    def script(requests):
        waiting = list(frames)
        ledger = Ledger()
        for request in requests:
            kind = request.WhichOneof("kind")
            if kind == "open":
                yield fake.opened(resumed=resumed, settle_runs=settle_runs)
            if kind in {"subscribe", "get"} or (kind == "open" and resumed):
                for frame in waiting:
                    ledger.open |= fake.tags_of(frame)
                    yield frame
                waiting = []
            elif kind == "settle" and settle:
                assert asked is None or asked.wait(SOON_S)
                yield fake.settled(request, ledger.settle(request.settle))

    return script


def settles(requests):
    return [each.settle for each in requests if each.HasField("settle")]


def outcomes(broker, last=10):
    """What became of each of the tags 1..last that was settled on the first stream, by tag."""
    ledger = Ledger(last)
    for each in settles(broker.consuming.streams[0]):
        ledger.settle(each)
    return sorted((tag, outcome.name) for tag, outcome in ledger.outcomes.items())
