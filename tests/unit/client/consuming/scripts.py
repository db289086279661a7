"""A channel of a scripted broker, scripts that serve it, and the outcomes of its settlements."""

from contextlib import contextmanager

from ackq.client import Channel
from tests.fakes import scripted_channel as fake
from tests.unit.client.consuming.settlement_model import SettlementModel
from tests.unit.client.threads import SOON_S


def channel(broker, **options):
    return Channel(broker.endpoint, **options)


@contextmanager
def consuming(broker, *frames, mode="client", **options):
    """Opens a channel with one consumer that gets these frames; yields channel and consumer."""
    broker.consuming.scripts.append(serve(*frames))
    with channel(broker) as it:
        yield it, it.consume("orders", mode=mode, **options)


def serve(*frames, settle=True, resumed=False, settle_runs=False, asked=None, instance=b""):
    """A script: opens, sends the frames once a consumer or pull asks, then answers settlements.

    With an event `asked`, settlements are answered once the event is set.
    """

    def script(requests):
        waiting = list(frames)
        model = SettlementModel()
        for request in requests:
            kind = request.WhichOneof("kind")
            if kind == "open":
                yield fake.opened(resumed=resumed, settle_runs=settle_runs, instance=instance)
            if kind in {"subscribe", "get"} or (kind == "open" and resumed):
                for frame in waiting:
                    model.open |= fake.tags_of(frame)
                    yield frame
                waiting = []
            elif kind == "settle" and settle:
                assert asked is None or asked.wait(SOON_S)
                yield fake.settled(request, model.settle(request.settle))

    return script


def react(**answers):
    """A script that answers each kind of request with a frame or a call's result; always opens."""
    answers = {"open": fake.opened(), **answers}

    def script(requests):
        for request in requests:
            answer = answers.get(request.WhichOneof("kind"))
            if callable(answer):
                answer = answer(request)
            if answer is not None:
                yield answer

    return script


def settles(requests):
    return [each.settle for each in requests if each.HasField("settle")]


def outcomes(broker, last=10):
    """Sorted (tag, outcome) pairs of the tags 1..last that were settled on the first stream."""
    model = SettlementModel(last)
    for each in settles(broker.consuming.streams[0]):
        model.settle(each)
    return sorted((tag, outcome.name) for tag, outcome in model.outcomes.items())
