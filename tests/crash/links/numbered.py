"""A publisher of numbers: each message has a number as its id, and is sent until confirmed."""

import threading

import pika
from pika.exceptions import AMQPError

AHEAD = 2_000


class NumberedPublishing(threading.Thread):
    """Publishes one message after another.

    Args:
        port: The port of the node.
        queue: The queue that they are published to.
        pause_s: Pause between two messages.
        arrived: Returns how many have arrived at the target; the publisher waits while `AHEAD` have
            not.

    Attributes:
        confirmed: The confirmed numbers: 0 to the last one; the next may have been sent.
        sent: Number of publishes; one without an answer is sent again.
        over: Set to end it.
    """

    def __init__(self, port, queue, pause_s, arrived):
        super().__init__(name="publishing", daemon=True)
        self._port = port
        self._queue = queue
        self._pause_s = pause_s
        self._arrived = arrived
        self.confirmed = set()
        self.sent = 0
        self.over = threading.Event()

    def run(self):
        while not self.over.is_set():
            try:
                with pika.BlockingConnection(
                    pika.ConnectionParameters("127.0.0.1", self._port, heartbeat=10)
                ) as connection:
                    self._publish(connection.channel())
            except (AMQPError, OSError):
                self.over.wait(0.1)

    def _publish(self, channel):
        channel.confirm_delivery()
        while not self.over.wait(self._pause_s):
            number = len(self.confirmed)
            if number - self._arrived() > AHEAD:
                continue
            properties = pika.BasicProperties(message_id=str(number), delivery_mode=2)
            self.sent += 1
            body = str(number).encode()
            channel.basic_publish("", self._queue, body, properties, mandatory=True)
            self.confirmed.add(number)
