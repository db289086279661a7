"""The edges of a query, one broker or several: drives their sessions together (S12).

Invariant: an edge's place changes only by an answer of this edge. A call that fails for one edge
may have succeeded at others; it is repeated as it was, since each step is idempotent (S4).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Final, TypeVar

from ackq.client.connection.broker import Broker
from ackq.client.connection.retry import exhausted
from ackq.errors import (
    AckqError,
    BrokerUnavailableError,
    CheckpointMismatchError,
    InvalidArgumentError,
    QueueNotFoundError,
)
from ackq.spark import connections
from ackq.spark.options.options import SourceOptions
from ackq.spark.source.lease import (
    LOST,
    NO_LEASE,
    OutstandingLease,
    ReadLimits,
    SessionDriver,
)
from ackq.spark.source.offset import OPENING, Offset, Offsets

if TYPE_CHECKING:
    from ackq.client import Session
    from ackq.info import SessionInfo

T = TypeVar("T")
_log: Final = logging.getLogger("ackq.spark")
# How long one of several edges is waited for, before the next one is.
_TURN_MS: Final = 1_000
# Before an edge that answers, but not the call, is called again.
_PAUSE_S: Final = 0.1


class Edges:
    """Drives the sessions of one query, with one `SessionDriver` for each edge.

    Args:
        options: The source's options.
        connect: Returns the client of a broker.
        find: Returns a session by name, as recorded by the broker.
        subscribe: Declares and binds the queue of a subscription at a broker.

    Attributes:
        drivers: The driver of each edge that was called, by endpoint.
        away: The edges that did not answer their last call.
    """

    def __init__(
        self,
        options: SourceOptions,
        connect: Callable[[Broker], Session],
        find: Callable[[Broker, str], SessionInfo],
        subscribe: Callable[[SourceOptions, Broker], None],
    ) -> None:
        self._options = options
        self._connect = connect
        self._find = find
        self._subscribe = subscribe
        self._names = options.endpoints
        self._skips = options.skip_away
        self._horizons: dict[str, int] | None = None
        # Places of edges in planned batches without rows of them, and the number of batches.
        self._unreported: dict[str, tuple[Offset, int]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._given_up: set[str] = set()  # removed, with a batch that was run without their rows
        self.drivers: dict[str, SessionDriver] = {}
        self.away: set[str] = set()

    @property
    def is_bounded(self) -> bool:
        """Whether `bound` was called."""
        return self._horizons is not None

    def bound(self) -> None:
        """Bounds the run to the messages that are ready now (K5)."""
        self._horizons = self._until_one(
            self._names,
            lambda: self._each(
                self._names, lambda name: self._connect(self._broker(name)).horizon()
            ),
        )

    def advance(self, start: Offsets, limits: ReadLimits) -> Offsets:
        """Accepts up to `start` at each edge and leases the next messages.

        Returns:
            The ends of the outstanding leases; the place in `start` at an edge without one.

        Raises:
            CheckpointMismatchError: An edge that is no longer named has messages.
            BrokerUnavailableError: An edge does not answer; with `onEdgeAway=skip`, none does, or
                one at an opening with `startFrom`.
            AckqError: As `SessionDriver.advance`.
        """
        if not start.is_opening:
            # An edge that joins a checkpoint reads its queue.
            self._options = replace(self._options, start_from=None)
        self._skips = self._options.skip_away and self._options.start_from is None
        if self._options.skip_away and not self._skips:
            self._await_all()
        places = dict(start.places)
        self._remove(places)
        ends = places
        # The first call does not wait, as one edge may have messages and another none.
        for wait_ms in (0, limits.wait_ms) if len(self._names) > 1 else (limits.wait_ms,):
            try:
                ends = {**places, **self._advance(places, replace(limits, wait_ms=wait_ms))}
            except AckqError:
                if limits.open_and_lease:
                    self._give_back()
                raise
            if ends != places or not limits.wait_ms:
                break
        opened = (end.incarnation != start.at(name).incarnation for name, end in ends.items())
        if self._horizons is not None and any(opened):
            # An opening requeues the lease of the incarnation it replaces: ready only since then.
            self.bound()
        return Offsets(ends)

    def lease(self, name: str, start: Offset, end: Offset) -> OutstandingLease | None:
        """The lease of an edge in a batch, for which an edge that is away is waited for.

        Returns:
            As `SessionDriver.lease`; None for a removed edge that is lost or away, too, if
            `failOnDataLoss` is off.

        Raises:
            AckqError: As `SessionDriver.lease`.
        """
        call = partial(self._called, name, lambda: self._driver(name).lease(start, end))
        try:
            return call()
        except (*LOST, BrokerUnavailableError) as error:
            if name not in self._names and not self._options.fail_on_data_loss:
                _log.warning(
                    "%s failOnDataLoss is off: the batch is run again without the rows of edge %s.",
                    error,
                    name,
                )
                self._given_up.add(name)
                return None
            if isinstance(error, LOST) or not self._options.skip_away:
                raise
            connections.wait_ready(self._options.at(name))
            return call()

    def plan_empty(self, unchanged: Mapping[str, Offset]) -> None:
        """Reports that Spark planned a batch to the edges that have no rows in it (S11).

        Raises:
            AckqError: As `SessionDriver.plan_empty`.
        """
        for name, place in unchanged.items():
            before = self._unreported.get(name, (place, 0))[1]
            self._unreported[name] = place, before + 1
        self._report()

    def close(self) -> None:
        """Ends the liveness streams early, and the threads."""
        for driver in self.drivers.values():
            driver.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    def _advance(self, places: Mapping[str, Offset], limits: ReadLimits) -> dict[str, Offset]:
        """The new places; an edge that was away when the run was bounded is not read in it."""
        horizons = dict.fromkeys(self._names, 0) if self._horizons is None else self._horizons
        share = _share(limits, len(self._names))

        def advance(name: str) -> Offset:
            bounded = replace(share, horizon=horizons[name])
            place, driver = places.get(name, OPENING), self._driver(name)
            if place.is_opening:
                self._check_distinct(name, places)
            try:
                return driver.advance(place, bounded)
            except BrokerUnavailableError:
                unnamed = place.is_opening and not self._options.session
                if not (self._skips and unnamed and limits.open_and_lease):
                    raise
                # Trigger.Once calls once: of an answer that was lost, no checkpoint has the lease.
                connections.wait_ready(self._options.at(name))
                return driver.advance(place, bounded)

        def advance_reported() -> dict[str, Offset]:
            self._report()
            return self._each([name for name in horizons if name not in self._unreported], advance)

        return self._until_one(list(horizons), advance_reported)

    def _check_distinct(self, name: str, places: Mapping[str, Offset]) -> None:
        """Refuses a second name of an edge: its opening would replace the session of the place."""
        if not (places and self._options.session):
            return
        with suppress(*LOST):
            found = self._find(self._broker(name), self._options.session).incarnation
            for other, place in places.items():
                if place.incarnation == found:
                    raise InvalidArgumentError(
                        f"The endpoints {other} and {name} are one broker. Name it once.",
                        endpoint=name,
                    )

    def _give_back(self) -> None:
        """Puts back what openings leased; an edge that does not answer now keeps its lease."""
        for driver in self.drivers.values():
            with suppress(AckqError):
                driver.give_back()

    def _await_all(self) -> None:
        """Waits for each edge: what one has retained is read again with its opening alone (S14)."""
        for name in self._names:
            connections.wait_ready(self._options.at(name))
        if self._horizons is not None and len(self._horizons) < len(self._names):
            self.bound()

    def _report(self) -> None:
        """Reports planned batches; an edge that is skipped stays unreported and leases nothing."""

        def report(name: str) -> None:
            driver, (place, batches) = self._driver(name), self._unreported[name]
            try:
                if not driver.is_attached or not place.tag:  # at tag 0 a successor may answer (S9)
                    held = driver.advance(place, NO_LEASE, reopen=False)
                    place = replace(place, incarnation=held.incarnation)
                driver.plan_empty(place, batches)
            except LOST:  # the next advance opens another session
                if self._options.fail_on_data_loss:
                    raise

        for name in self._each(list(self._unreported), report):
            del self._unreported[name]

    def _until_one(self, names: Sequence[str], attempt: Callable[[], dict[str, T]]) -> dict[str, T]:
        """The answers of an attempt, repeated until an edge has answered; waits for any of `names`.

        Raises:
            AckqError: As the attempt; BrokerUnavailableError if all edges stay away.
        """
        while not (found := attempt()):
            self._await_one(names)
            time.sleep(_PAUSE_S)
        return found

    def _each(self, names: Sequence[str], call: Callable[[str], T]) -> dict[str, T]:
        """Calls edges at once; their answers, without those that are skipped as they are away."""
        if len(self._names) == 1:
            return {name: call(name) for name in names}
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(self._names), "ackq-edge")
        futures = {
            name: self._pool.submit(self._called, name, partial(call, name)) for name in names
        }
        errors = {name: error for name, each in futures.items() if (error := each.exception())}
        for error in errors.values():
            if not (self._skips and isinstance(error, BrokerUnavailableError)):
                raise error
        for name, error in errors.items():
            if name not in self.away:
                _log.warning("Edge %s is skipped until it answers: %s", name, error)
        self.away = (self.away - futures.keys()) | errors.keys()
        return {name: each.result() for name, each in futures.items() if name not in errors}

    def _await_one(self, names: Sequence[str]) -> None:
        """Waits until one of the edges answers, up to `retryTimeout`; the error names all."""
        started = time.monotonic()
        for name in cycle(names):
            broker = self._options.at(name)
            assert broker.retry_ms is not None, "an option of Spark is a bound"
            try:
                connections.wait_ready(replace(broker, retry_ms=min(_TURN_MS, broker.retry_ms)))
            except BrokerUnavailableError as error:
                if (time.monotonic() - started) * 1000 >= broker.retry_ms:
                    raise exhausted(", ".join(names), error, broker.retry_ms) from error
            else:
                return

    def _called(self, name: str, call: Callable[[], T]) -> T:
        """Calls an edge; with several an error names it."""
        try:
            return call()
        except AckqError as error:
            if len(self._names) > 1 and not isinstance(error, BrokerUnavailableError):
                error.message = f"Edge {name}: {error.message}"
            raise

    def _driver(self, name: str) -> SessionDriver:
        if name not in self.drivers:
            broker, options = self._broker(name), self._options
            if name not in self._names:
                options = replace(options, fail_on_data_loss=True)  # never opened again
            self.drivers[name] = SessionDriver(
                options,
                self._connect(broker),
                partial(self._find, broker),
                partial(self._subscribe, options, broker),
            )
        return self.drivers[name]

    def _broker(self, name: str) -> Broker:
        """A named edge, or one of the checkpoint's; without retries where it may be skipped."""
        broker = self._options.at(name)
        skipped = self._options.skip_away and name in self._names
        return replace(broker, retry_ms=0) if skipped else broker

    def _remove(self, places: dict[str, Offset]) -> None:
        """Removes the places of edges that are no longer named, or moves them to a new name."""
        for name in places.keys() - set(self._names):
            present, place = self.present_name(name, places), places.pop(name)
            if present != name:
                places[present] = place
            else:
                self._let_go(name, place)

    def present_name(self, name: str, places: Mapping[str, Offset]) -> str:
        """The endpoint at which an edge of the checkpoint is named now; itself, if it is removed.

        Args:
            name: The endpoint in the checkpoint.
            places: The checkpoint's places; an edge is known by its session.

        Raises:
            BrokerUnavailableError: A new edge does not answer, also with `onEdgeAway=skip`: it may
                be this one under another address.
        """
        if name in self._names:
            return name
        new = (each for each in self._names if each not in places)
        return next((each for each in new if self._has(each, places[name])), name)

    def _has(self, name: str, place: Offset) -> bool:
        try:
            found = self._find(self._options.at(name), place.session)
        except LOST:
            return False
        return found.incarnation == place.incarnation

    def _let_go(self, name: str, place: Offset) -> None:
        """Accepts the last batch of an edge that is no longer named, if it has no other messages.

        Raises:
            CheckpointMismatchError: It has messages, or does not answer.
        """
        if name in self._given_up:
            return  # it may be back, and would accept what the batch did not read
        driver = self._driver(name)
        try:
            end = driver.advance(place, NO_LEASE)
            left = end.tag - place.tag + connections.messages_left(self._broker(name), end.session)
            why = f"has {left} messages in the queues that this query reads"
        except (*LOST, BrokerUnavailableError, QueueNotFoundError) as error:
            left, why = 1, f"does not show that it has no messages: {error}"
            # One that answers may have messages in its other queues.
            answers = isinstance(error, QueueNotFoundError)
            if not (self._options.fail_on_data_loss or answers):
                _log.warning("Edge %s is removed. failOnDataLoss is off, and it %s", name, why)
                left = 0
        finally:
            driver.close()
        if left:
            raise CheckpointMismatchError(
                f"Edge {name} is in the checkpoint, the option 'endpoint' does not name it, and it"
                f" {why}. Name it again until it is empty: run the query with"
                " trigger(availableNow=True) while nothing publishes there, and remove it then."
                " With failOnDataLoss=false an edge that is lost can be removed.",
                endpoint=name,
            )


def _share(limits: ReadLimits, edges: int) -> ReadLimits:
    """The limits of one edge among several; a limit of 0 means none."""
    return replace(
        limits,
        max_messages=-(-limits.max_messages // edges),
        max_bytes=-(-limits.max_bytes // edges),
        min_messages=-(-limits.min_messages // edges),
    )
