"""The driver's side of a session: opens, advances and replays its lease, and keeps it alive.

One `SessionDriver` lives in the reader process of one running query. Its holder token is random, so
a second process that names the same session is another holder (S3). The outstanding lease is cached
for `partitions`.
"""

from __future__ import annotations

import logging
import re
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ackq import client, limits
from ackq.errors import (
    AckqError,
    CheckpointMismatchError,
    HistoryChangedError,
    SessionNotFoundError,
)
from ackq.spark.options.options import SourceOptions
from ackq.spark.source.offset import OPENING, Offset
from ackq.spark.source.partitions import SizedSpan
from ackq.v1 import sessions_pb2 as pb
from ackq.wire.answers import copied
from ackq.wire.fetch_key import fetch_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ackq.client import LivenessStream, Session
    from ackq.info import SessionInfo

_log: Final = logging.getLogger("ackq.spark")

# Number of attaches of one lease from which on its query is reported as stuck (S8).
_ATTACHES_TO_REPORT: Final = 3
LOST: Final = (SessionNotFoundError, HistoryChangedError)


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of one micro-batch (K5, K6); 0 means none.

    Attributes:
        wait_ms: Maximum wait for a first message (long poll).
        horizon: Lease only messages that were ready at or before this journal sequence.
        open_and_lease: Any opening leases, for a trigger that calls only once.
    """

    max_messages: int
    max_bytes: int
    min_messages: int = 0
    max_delay_ms: int = 0
    wait_ms: int = 0
    horizon: int = 0
    open_and_lease: bool = False


# Accepts and leases nothing: no message is as old as the journal.
NO_LEASE: Final = ReadLimits(max_messages=1, max_bytes=1, horizon=1)


@dataclass(frozen=True, slots=True)
class OutstandingLease:
    """The outstanding lease: tags (start_tag, end_tag], with the blocks that they lie in.

    `key` is the key that its tasks fetch with (A4).
    """

    session: str
    incarnation: str
    epoch: int
    start_tag: int
    end_tag: int
    spans: tuple[SizedSpan, ...]
    key: bytes = field(repr=False)


class SessionDriver:
    """Drives the session of one query.

    Args:
        options: The source's options.
        session: The client; it retries while the broker is unavailable, and while a lost host still
            holds the session.
        find: Returns a session by name, as recorded by the broker.
        subscribe: Declares and binds the queue of a subscription (S10).

    Attributes:
        backlog: Backlog of the queues at the last advance.
        session: The session's name, as recorded by the broker.
        lease_bytes: Payload of the outstanding lease.
        attaches: Number of attaches to the outstanding lease.
        warning: Text about a lease that its query seems unable to finish (S8), or "".
    """

    def __init__(
        self,
        options: SourceOptions,
        session: Session,
        find: Callable[[str], SessionInfo],
        subscribe: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._session = session
        self._find = find
        self._subscribe = subscribe
        self._holder = client.holder("spark")
        # An opening is repeated on its session, also by a later call (S9).
        self._anonymous, self._lost = _anonymous(), ""
        self._run_empty = ""  # incarnation whose batch was run again without its rows
        self._hold: LivenessStream | None = None
        self._held: tuple[str, int] | None = None
        self._lease: OutstandingLease | None = None
        self._planned = 0  # batches without rows, in the present epoch
        self._warned_of_others = False
        self.backlog: pb.Backlog | None = None
        self.session = ""
        self.lease_bytes = 0
        self.attaches = 0
        self.warning = ""

    def advance(self, start: Offset, limits: ReadLimits, *, reopen: bool = True) -> Offset:
        """Accepts everything up to `start` and leases the next messages (S4); opens a session (S9).

        Args:
            start: The place that the checkpoint has.
            limits: The limits of the lease.
            reopen: Whether a lost session is opened again, if `failOnDataLoss` is off.

        Returns:
            The end of the outstanding lease; `start` when there is none.

        Raises:
            CheckpointMismatchError: The checkpoint does not fit the session, the queues or the
                broker.
            AlreadyHeldError, FencedError: Another reader has the session (S3).
            SessionNotFoundError, HistoryChangedError: The broker lost the session, and it is not
                opened again.
            UnreadLeaseError: No task has read the batch, and `unreadBatch` is not "accept".
            AckqError: The broker refuses otherwise; BrokerUnavailableError if it does not answer.
        """
        if not start.is_opening:
            # With a checkpoint `startFrom` has no effect, also if its session is lost (K15).
            self._options = replace(self._options, start_from=None)
        self._check(start)
        self._check_queues(start)
        try:
            if start.incarnation and start.incarnation == self._run_empty:
                # It may be back, and would accept what the batch did not read.
                raise SessionNotFoundError(f"The session '{start.session}' was lost.")
            answer = self._advance(start, limits)
        except LOST as error:
            if start.is_opening or self._options.fail_on_data_loss or not reopen:
                raise
            _log.warning("%s failOnDataLoss is off: a new session is opened.", error)
            self._rename(start.incarnation)
            start = OPENING
            answer = self._advance(start, limits)
        self._keep(
            copied(
                OutstandingLease,
                answer,
                start_tag=start.tag,
                spans=_spans(start.tag, answer.chunks),
                key=fetch_key(self._holder.token, answer.incarnation, answer.epoch),
            ),
            answer.attaches,
        )
        self.backlog, self.session = answer.backlog, answer.session
        self.lease_bytes = sum(chunk.payload_bytes for chunk in answer.chunks)
        self._warn(answer)
        return Offset(answer.session, answer.incarnation, answer.end_tag)

    def lease(self, start: Offset, end: Offset) -> OutstandingLease | None:
        """The lease of the batch from `start` to `end`; after a restart, attached for a replay.

        Returns:
            None if the broker lost the session, `failOnDataLoss` is off, and the broker opens
            another: nothing to replay.

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
        except LOST as error:
            if not end.tag:
                return None  # nothing was leased under it; the next advance opens it again (S9)
            if self._options.fail_on_data_loss:
                raise
            # A wrong or empty broker refuses this, and so does one that has the lease (S9).
            self._options = replace(self._options, start_from=None)
            self._rename(end.incarnation)
            self._advance(OPENING, NO_LEASE)
            self._run_empty = end.incarnation
            _log.warning(
                "%s failOnDataLoss is off: the batch is run again without its rows.", error
            )
            return None
        lease = OutstandingLease(
            session=end.session,
            incarnation=end.incarnation,
            epoch=answer.epoch,
            start_tag=after,
            end_tag=end.tag,
            spans=_spans(after, answer.chunks),
            key=fetch_key(self._holder.token, end.incarnation, answer.epoch),
        )
        self._keep(lease, answer.attaches)
        _log_all(answer.warnings)
        return lease

    @property
    def is_attached(self) -> bool:
        """Whether the session has this process as its holder, as far as its answers show."""
        return self._held is not None

    def plan_empty(self, start: Offset, batches: int = 1) -> None:
        """Reports that Spark planned batches from `start` to `start`: without rows (S11).

        No task of this source runs for such a batch, and a sink may record its id. The report is on
        the broker's disk when this returns, which is before Spark runs the batch.

        Raises:
            FencedError: Another reader has the session.
            AckqError: As `advance`.
        """
        planned = self._planned + batches
        self._session.attach(
            pb.AttachRequest(
                session=start.session,
                incarnation=start.incarnation,
                holder=self._holder,
                start_tag=start.tag,
                end_tag=start.tag,
                planned=planned,
            )
        )
        self._planned = planned

    def give_back(self) -> None:
        """Puts back what an opening without a session's name leased: no checkpoint has it (S9)."""
        if self.session == self._anonymous:
            self._advance(OPENING, NO_LEASE)

    def close(self) -> None:
        """Ends the liveness stream; the end of the process does so as well."""
        if self._hold is not None:
            self._hold.close()
            self._hold = None

    def _rename(self, lost: str) -> None:
        """Names the opening after a loss: the lost incarnation may be back, with its lease."""
        if lost != self._lost:  # else it is repeated
            self._lost, self._anonymous = lost, _anonymous()

    def _advance(self, start: Offset, limits: ReadLimits) -> pb.AdvanceResponse:
        if start.is_opening and self._options.exchange:
            self._subscribe()
        return self._session.advance(self._request(start, limits))

    def _request(self, start: Offset, limits: ReadLimits) -> pb.AdvanceRequest:
        begin = self._options.start_from
        return copied(
            pb.AdvanceRequest,
            limits,
            session=start.session or self._options.session or self._anonymous,
            incarnation=start.incarnation,
            holder=self._holder,
            queues=self._options.queues,
            queue_pattern=self._options.queue_pattern,
            session_timeout_ms=self._options.session_timeout_ms,
            retain_ms=self._options.retain_ms,
            retain_bytes=self._options.retain_bytes,
            start_tag=start.tag,
            takeover=start.is_opening and self._options.takeover,
            rewind=pb.RewindPoint(**begin._asdict()) if start.is_opening and begin else None,
            # A session without a name of its own is known by its checkpoint alone, once that is
            # written: its opening leases nothing.
            open_and_lease=limits.open_and_lease
            or (start.is_opening and bool(self._options.session)),
            refuse_unread=not self._options.accept_unread,
        )

    def _check(self, start: Offset) -> None:
        """Refuses a checkpoint of another session, and a session taken over by another holder."""
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
        # A lost session is left to the next call, which handles it.
        if fenced is not None and not isinstance(fenced, LOST):
            raise fenced

    def _check_queues(self, start: Offset) -> None:
        """Refuses, before this process's first call, a checkpoint of other queues (S10).

        The broker notices other queues only if it has a lease of the old ones; without one the
        query would continue with the new queue under the session of the old one.
        """
        if start.is_opening or self._lease is not None:
            return
        try:
            found = self._find(start.session)
        except LOST:
            return  # left to the next call
        known = found.queues if found.incarnation == start.incarnation else ()
        if known and not any(self._reads(queue) for queue in known):
            raise CheckpointMismatchError(
                f"The checkpoint belongs to a query of {_quoted(known)} (session"
                f" '{start.session}'); this one reads {self._wanted()}. Give this"
                " query a checkpoint location of its own; to change a query's queues, first"
                " name the old and the new ones together.",
                session=start.session,
                queue=known[0],
            )

    def _reads(self, queue: str) -> bool:
        """Whether the options name a queue."""
        pattern = self._options.queue_pattern
        return _matches(pattern, queue) if pattern else queue in self._options.queues

    def _wanted(self) -> str:
        """The queues of the options, in words."""
        pattern = self._options.queue_pattern
        return f"queues like '{pattern}'" if pattern else _quoted(self._options.queues)

    def _keep(self, lease: OutstandingLease, attaches: int) -> None:
        """Caches the lease and keeps a liveness stream under its epoch."""
        self._lease, self.attaches = lease, attaches
        stuck = attaches >= _ATTACHES_TO_REPORT and lease.end_tag > lease.start_tag
        warning = _stuck(lease, attaches) if stuck else ""
        if warning and warning != self.warning:
            _log.warning("%s", warning)
        self.warning = warning
        held = (lease.incarnation, lease.epoch)
        if held != self._held:
            self._planned = 0
            self.close()
            self._hold = self._session.hold(
                lease.session, lease.incarnation, lease.epoch, self._holder.token
            )
            self._held = held

    def _warn(self, answer: pb.AdvanceResponse) -> None:
        _log_all(answer.warnings)
        if answer.other_sessions and not self._warned_of_others:
            self._warned_of_others = True
            _log.warning(
                "Other sessions read from %s too: %s. Queries on one queue share its messages.",
                self._wanted(),
                ", ".join(answer.other_sessions),
            )


def _anonymous() -> str:
    return f"{limits.ANONYMOUS_PREFIX}{secrets.token_hex(16)}"


def _log_all(warnings: Iterable[str]) -> None:
    for warning in warnings:
        _log.warning("%s", warning)


def _stuck(lease: OutstandingLease, attaches: int) -> str:
    """The warning about a lease that was attached repeatedly (S8)."""
    first, last, name = lease.start_tag + 1, lease.end_tag, lease.session
    return (
        f"The lease of tags {first} to {last} of session '{name}' has been attached {attaches}"
        " times and never finished. If a message in it breaks the query, find it with `ackq session"
        f" lease {name} --tags {first}-{last}`, end the query, and take it out of the batch with"
        f" `ackq session reject {name} --tags N --reason WHY`; the checkpoint stays as it is."
    )


def _matches(pattern: str, queue: str) -> bool:
    """Whether a queue's name matches a pattern of `*` and `?`, by the broker's rules (S10)."""
    parts = {"*": ".*", "?": "."}
    regex = "".join(parts.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch(regex, queue, re.DOTALL) is not None


def _quoted(queues: Iterable[str]) -> str:
    return "queue " + ", ".join(f"'{queue}'" for queue in queues)


def _spans(start_tag: int, chunks: Iterable[pb.LeaseChunk]) -> tuple[SizedSpan, ...]:
    spans: list[SizedSpan] = []
    for chunk in chunks:
        spans.append(SizedSpan(start_tag, chunk.last_tag, chunk.payload_bytes))
        start_tag = chunk.last_tag
    return tuple(spans)
