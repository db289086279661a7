"""A publisher in transaction mode: commits that are repeated until they are answered (P13)."""

from ackq.v1 import messages_pb2, publishing_pb2
from tests.crash.simulation.clients.client import Client
from tests.crash.simulation.clients.wire import body_of
from tests.crash.simulation.network import Cut, Refused

TRANSACTION = 2


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
        self._number = 0
        # The transaction whose commit has no answer: its id and messages.
        self._committing = None

    async def work(self):
        while self._left or self._committing:
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
        self._stream_now = stream = self.open("Publish")
        await self._write(open=self.opening())
        answer = (await self.patiently(stream.read())).header
        assert answer.WhichOneof("kind") == "opened", answer
        self._known = True
        if self._committing is not None:
            await self._commit()
            await self._outcome()
        while self._left:
            self._left -= 1
            await self._transaction()
            await self.pause(self.pace_s)
            self.trip(0.05)
        await stream.close_writes()

    async def _write(self, **kind):
        header = publishing_pb2.PublishHeader(lowest_unanswered=self._number + 1, **kind)
        await self.send(self._stream_now, publishing_pb2.PublishRequest(header=header))

    async def _transaction(self):
        transaction_id = self.token()
        group = f"transaction {transaction_id.hex()[:6]} of {self.name}"
        messages = []
        rolls_back = self.sometimes(0.2)
        frames = self.rng.choice((1, 1, 2, 3))
        with_data = self.sometimes(0.5) and not rolls_back
        try:
            for frame in range(frames):
                bodies = [self._message(messages, group) for _ in range(self.rng.choice((1, 2, 3)))]
                data = publishing_pb2.PublishData(
                    first_number=self._number - len(bodies) + 1,
                    rows=len(bodies),
                    mandatory=True,
                    messages=bodies,
                    transaction_id=transaction_id,
                )
                if with_data and frame == frames - 1:
                    data.commit_messages = len(messages)
                    self._committing = (transaction_id, messages)
                await self._write(data=data)
        except BaseException:
            if self._committing is None:
                # No commit was sent: nothing of it will ever be visible.
                self._drop(messages)
            raise
        if rolls_back:
            self._drop(messages)
            await self._write(
                rollback=publishing_pb2.PublishTransaction(transaction_id=transaction_id)
            )
            answer = await self._answer()
            self.oracle.check(not answer.HasField("reason"), f"P13: {group}: rollback refused")
            return
        if not with_data:
            self._committing = (transaction_id, messages)
            await self._commit()
        await self._outcome()

    def _message(self, messages, group):
        self._number += 1
        queue = self.rng.choice(self._queues)
        name = f"{self.name}.{self._number}"
        body = body_of(name, self.rng.choice((0, 50, 400)))
        messages.append(
            self.oracle.publish(name, body, queue, order=(self.name, self._number), group=group)
        )
        return messages_pb2.Message(body=body, routing_key=queue)

    def _drop(self, messages):
        for message in messages:
            self.oracle.refused(message)

    async def _commit(self):
        transaction_id, messages = self._committing
        await self._write(
            commit=publishing_pb2.PublishTransaction(
                transaction_id=transaction_id, messages=len(messages)
            )
        )

    async def _outcome(self):
        """Reads the answer to the commit."""
        self.trip(0.05)
        answer = await self._answer()
        transaction_id, messages = self._committing
        self.oracle.check(
            answer.transaction_id == transaction_id, f"P13: {self.name}: another transaction's"
        )
        self._committing = None
        if answer.HasField("reason"):
            expected = ("transaction_rolled_back", "queue_full", "disk_full")
            if answer.reason.code not in expected:
                self.oracle.wrong(f"P13: {self.name}: refused: {answer.reason.message}")
            self._drop(messages)
            return
        self.oracle.check(
            answer.messages == len(messages),
            f"P13: {self.name}: {answer.messages} messages committed of {len(messages)}",
        )
        self.oracle.figures["transactions"] += 1
        for message in messages:
            self.oracle.confirmed(message)

    async def _answer(self):
        while True:
            response = await self.patiently(self._stream_now.read())
            if response is None:
                raise Cut("the broker ended the stream")
            kind = response.header.WhichOneof("kind")
            if kind == "transaction":
                return response.header.transaction
            assert kind in ("blocked", "unblocked"), response.header
