"""A connection that records what is written, and whose server does what the test says."""

import json

from ackq_link.jetstream.connection import Received


class Connection:
    """A connection without a server."""

    place = "s/c"
    most_bytes = 0

    def __init__(self):
        self.frames = []
        self.takes = {}
        self.delivered = 0
        self.created = ""  # when its consumer was

    async def ask(self, *_, **__):
        return {"created": self.created}

    def new_inbox(self):
        return "IN"

    async def listen(self, subject, take):
        self.takes[subject] = take

    def write(self, frames):
        self.frames += frames

    async def nothing(self, *_):
        pass

    forget = flush = drain = close = nothing

    def end(self, cut):
        self.on_end(cut)

    def sent(self, word):
        return [frame for frame in self.frames if word in frame]

    # --- as a consumer's server ---

    @property
    def pulls(self):
        return [json.loads(frame.split(b"\r\n")[1]) for frame in self.sent(b"MSG.NEXT")]

    def bring(self, *sequences, count=1, later=0):
        """Deliveries of messages that were stored at their sequence, or later."""
        for each in sequences:
            self.delivered += 1
            reply = f"$JS.ACK.s.c.{count}.{each}.{self.delivered}.{each + later}.0".encode()
            self.takes["IN.p.*"](Received(b"x", reply, b"", b"%d" % each))

    def status(self, line, pull=1):
        head = f"NATS/1.0 {line}\r\n\r\n".encode()
        self.takes["IN.p.*"](Received(f"IN.p.{pull}".encode(), b"", head, b""))

    def answer(self, number, headers=b""):
        self.takes["IN.a.*"](Received(b"IN.a.%d" % number, b"", headers, b""))

    # --- as a stream's server ---

    def store(self, batch, *rows, body=b'{"stream": "s", "seq": 1}'):
        for row in rows:
            self.takes["IN.*.*"](Received(b"IN.%d.%d" % (batch, row), b"", b"", body))
