"""A model of the broker's side of settlements, for tests: open tags, and settled outcomes."""

from ackq.wire.outcomes import FROM_WIRE


class SettlementModel:
    """The tags that a channel's consumer holds, settled as the protocol requires (C2, C3)."""

    def __init__(self, last=0):
        self.open = set(range(1, last + 1))
        self.outcomes = {}
        self.answers = {}

    def settle(self, request):
        """Applies a settlement, or repeats its answer; returns the number of messages settled."""
        if request.number in self.answers:
            return self.answers[request.number]
        tags = named(request, self.open)
        assert tags, f"unknown delivery tag {request.delivery_tag}"
        assert tags <= self.open, f"unknown delivery tags {tags - self.open}"
        self.open -= tags
        self.outcomes.update(dict.fromkeys(tags, FROM_WIRE[request.outcome]))
        self.answers[request.number] = len(tags)
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
