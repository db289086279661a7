"""The metrics of links (L26): all of them together, and each by its name.

They include the figures that a link's process reports while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from ackq.v1 import links_pb2 as pb

_LINK: Final = "ackq_link_"
_ABSENT: Final = -1.0
# The limits that a link may report (L19); any other text is the label `other`, to bound labels.
_LIMITS: Final = frozenset(("", "connection", "window", "edge", "broker", "client"))


class LinkFigure(NamedTuple):
    """A number that every link has.

    Attributes:
        name: Name of the metric after `ackq_link_`; that of a counter ends in `_total`.
        help: Help text, a sentence.
        of: Returns the value of a link.
        together: Combines the values of all links.
    """

    name: str
    help: str
    of: Callable[[pb.LinkInfo], float]
    together: Callable[[Iterable[float]], float] = sum

    @property
    def family(self) -> type[CounterMetricFamily | GaugeMetricFamily]:
        """The class of its metric family."""
        return CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily


def _highest(values: Iterable[float]) -> float:
    return max(values, default=0.0)


def _fewest(values: Iterable[float]) -> float:
    return min((each for each in values if each >= 0), default=_ABSENT)


def _lives_left(link: pb.LinkInfo) -> float:
    return link.report.lives_left if link.report.HasField("lives_left") else _ABSENT


def _field(name: str, field: str, help_text: str) -> LinkFigure:
    """The figure of a field of the link's message, or of the report in it."""
    return LinkFigure(name, help_text, attrgetter(field))


LINK_FIGURES: Final = (
    _field("live", "live", "1 while a process runs the link."),
    _field("paused", "paused", "1 while an operator has paused the link."),
    LinkFigure(
        "refused",
        "1 while the broker refuses messages of the link.",
        lambda link: bool(link.refusal),
    ),
    _field(
        "messages_held",
        "held",
        "Messages in the link's queue, not acknowledged at the remote broker.",
    ),
    LinkFigure(
        "held_oldest_age_seconds",
        "Age of the oldest held message; 0 if there is none.",
        lambda link: link.held_oldest_age_ms / 1000,
        _highest,
    ),
    _field(
        "messages_settled",
        "settled",
        "Messages that are settled, and whose acknowledgement is not permitted yet.",
    ),
    _field("acks_unproven", "unproven", "Acknowledgements permitted and not proven."),
    _field("acks_in_doubt", "in_doubt", "Unproven acknowledgements of connections that broke."),
    _field("tombstones", "tombstones", "Origin keys kept of messages that have left the queue."),
    _field("messages_taken_total", "taken", "Deliveries received from the remote broker."),
    _field("messages_stored_total", "stored", "Deliveries that were stored as new messages."),
    _field(
        "messages_matched_held_total",
        "matched_held",
        "Deliveries matched with a message in the queue.",
    ),
    _field(
        "messages_matched_settled_total",
        "matched_settled",
        "Deliveries matched with a message that was settled before.",
    ),
    _field(
        "messages_ambiguous_total",
        "ambiguous",
        "Deliveries stored although a message with the same content may have been acknowledged.",
    ),
    _field(
        "id_reused_total",
        "id_reused",
        "Deliveries stored although their id was known, because their content differs.",
    ),
    _field("acks_permitted_total", "permitted", "Acknowledgements permitted."),
    _field(
        "acks_rejected_total",
        "rejected",
        "Permitted acknowledgements that are rejections at the remote broker.",
    ),
    _field("acks_proven_total", "proven", "Acknowledgements proven."),
    _field(
        "window_messages",
        "report.window_messages",
        "Highest number of unsettled messages that the link's process takes; 0 if not known.",
    ),
    _field(
        "reconnects",
        "report.reconnects",
        "Times that the link's process reconnected to the remote broker.",
    ),
    _field(
        "renewals",
        "report.renewals",
        "Times that the link's process returned held messages to the remote broker and took them "
        "again.",
    ),
    LinkFigure(
        "lives_left",
        "Deliveries left before the remote delivery limit, of the message that has the fewest; -1 "
        "without a limit.",
        _lives_left,
        _fewest,
    ),
)


def together(links: Iterable[pb.LinkInfo]) -> Iterator[Metric]:
    """The metrics of all links together."""
    found = [*links]
    yield GaugeMetricFamily("ackq_links", "Links from remote brokers.", len(found))
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
    about = InfoMetricFamily(
        "ackq_link",
        "Source and queue of a link, the host that runs it, and what limits it.",
        labels=names,
    )
    for link in found:
        said = link.report.limited_by
        limited = said if said in _LIMITS else "other"
        about.add_metric([link.link, link.queue, link.source, link.holder.host, limited], {})
    yield about
