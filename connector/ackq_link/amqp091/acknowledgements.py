"""The acknowledgements of a channel as frames, in order, and the proof of them. Rules L10, L12.

Invariant: a frame covers deliveries of one consumer, and none that was not settled.

Why credit is a proof. A broker that gave a consumer a prefetch of W delivers its message D only
when at most W of the messages up to it are unacknowledged *in the queue*: so at least D - W of this
consumer's acknowledgements were applied there. A channel passes them on in the order in which they
were sent, so these are the consumer's first D - W ones, and all earlier acknowledgements of any
consumer of the channel are applied as well. The broker applies a frame whole for each consumer, so
a frame of one consumer is proven by any proven delivery in it. A cancelled consumer gets no further
deliveries; its acknowledgements are proven by the next consumer of the channel (L19), as soon as
one of *that* consumer's acknowledgements, which were sent later, is proven. A rejection frees
credit in the same way and in the same order. Applied does not mean written to disk: a classic queue
whose node dies may redeliver messages with a proven acknowledgement, which is why the edge keeps
their entries for a time.

It is no proof where nodes of a RabbitMQ cluster lose each other: a quorum queue then takes back its
deliveries, and makes them again to the same consumer. These count here like any other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

from ackq.client.ranges import Ranges


class AckFrame(NamedTuple):
    """One frame: it settles a delivery, or also all lower ones that are not settled yet."""

    tag: int
    multiple: bool
    rejected: bool


class Credit:
    """The credit of one consumer of the channel, and the settlements that it can prove.

    Args:
        prefetch: The consumer's prefetch.

    Attributes:
        delivered: The number of deliveries that the consumer got.
    """

    __slots__ = ("_frames", "_settled", "delivered", "prefetch")

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self.delivered = 0
        self._settled = 0
        # After each group of frames: numbers of settled deliveries of the consumer, of the channel.
        self._frames: deque[tuple[int, int]] = deque()

    def sent(self, count: int, total: int) -> None:
        """Records `count` more settlements of the consumer; `total` is the channel's count."""
        self._settled += count
        self._frames.append((self._settled, total))

    def proven(self) -> int:
        """The channel's proven settlements, if this consumer proved more since the last call.

        Else 0.
        """
        applied = self.delivered - self.prefetch
        total = 0
        while self._frames and self._frames[0][0] <= applied:
            total = self._frames.popleft()[1]
        return total

    @property
    def waits(self) -> bool:
        """Whether any settlement of the consumer is sent and not proven."""
        return bool(self._frames)


class _Settled(NamedTuple):
    first: int
    last: int
    rejected: bool


class Acknowledgements:
    """The settlements of a channel: the frames to send, and the number proven to be applied."""

    def __init__(self) -> None:
        self._last_tag = 0
        self._known = 0  # the last tag that was added to `_unsent`
        self._unsent = Ranges()  # delivered, and in no frame yet
        self._run_starts: list[int] = []  # the first tag of each run of one consumer's deliveries
        self._run_owners: list[Credit] = []
        self._pending: list[_Settled] = []
        self.pending = 0
        self._total = 0
        self._proven = 0

    def delivered(self, credit: Credit) -> None:
        """Counts the channel's next delivery, which came to this consumer."""
        self._last_tag += 1
        if not self._run_owners or self._run_owners[-1] is not credit:
            self._run_starts.append(self._last_tag)
            self._run_owners.append(credit)
        credit.delivered += 1

    def settle(self, first: int, last: int, *, rejected: bool = False) -> None:
        """Queues the settlement of a range, after all earlier ones; each delivery once."""
        assert 1 <= first <= last <= self._last_tag, "not delivered"
        pending = self._pending
        if pending and pending[-1].last == first - 1 and pending[-1].rejected == rejected:
            pending[-1] = pending[-1]._replace(last=last)
        else:
            pending.append(_Settled(first, last, rejected))
        self.pending += last - first + 1

    def frames(self) -> list[AckFrame]:
        """The frames for the settlements since the last call, in sending order."""
        if self._known < self._last_tag:
            self._unsent.extend(self._known + 1, self._last_tag)
            self._known = self._last_tag
        frames: list[AckFrame] = []
        group: list[tuple[int, int]] = []
        owner, rejected = None, False
        for each in self._pending:
            for first, last, credit in self._by_consumer(each.first, each.last):
                if group and (credit is not owner or each.rejected != rejected):
                    assert owner is not None
                    self._send(group, owner, rejected, frames)
                    group = []
                owner, rejected = credit, each.rejected
                group.append((first, last))
        if owner is not None:
            self._send(group, owner, rejected, frames)
        self._pending.clear()
        self.pending = 0
        return frames

    @property
    def proven(self) -> int:
        """The number of settlements, in their order, that are proven to be applied (L10)."""
        for credit in dict.fromkeys(self._run_owners):
            self._proven = max(self._proven, credit.proven())
        self._forget()
        return self._proven

    def _by_consumer(self, first: int, last: int) -> list[tuple[int, int, Credit]]:
        """Splits a range of tags where the consumer changes."""
        parts = []
        at = bisect_right(self._run_starts, first) - 1
        while first <= last:
            end = self._run_starts[at + 1] - 1 if at + 1 < len(self._run_starts) else last
            parts.append((first, min(end, last), self._run_owners[at]))
            first = end + 1
            at += 1
        return parts

    def _send(
        self,
        group: list[tuple[int, int]],
        credit: Credit,
        rejected: bool,  # noqa: FBT001 - a field of the frames
        frames: list[AckFrame],
    ) -> None:
        """Adds the frames for a group of settlements of one consumer.

        The order within the group is free, because the group is proven as a whole: the lowest tag
        goes first, so that one frame covers as much as it can.
        """
        count = 0
        before = len(frames)
        for first, last in _joined(sorted(group)):
            lowest = self._unsent.lowest
            removed = self._unsent.remove(first, last)
            assert removed == [(first, last)], "settled twice"
            count += last - first + 1
            if first == lowest:
                # All between this range and the previous frames is settled: one frame covers both.
                multiple = last > first or len(frames) > before
                del frames[before:]
                frames.append(AckFrame(last, multiple=multiple, rejected=rejected))
            else:
                frames += (
                    AckFrame(tag, multiple=False, rejected=rejected)
                    for tag in range(first, last + 1)
                )
        self._total += count
        credit.sent(count, self._total)

    def _forget(self) -> None:
        """Drops consumers whose deliveries are all settled and proven, except for the last one."""
        lowest = self._unsent.lowest if self._unsent else self._known + 1
        while (
            len(self._run_starts) > 1
            and self._run_starts[1] <= lowest
            and not self._run_owners[0].waits
        ):
            del self._run_starts[0], self._run_owners[0]


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted ranges, with adjacent ones merged."""
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and joined[-1][1] == first - 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined
