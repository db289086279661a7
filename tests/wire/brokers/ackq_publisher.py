"""A publisher's stream in the ackq protocol."""

from __future__ import annotations

import secrets
from typing import Any

from ackq.v1 import messages_pb2, publishing_pb2
from ackq.wire import block
from tests.wire.brokers import streams
from tests.wire.brokers.ackq_stream import Stream
from tests.wire.brokers.dialect import Message, Mode, Publisher, Refused
from tests.wire.brokers.streams import Answers, EventLog, Finished

_MODES = {
    Mode.CONFIRM: publishing_pb2.PUBLISH_MODE_CONFIRM,
    Mode.TRANSACTION: publishing_pb2.PUBLISH_MODE_TRANSACTION,
}


class AckqPublisher(Publisher):
    """A publisher's stream.

    Attributes:
        identity: Its id.
        opened: The broker's answer to the open, once received.
        answers: The later answers.
        probed: Answers to probes.

    Args:
        stub: Of PublishingService.
        mode: Confirm or transaction (P1).
        identity: Of a publisher that had a stream before; None: a new one.
        resume: Whether the open asks to resume.
        window_messages: As announced to the broker (P11).
    """

    def __init__(self, stub, mode, identity=None, *, resume=False, window_messages=0):
        self.identity = identity or secrets.token_bytes(16)
        self.mode = mode
        self.opened: publishing_pb2.PublishOpened | None = None
        self.answers = Answers()
        self.probed: EventLog[list[tuple[int, int]]] = EventLog()
        self._stub = stub
        self._next = 1
        self._transaction = b""
        self._in_transaction = 0
        opening = {"resume": resume, "window_messages": window_messages, "label": "conformance"}
        opening |= {"publisher_id": self.identity, "mode": _MODES[mode]}
        header = publishing_pb2.PublishHeader(lowest_unanswered=1, open=opening)
        self._stream = Stream(
            stub.Publish, publishing_pb2.PublishRequest(header=header), self.answers, self._take
        )

    def publish_all(self, *messages: Message) -> list[int]:
        """Publishes messages in one frame; returns their numbers."""
        return self.send(self._next, *messages)

    def send(self, first: int, *messages: Message) -> list[int]:
        """Sends one frame of messages numbered from `first`; the first one sets exchange and flags.

        Also for retransmissions under the original numbers (P10).
        """
        common = messages[0]
        data = publishing_pb2.PublishData(
            first_number=first,
            rows=len(messages),
            exchange=common.exchange,
            mandatory=common.mandatory,
            ack_immediately=common.ack_immediately,
            messages=[_encoded(message) for message in messages],
            transaction_id=self._begun(len(messages)),
        )
        numbers = list(range(first, first + len(messages)))
        self.answers.sent.update(numbers)
        self._next = max(self._next, numbers[-1] + 1)
        self._send(data=data)
        return numbers

    def probe(self, first: int, last: int) -> list[tuple[int, int]]:
        """Asks which of the numbers first..last the broker never received, as ranges (P10).

        The broker answers the known ones again.
        """
        self.answers.ask_again(first, last)
        self._send(probe=publishing_pb2.PublishProbe(first_number=first, last_number=last))
        return self.probed.wait(lambda: self.probed.seen.pop() if self.probed.seen else None)

    def ask_for(self, mode: Mode) -> None:
        """Opens the publisher again in this mode on a new stream; raises Refused (P1)."""
        other = AckqPublisher(self._stub, mode, self.identity, resume=True)
        other.answers.wait(lambda: other.opened)

    def commit(self) -> None:
        self._finish("commit", self.transaction())

    def commit_again(self, transaction: publishing_pb2.PublishTransaction) -> bool:
        """Repeats a commit on a later stream; returns whether the record answered it (P13)."""
        return self._finish("commit", transaction).repeated

    def rollback(self) -> None:
        self._finish("rollback", self.transaction())

    def ask_commit(self) -> publishing_pb2.PublishTransaction:
        """Sends a commit without waiting for its answer; returns it for repeating."""
        transaction = self.transaction()
        self._send(commit=transaction)
        return transaction

    def transaction(self) -> publishing_pb2.PublishTransaction:
        """Ends the current transaction, and returns it; the next publish begins another."""
        self._begun(0)
        ended = publishing_pb2.PublishTransaction(
            transaction_id=self._transaction, messages=self._in_transaction
        )
        self._transaction, self._in_transaction = b"", 0
        return ended

    def close(self) -> None:
        """Half-closes, and waits until the broker ends the stream."""
        self._stream.half_close()

    def _begun(self, messages: int) -> bytes:
        """Adds messages to the current transaction; returns its id, empty in confirm mode."""
        if self.mode is Mode.TRANSACTION:
            self._transaction = self._transaction or secrets.token_bytes(16)
            self._in_transaction += messages
        return self._transaction

    def _finish(self, how: str, transaction: publishing_pb2.PublishTransaction) -> Finished:
        before = len(self.answers.seen)
        self._send(**{how: transaction})
        finished = self.answers.next(Finished, after=before)
        if finished.refused is not None:
            raise finished.refused
        return finished

    def _send(self, **kind: Any) -> None:
        header = publishing_pb2.PublishHeader(
            lowest_unanswered=self.answers.lowest_unanswered, **kind
        )
        self._stream.send(publishing_pb2.PublishRequest(header=header))

    def _take(self, response: publishing_pb2.PublishResponse) -> None:
        answer = response.header
        match answer.WhichOneof("kind"):
            case "opened":
                self.opened = answer.opened
                self.answers.wake()
            case "confirm":
                confirm = answer.confirm
                first = 0 if confirm.multiple else confirm.first_number
                self.answers.add(streams.Confirm(first, confirm.last_number, confirm.multiple))
            case "nack":
                nack = answer.nack
                numbers = (nack.first_number, nack.last_number)
                self.answers.add(streams.Nack(*numbers, False, nack.reason.code))
            case "returned":
                bodies = _returned_bodies(response)
                for number, body in zip(answer.returned.numbers, bodies, strict=True):
                    self.answers.add(streams.Return(number, body, answer.returned.reason.code))
            case "blocked":
                self.answers.add(streams.Blocked(answer.blocked.reason))
            case "unblocked":
                self.answers.add(streams.Unblocked())
            case "probed":
                ranges = zip(answer.probed.missing_first, answer.probed.missing_last, strict=True)
                self.probed.add(list(ranges))
            case "transaction":
                done = answer.transaction
                why = done.reason
                refused = Refused("other", why.code, why.message, why.fields) if why.code else None
                self.answers.add(Finished(refused, done.repeated))
            case other:
                raise AssertionError(f"an answer of kind {other}")


def _encoded(message: Message) -> messages_pb2.Message:
    return messages_pb2.Message(
        body=message.body,
        routing_key=message.key,
        headers=message.headers,
        ttl_ms=message.ttl_ms,
        delivery_mode=1 + (not message.persistent),
    )


def _returned_bodies(response: publishing_pb2.PublishResponse) -> list[bytes]:
    """The bodies of a return; empty if it is sent again with a repeated commit (P13)."""
    if not response.block:
        return [b""] * len(response.header.returned.numbers)
    bodies: list[bytes] = block.decode(response.block, validate=True).batch["body"].to_pylist()
    return bodies
