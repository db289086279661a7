"""A queue of an AMQP 1.0 broker, used through Proton's own blocking client."""

from contextlib import closing, contextmanager

from proton import Message
from proton.reactor import Copy

from tests.wire.links.amqp1.servers import PASSWORD, USER, connect
from tests.wire.links.managed.node import password_file

_CALL_S = 60
_CREDIT = 10_000


class Peer:
    """One queue; its `server` can be killed and started again."""

    in_order = True

    def __init__(self, server, queue):
        self.server = server
        self.queue = queue
        self.typed = {"content_type": "text/plain", "properties": {"a": "b"}}  # for `publish`
        self.endpoint = f"127.0.0.1:{server.port}"
        self.url = self.at(self.endpoint)
        self.drops_repeated = server.name == "artemis"

    def at(self, endpoint):
        """The URL for a link, by this endpoint."""
        return f"amqp://{USER}@{endpoint}"

    def keys(self, *, folder, **_):
        """The keys of a link that are about this queue."""
        there = {"broker": self.url, "broker_queue": self.queue, "protocol": "amqp1"}
        return {**there, "password_file": password_file(folder, PASSWORD)}

    @contextmanager
    def connection(self):
        with closing(connect(self.endpoint, _CALL_S)) as connection:
            yield connection

    def publish(self, ids, **properties):
        """Publishes messages with these ids, and the same numbers as bodies."""
        given = {"inferred": True, "durable": True, **properties}
        self.send(Message(id=str(each), body=str(each).encode(), **given) for each in ids)

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

    @property
    def left(self):
        """The number of messages in the queue."""
        return len(self.ids)

    @property
    def contents(self):
        """The messages, as (id, body, header `a`, address for replies, durability)."""
        return [
            (int(m.id), bytes(m.body), (m.properties or {}).get("a"), m.reply_to, m.durable)
            for m in self.browse()
        ]
