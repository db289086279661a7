"""The driver's end of a session: opens, advances and replays it, and shows a live holder.

One `Lessee` lives in the reader process of one running query. Its holder token is random, so a
second process that names the same session is another holder (S3), and the tags of a lease are asked
for once and remembered.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ackq import client
from ackq.errors import (
    AckqError,
    CheckpointMismatchError,
    HistoryChangedError,
    SessionNotFoundError,
)
from ackq.spark.options.options import SourceOptions
from ackq.spark.source.offset import OPENING, Offset
from ackq.spark.source.partitions import Piece
from ackq.v1 import sessions_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ackq.client import Hold, Session

_log: Final = logging.getLogger("ackq.spark")

# From so many attaches on, a lease looks like one that its query cannot get through (S8).
_ATTACHES_TO_REPORT: Final = 3
_LOST: Final = (SessionNotFoundError, HistoryChangedError)


@dataclass(frozen=True, slots=True)
class Admission:
    """What one micro-batch may take (K5, K6); a 0 means no bound.

    Attributes:
        wait_ms: How long to wait for a first message instead of being asked again at once.
        horizon: Only what was ready at or before this journal sequence.
        open_and_lease: Lease in the opening call too, for a trigger that calls only once.
    """

    max_messages: int
    max_bytes: int
    min_messages: int = 0
    max_delay_ms: int = 0
    wait_ms: int = 0
    horizon: int = 0
    open_and_lease: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """The outstanding lease: the tags (start_tag, end_tag], and where they can be cut."""

    session: str
    incarnation: str
    epoch: int
    start_tag: int
    end_tag: int
    pieces: tuple[Piece, ...]


class Lessee:
    """Speaks for one query.

    Args:
        options: What to read.
        session: The client; it retries a broker that is away, and a session still held after a host
            was lost.
        find: Gives a session by name as the broker records it.

    Attributes:
        backlog: What waits, as the last advance saw it.
        attaches: How often readers have attached to the outstanding lease.
        warning: What to tell of a lease that its query seems unable to get through (S8), or "".
    """

    def __init__(
        self, options: SourceOptions, session: Session, find: Callable[[str], pb.SessionInfo]
    ) -> None:
        self._options = options
        self._session = session
        self._find = find
        self._holder = client.holder("spark")
        self._hold: Hold | None = None
        self._held: tuple[str, int] | None = None
        self._lease: Lease | None = None
        self._told_others = False
        self.backlog: pb.Backlog | None = None
        self.attaches = 0
        self.warning = ""

    def advance(self, start: Offset, admission: Admission) -> Offset:
        """Accepts everything up to `start` and leases what comes next (S4); opens a session (S9).

        Returns:
            The end of the outstanding lease; `start` when there is none.

        Raises:
            CheckpointMismatchError: The checkpoint does not fit the session, the queues or the
                broker.
            AlreadyHeldError, FencedError: Another reader has the session (S3).
            SessionNotFoundError, HistoryChangedError: The broker lost it, and `failOnDataLoss` is
                on.
            AckqError: Whatever else the broker refuses; BrokerUnavailableError when it does not
                answer.
        """
        self._check(start)
        self._check_queues(start)
        try:
            answer = self._session.advance(self._request(start, admission))
        except _LOST as error:
            if start.is_opening or self._options.fail_on_data_loss:
                raise
            _log.warning("%s failOnDataLoss is off: a new session is opened.", error)
            start = OPENING
            answer = self._session.advance(self._request(start, admission))
        self._keep(
            Lease(
                session=answer.session,
                incarnation=answer.incarnation,
                epoch=answer.epoch,
                start_tag=start.tag,
                end_tag=answer.end_tag,
                pieces=_pieces(start.tag, answer.chunks),
            ),
            answer.attaches,
        )
        self.backlog = answer.backlog
        self._warn(answer)
        return Offset(answer.session, answer.incarnation, answer.end_tag)

    def lease(self, start: Offset, end: Offset) -> Lease | None:
        """The lease of the batch from `start` to `end`; after a restart, by attaching for a replay.

        Returns:
            None when the broker lost the session and `failOnDataLoss` is off: nothing is left to
            replay.

        Raises:
            As `advance`.
        """
        after = start.tag if start.incarnation == end.incarnation else 0
        lease = self._lease
        if (
            lease is not None
            and lease.incarnation == end.incarnation
            and (lease.start_tag, lease.end_tag) == (after, end.tag)
        ):
            return lease
        self._check(end)
        self._check_queues(end)
        try:
            answer = self._session.attach(
                pb.AttachRequest(
                    session=end.session,
                    incarnation=end.incarnation,
                    holder=self._holder,
                    start_tag=after,
                    end_tag=end.tag,
                )
            )
        except _LOST as error:
            if self._options.fail_on_data_loss:
                raise
            _log.warning(
                "%s failOnDataLoss is off: the batch is run again without its rows.", error
            )
            return None
        lease = Lease(
            session=end.session,
            incarnation=end.incarnation,
            epoch=answer.epoch,
            start_tag=after,
            end_tag=end.tag,
            pieces=_pieces(after, answer.chunks),
        )
        self._keep(lease, answer.attaches)
        _log_all(answer.warnings)
        return lease

    def close(self) -> None:
        """Ends the liveness stream. Nothing depends on it: a killed process ends it as well."""
        if self._hold is not None:
            self._hold.close()
            self._hold = None

    def _request(self, start: Offset, admission: Admission) -> pb.AdvanceRequest:
        return pb.AdvanceRequest(
            session=start.session or self._options.session,
            incarnation=start.incarnation,
            holder=self._holder,
            queues=self._options.queues,
            queue_pattern=self._options.queue_pattern,
            session_timeout_ms=self._options.session_timeout_ms,
            start_tag=start.tag,
            max_messages=admission.max_messages,
            max_bytes=admission.max_bytes,
            min_messages=admission.min_messages,
            max_delay_ms=admission.max_delay_ms,
            wait_ms=admission.wait_ms,
            horizon=admission.horizon,
            open_and_lease=admission.open_and_lease,
            takeover=start.is_opening and self._options.takeover,
        )

    def _check(self, start: Offset) -> None:
        """Refuses a checkpoint of another session, and a session that another holder took."""
        named = self._options.session
        if named and start.session and named != start.session:
            raise CheckpointMismatchError(
                f"The checkpoint belongs to session '{start.session}', the option 'session' names"
                f" '{named}'. Set the option to the checkpoint's session, or give this query a"
                " checkpoint location of its own.",
                checkpoint_session=start.session,
                session=named,
            )
        fenced: AckqError | None = self._hold.fenced if self._hold is not None else None
        # A session that is gone is for the next call to find out, which knows what to do then.
        if fenced is not None and not isinstance(fenced, _LOST):
            raise fenced

    def _check_queues(self, start: Offset) -> None:
        """Refuses, before this process's first step, a checkpoint of other queues (S10).

        The broker knows only whether a lease would be left behind, so without one the query would
        go on with the other queue under the session of the first.
        """
        if start.is_opening or self._lease is not None:
            return
        try:
            found = self._find(start.session)
        except _LOST:
            return  # for the next call to find out
        known = found.queues if found.incarnation == start.incarnation else ()
        if known and not any(self._reads(queue) for queue in known):
            raise CheckpointMismatchError(
                f"The checkpoint belongs to a query of {_quoted(known)} (session"
                f" '{start.session}'); this one reads {self._wanted()}. Give this"
                " query a checkpoint location of its own; to change a query's queues, name old and"
                " new together first.",
                session=start.session,
                queue=known[0],
            )

    def _reads(self, queue: str) -> bool:
        """Whether the options name a queue."""
        pattern = self._options.queue_pattern
        return _matches(pattern, queue) if pattern else queue in self._options.queues

    def _wanted(self) -> str:
        """What the options name, in words."""
        pattern = self._options.queue_pattern
        return f"queues like '{pattern}'" if pattern else _quoted(self._options.queues)

    def _keep(self, lease: Lease, attaches: int) -> None:
        """Remembers the lease and holds its session under its epoch."""
        self._lease, self.attaches = lease, attaches
        stuck = attaches >= _ATTACHES_TO_REPORT and lease.end_tag > lease.start_tag
        warning = _stuck(lease, attaches) if stuck else ""
        if warning and warning != self.warning:
            _log.warning("%s", warning)
        self.warning = warning
        held = (lease.incarnation, lease.epoch)
        if held != self._held:
            self.close()
            self._hold = self._session.hold(
                lease.session, lease.incarnation, lease.epoch, self._holder.token
            )
            self._held = held

    def _warn(self, answer: pb.AdvanceResponse) -> None:
        _log_all(answer.warnings)
        if answer.other_sessions and not self._told_others:
            self._told_others = True
            _log.warning(
                "Other sessions read from %s too: %s. Queries on one queue share its messages.",
                self._wanted(),
                ", ".join(answer.other_sessions),
            )


def _log_all(warnings: Iterable[str]) -> None:
    for warning in warnings:
        _log.warning("%s", warning)


def _stuck(lease: Lease, attaches: int) -> str:
    """What to do about a lease that was attached again and again."""
    first, last, name = lease.start_tag + 1, lease.end_tag, lease.session
    return (
        f"The lease of tags {first} to {last} of session '{name}' has been attached {attaches}"
        " times and never finished. If a message in it breaks the query, find it with `ackq session"
        f" lease {name} --tags {first}-{last}`, end the query, and take it out of the batch with"
        f" `ackq session reject {name} --tags N --reason WHY`; the checkpoint stays as it is."
    )


def _matches(pattern: str, queue: str) -> bool:
    """Whether a queue's name fits a pattern of `*` and `?`, as the broker sees it."""
    parts = {"*": ".*", "?": "."}
    regex = "".join(parts.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch(regex, queue, re.DOTALL) is not None


def _quoted(queues: Iterable[str]) -> str:
    return "queue " + ", ".join(f"'{queue}'" for queue in queues)


def _pieces(start_tag: int, chunks: Iterable[pb.LeaseChunk]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for chunk in chunks:
        pieces.append(Piece(start_tag, chunk.last_tag, chunk.payload_bytes))
        start_tag = chunk.last_tag
    return tuple(pieces)
