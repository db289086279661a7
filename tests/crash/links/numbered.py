"""A publisher of numbers: each message has a number as its id, and is sent until confirmed."""

import threading

import pika
from pika.exceptions import AMQPError

AHEAD = 2_000


class NumberedPublishing(threading.Thread):
    """Publishes one message after another, by any node that confirms it.

    Args:
        ports: The ports of the nodes.
        queue: The queue that they are published to.
        pause_s: Pause between two messages.
        arrived: Returns how many have arrived at the target; the publisher waits while `AHEAD` have
            not.
        tell_attempts: The body includes the attempt, so that two messages that RabbitMQ has under
            one id can be distinguished.

    Attributes:
        confirmed: The confirmed numbers: 0 to the last one; the next may have been sent.
        sent: Number of publishes; one without an answer is sent again.
        over: Set to end it.
    """

    def __init__(self, ports, queue, pause_s, arrived, *, tell_attempts=False):
        super().__init__(name="publishing", daemon=True)
        self._ports = ports
        self._queue = queue
        self._pause_s = pause_s
        self._arrived = arrived
        self._tell_attempts = tell_attempts
        self.confirmed = set()
        self.sent = 0
        self.over = threading.Event()

    def run(self):
        attempt = 0
        while not self.over.is_set():
            port = self._ports[attempt % len(self._ports)]
            attempt += 1
            try:
                with pika.BlockingConnection(
                    pika.ConnectionParameters("127.0.0.1", port, heartbeat=10)
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
            attempt = self.sent - number
            properties = pika.BasicProperties(message_id=str(number), delivery_mode=2)
            body = f"{number} {attempt}" if self._tell_attempts else str(number)
            self.sent += 1
            channel.basic_publish("", self._queue, body.encode(), properties, mandatory=True)
            self.confirmed.add(number)
