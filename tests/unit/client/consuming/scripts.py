"""A channel of a scripted broker, scripts that serve it, and the outcomes of its settlements."""

from contextlib import contextmanager
from itertools import islice

from ackq.client import AsyncChannel, Channel
from ackq.wire.outcomes import FROM_WIRE
from tests.fakes import scripted_channel as fake
from tests.fakes.scripted_broker import Cut
from tests.unit.client.threads import SOON_S, Blocking, OnLoop


class ChannelOnLoop(OnLoop):
    """An `AsyncChannel`, with the methods of a `Channel`."""

    def __init__(self, endpoint, **options):
        super().__init__(lambda: AsyncChannel(endpoint, **options))

    def consume(self, *arguments, **options):
        consumer = self._thread.run(self.it.consume(*arguments, **options))
        return Blocking(consumer, self._thread)


# The kinds of channel, for tests of both.
KINDS = {"threads": Channel, "asyncio": ChannelOnLoop}


def channel(broker, *, kind=Channel, **options):
    return kind(broker.endpoint, **options)


@contextmanager
def consuming(broker, *frames, mode="client", kind=Channel, **options):
    """Opens a channel with one consumer that gets these frames; yields channel and consumer."""
    broker.consuming.scripts.append(serve(*frames))
    with channel(broker, kind=kind, **options) as it:
        yield it, it.consume("orders", mode=mode)


class SettlementModel:
    """The tags that a channel's consumer holds, settled as the protocol requires (C2, C3)."""

    def __init__(self, last=0):
        self.open = set(range(1, last + 1))
        self.outcomes = {}

    def settle(self, request):
        """Applies a settlement; returns the number of messages settled."""
        tags = named(request, self.open)
        assert tags, f"unknown delivery tag {request.delivery_tag}"
        assert tags <= self.open, f"unknown delivery tags {tags - self.open}"
        self.open -= tags
        self.outcomes.update(dict.fromkeys(tags, FROM_WIRE[request.outcome]))
        return len(tags)


def named(request, opened):
    """The tags that a settlement names."""
    if request.first_tag:
        assert not request.delivery_tag, "runs stand instead of a tag"
        runs = zip(request.first_tag, request.rows, strict=True)
        return {tag for first, rows in runs for tag in range(first, first + rows)}
    if request.multiple:
        return {tag for tag in opened if tag <= request.delivery_tag}
    return {request.delivery_tag}


def serve(*frames, resumed=False, settle_runs=False, asked=(), instance=b""):
    """A script: opens, sends the frames once a consumer or pull asks, then answers settlements.

    The first settlements are answered once the events of `asked` are set, one after the other.
    """

    def script(requests):
        waiting = list(frames)
        model, events = SettlementModel(), iter(asked)
        for request in requests:
            kind = request.WhichOneof("kind")
            if kind == "open":
                yield fake.opened(resumed=resumed, settle_runs=settle_runs, instance=instance)
            if kind in {"subscribe", "get"} or (kind == "open" and resumed):
                for frame in waiting:
                    model.open |= fake.tags_of(frame)
                    yield frame
                waiting = []
            elif kind == "settle":
                assert all(event.wait(SOON_S) for event in islice(events, 1))
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


def cut(_):
    """The answer of a broker that is cut off."""
    raise Cut


def settles(requests):
    return [each.settle for each in requests if each.HasField("settle")]


def outcomes(broker, last=10):
    """Sorted (tag, outcome) pairs of the tags 1..last that were settled on the first stream."""
    model = SettlementModel(last)
    for each in settles(broker.consuming.streams[0]):
        model.settle(each)
    return sorted((tag, outcome.name) for tag, outcome in model.outcomes.items())
