"""The promises of a journal, in a file that survives a kill of its process."""

import json
import os

from ackq_broker.journal.files.disk import Disk


class NotingDisk(Disk):
    """A disk with room, and without syncs, which no kill needs; `note` as a `RecordingDisk`."""

    def __init__(self, file):
        super().__init__(sync=False)
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, *what):
        os.write(self._fd, json.dumps(what).encode() + b"\n")

    def free_bytes(self, directory):  # noqa: ARG002 - there is room
        return 1 << 60


def read_notes(file):
    """The notes of a file, as an `Image` has them."""
    return [tuple(json.loads(line)) for line in file.read_text().splitlines()]
