"""A publisher in transaction mode, by the client's own state machine (P13).

`TransactionState` says what is sent, that a commit without an answer is repeated, and what a cut
loses.
"""

from ackq.client.blocks.encoding import Row
from ackq.client.connection import errors
from ackq.client.connection.duplex import Wait
from ackq.client.publishing import requests
from ackq.client.publishing.transaction_state import Committed, TransactionState
from ackq.client.publishing.unconfirmed import Destination
from ackq.errors import InternalError
from ackq.v1 import publishing_pb2
from tests.crash.simulation.clients.client import Client
from tests.crash.simulation.clients.wire import Encoded, body_of
from tests.crash.simulation.network import Cut, Refused

TRANSACTION = 2
_TO_QUEUE = Destination("", mandatory=True)
_REFUSALS = ("transaction_rolled_back", "queue_full", "disk_full")


class TransactionalPublisher(Client):
    """Publishes transactions, one after the other.

    Args:
        queues: Where messages go.
        count: Transactions.
    """

    def __init__(self, world, oracle, name, queues, count):
        super().__init__(world, oracle, name)
        self._queues = queues
        self._left = count
        self._id = self.token()
        self._known = False
        self._made = 0
        self._messages = []  # of the open transaction
        self._state = TransactionState(persistent=True, window_messages=50, window_bytes=1 << 20)

    async def work(self):
        while self._left or self._state.transaction.pending:
            try:
                await self._stream()
            except Cut:
                pass
            except Refused as refusal:
                if refusal.code != "fenced" and not self.excuses(refusal):
                    self.oracle.wrong(f"P13: the stream of {self.name} ended: {refusal}")
            await self.pause()

    def opening(self):
        """An opening of its publisher."""
        return publishing_pb2.PublishOpen(
            publisher_id=self._id, mode=TRANSACTION, resume=self._known
        )

    async def _stream(self):
        state = self._state
        state.on_disconnect()
        if state.transaction.outcome is not None:
            self._end()
        elif not state.transaction.pending:
            self._roll_back()
        self._stream_now = stream = self.open("Publish")
        await self._write(
            requests.opening(
                self._id,
                mode=TRANSACTION,
                resume=self._known,
                attempt=b"",
                attempts_before=(),
                next_number=state.next_number,
                lowest_unanswered=state.lowest_unanswered,
                window_messages=state.window_messages,
                label="",
            )
        )
        answer = (await self.patiently(stream.read())).header
        assert answer.WhichOneof("kind") == "opened", answer
        self._known = True
        state.commit_with_data = self.sometimes(0.5)
        state.on_opened()
        if state.transaction.pending:
            await self._outcome()
        while self._left:
            self._left -= 1
            await self._transaction()
            await self.pause(self.pace_s)
            self.trip(0.05)
        await stream.close_writes()

    async def _write(self, frame):
        await self.send(self._stream_now, Encoded(frame))

    async def _send_all(self):
        while not isinstance(action := self._state.next_action(0.0), Wait):
            await self._write(requests.encoded(action))

    async def _transaction(self):
        state = self._state
        state.transaction.transaction_id = self.token()  # of this world's chance
        group = f"transaction {state.transaction.transaction_id.hex()[:6]} of {self.name}"
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            for _ in range(self.rng.choice((1, 2, 3))):
                self._publish(group)
            state.close_draft()
            if self.sometimes(0.5):
                await self._send_all()
        if self.sometimes(0.2):
            self._roll_back()
            await self._send_all()
            return
        state.commit()
        await self._outcome()

    def _publish(self, group):
        self._made += 1
        queue = self.rng.choice(self._queues)
        name = f"{self.name}.{self._made}"
        body = body_of(name, self.rng.choice((0, 50, 400)))
        row = Row(body, queue, *(None,) * 7)
        number = self._state.append(_TO_QUEUE, row, len(body) + len(queue))
        self._messages.append(
            self.oracle.publish(name, body, queue, order=(self.name, number), group=group)
        )

    def _roll_back(self):
        """Nothing of it will ever be visible: its commit was not sent."""
        self._state.roll_back()
        for message in self._messages:
            self.oracle.refused(message)
        self._messages = []

    # --- answers ---

    async def _outcome(self):
        """Repeats nothing and reads until the commit is answered."""
        transaction = self._state.transaction
        await self._send_all()
        self.trip(0.05)
        while transaction.outcome is None:
            response = await self.patiently(self._stream_now.read())
            if response is None:
                raise Cut("the broker ended the stream")
            self._answer(response.header)
            await self._send_all()
        self._end()

    def _answer(self, answer):
        kind = answer.WhichOneof("kind")
        if kind == "blocked":
            self._state.on_blocked(answer.blocked.reason)
        elif kind == "unblocked":
            self._state.on_unblocked()
        else:
            assert kind == "transaction", answer
            ended = answer.transaction
            refusal = errors.from_detail(ended.reason) if ended.HasField("reason") else None
            try:
                self._state.on_transaction(ended.transaction_id, ended.messages, refusal)
            except InternalError as error:
                self.oracle.wrong(f"P13: {self.name}: {error.message}")

    def _end(self):
        """Tells the oracle how the open transaction ended, and begins the next."""
        outcome, messages, self._messages = self._state.transaction.outcome, self._messages, []
        self._state.begin()
        if not isinstance(outcome, Committed):
            if outcome.code not in _REFUSALS:
                self.oracle.wrong(f"P13: {self.name}: refused: {outcome.message}")
            for message in messages:
                self.oracle.refused(message)
            return
        self.oracle.check(
            outcome.messages == len(messages),
            f"P13: {self.name}: {outcome.messages} messages committed of {len(messages)}",
        )
        self.oracle.figures["transactions"] += 1
        for message in messages:
            self.oracle.confirmed(message)
