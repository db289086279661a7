"""The metrics of links (L26): all of them together, and each by its name.

What the process of a link tells of itself is among them while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from ackq.v1 import links_pb2 as pb

_LINK: Final = "ackq_link_"
_ABSENT: Final = -1.0
# What a link may be limited by (L19); whatever else its process says is one label, not many.
_LIMITS: Final = frozenset(("", "window", "edge", "broker", "client"))


class LinkFigure(NamedTuple):
    """A number that every link has.

    Attributes:
        name: Of the metric, behind `ackq_link_`; that of a counter ends in `_total`.
        help: What it is, as a sentence.
        of: Returns it of a link.
        together: What it is of all links.
    """

    name: str
    help: str
    of: Callable[[pb.LinkInfo], float]
    together: Callable[[Iterable[float]], float] = sum

    @property
    def family(self) -> type[CounterMetricFamily | GaugeMetricFamily]:
        """The kind of its metric."""
        return CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily


def _highest(values: Iterable[float]) -> float:
    return max(values, default=0.0)


def _fewest(values: Iterable[float]) -> float:
    return min((each for each in values if each >= 0), default=_ABSENT)


def _lives_left(link: pb.LinkInfo) -> float:
    return link.report.lives_left if link.report.HasField("lives_left") else _ABSENT


LINK_FIGURES: Final = (
    LinkFigure("live", "1 while a process runs it.", lambda link: link.live),
    LinkFigure("paused", "1 while an operator has it paused.", lambda link: link.paused),
    LinkFigure(
        "refused", "1 while its queue takes nothing from it.", lambda link: bool(link.refusal)
    ),
    LinkFigure(
        "messages_held", "Messages in its queue, unacknowledged there.", lambda link: link.held
    ),
    LinkFigure(
        "held_oldest_age_seconds",
        "How long the oldest of them has waited; 0 for none.",
        lambda link: link.held_oldest_age_ms / 1000,
        _highest,
    ),
    LinkFigure(
        "messages_settled",
        "Messages settled here and not permitted yet.",
        lambda link: link.settled,
    ),
    LinkFigure(
        "acks_unproven", "Acknowledgements permitted and not proven.", lambda link: link.unproven
    ),
    LinkFigure(
        "acks_in_doubt", "Of these, those of connections that broke.", lambda link: link.in_doubt
    ),
    LinkFigure(
        "tombstones", "Origin keys kept of messages that are gone.", lambda link: link.tombstones
    ),
    LinkFigure("messages_taken_total", "Deliveries taken.", lambda link: link.taken),
    LinkFigure("messages_stored_total", "Of these, stored.", lambda link: link.stored),
    LinkFigure(
        "messages_matched_held_total",
        "Of these, matched with a message in the queue.",
        lambda link: link.matched_held,
    ),
    LinkFigure(
        "messages_matched_settled_total",
        "Of these, matched with one that was settled before.",
        lambda link: link.matched_settled,
    ),
    LinkFigure(
        "messages_ambiguous_total",
        "Of these, stored though one of the same content may have been acknowledged.",
        lambda link: link.ambiguous,
    ),
    LinkFigure(
        "id_reused_total",
        "Of these, stored though their id was known, as their content differs.",
        lambda link: link.id_reused,
    ),
    LinkFigure("acks_permitted_total", "Acknowledgements permitted.", lambda link: link.permitted),
    LinkFigure(
        "acks_rejected_total",
        "Of the permitted, those that are rejections there.",
        lambda link: link.rejected,
    ),
    LinkFigure("acks_proven_total", "Acknowledgements proven.", lambda link: link.proven),
    LinkFigure(
        "window_messages",
        "Most messages that its process takes unsettled; 0: not known.",
        lambda link: link.report.window_messages,
    ),
    LinkFigure(
        "reconnects",
        "How often its process connected there again.",
        lambda link: link.report.reconnects,
    ),
    LinkFigure(
        "renewals",
        "How often its process gave held messages back and took them again.",
        lambda link: link.report.renewals,
    ),
    LinkFigure(
        "lives_left",
        "Deliveries left of the message that has the fewest; -1 where there is no limit.",
        _lives_left,
        _fewest,
    ),
)


def together(links: Iterable[pb.LinkInfo]) -> Iterator[Metric]:
    """The metrics of all links."""
    found = [*links]
    yield GaugeMetricFamily("ackq_links", "Links from other brokers.", len(found))
    for figure in LINK_FIGURES:
        value = figure.together(map(figure.of, found))
        yield figure.family(_LINK + figure.name, figure.help, float(value))


def each(links: Iterable[pb.LinkInfo]) -> Iterator[Metric]:
    """The metrics of each link, by its name."""
    found = [*links]
    for figure in LINK_FIGURES:
        family = figure.family(_LINK + figure.name, figure.help, labels=["link"])
        for link in found:
            family.add_metric([link.link], float(figure.of(link)))
        yield family
    names = ["link", "queue", "source", "host", "limited_by"]
    about = InfoMetricFamily("ackq_link", "Where a link comes from, and who runs it.", labels=names)
    for link in found:
        said = link.report.limited_by
        limited = said if said in _LIMITS else "other"
        about.add_metric([link.link, link.queue, link.source, link.holder.host, limited], {})
    yield about
