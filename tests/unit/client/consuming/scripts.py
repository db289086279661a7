"""A channel of a scripted broker, scripts that serve it, and what it settled."""

from contextlib import contextmanager

from ackq.client import Channel
from tests.fakes import scripted_channel as fake
from tests.unit.client.consuming.settlement_model import SettlementModel
from tests.unit.client.threads import SOON_S


def channel(broker, **options):
    return Channel(broker.endpoint, **options)


@contextmanager
def consuming(broker, *frames, mode="client", **options):
    """A channel whose consumer gets these frames, and the consumer."""
    broker.consuming.scripts.append(serve(*frames))
    with channel(broker) as it:
        yield it, it.consume("orders", mode=mode, **options)


def serve(*frames, settle=True, resumed=False, settle_runs=False, asked=None, instance=b""):
    """A script: opens, sends the frames once a consumer or pull asks, then answers settlements.

    With an event `asked`, it answers them when that is set.
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
    """A script: a frame for each kind of request, or a call that may make one; it opens anyway."""
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
    """What became of each of the tags 1..last that was settled on the first stream, by tag."""
    model = SettlementModel(last)
    for each in settles(broker.consuming.streams[0]):
        model.settle(each)
    return sorted((tag, outcome.name) for tag, outcome in model.outcomes.items())
