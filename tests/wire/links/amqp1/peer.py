"""A queue of an AMQP 1.0 broker, used through Proton's own blocking client."""

from contextlib import contextmanager

from proton import Message
from proton.reactor import Copy
from proton.utils import BlockingConnection

from tests.wire.links.amqp1.servers import PASSWORD, USER

_CALL_S = 60
_CREDIT = 10_000


class Peer:
    """One queue; its `server` can be killed and started again."""

    def __init__(self, server, queue):
        self.server = server
        self.queue = queue

    @property
    def url(self):
        """The URL for a link."""
        return f"amqp://{USER}@127.0.0.1:{self.server.port}"

    @contextmanager
    def connection(self):
        connection = BlockingConnection(
            f"127.0.0.1:{self.server.port}",
            timeout=_CALL_S,
            user=USER,
            password=PASSWORD,
            allowed_mechs="PLAIN",
        )
        try:
            yield connection
        finally:
            connection.close()

    def publish(self, ids, **properties):
        """Publishes messages with these ids, and the same numbers as bodies."""
        self.send(
            Message(
                id=str(each),
                body=str(each).encode(),
                inferred=True,
                durable=True,
                **properties,
            )
            for each in ids
        )

    def send(self, messages):
        with self.connection() as connection:
            sender = connection.create_sender(self.queue)
            for each in messages:
                sender.send(each)

    def browse(self, queue=None):
        """Reads all messages without removing them."""
        return self._receive(queue, Copy())

    def take(self, queue=None):
        """Takes and accepts all messages."""
        return self._receive(queue, None)

    def _receive(self, queue, options):
        """Takes what the queue has: the broker uses the credit, and gives the rest of it back."""
        with self.connection() as connection:
            receiver = connection.create_receiver(queue or self.queue, credit=0, options=options)
            receiver.drain(_CREDIT)
            connection.wait(lambda: not receiver.credit)
            found = []
            while receiver.fetcher.has_message:
                found.append(receiver.fetcher.pop())
                if options is None:
                    receiver.accept()
            return found

    @property
    def ids(self):
        """The ids of the messages in the queue."""
        return [int(each.id) for each in self.browse()]
