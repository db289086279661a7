"""The files of a query's checkpoint, of which a power loss removes the newest.

Spark syncs neither `offsets` nor `commits`, so any number of the newest files of each may be lost,
while the broker and the sink have synced everything. Older files have reached the disk.
"""

import json
import shutil

KINDS = ("offsets", "commits")
# How many of the newest offsets and commits are lost, with a weight; None: all of both.
LOSSES = {
    (1, 1): 6,
    (0, 1): 4,
    (1, 0): 3,
    (1, 2): 2,
    (0, 2): 1,
    (0, 3): 1,
    (2, 1): 2,
    (2, 2): 3,
    (3, 2): 1,
    (3, 3): 2,
    None: 3,
}


class Checkpoint:
    """A checkpoint on this machine's disk."""

    def __init__(self, folder):
        self.folder = folder

    @property
    def query(self):
        """The query's id, which survives the loss of offsets and commits."""
        return json.loads((self.folder / "metadata").read_text())["id"]

    def batches(self, kind):
        """The batch ids in one of its logs, in order."""
        found = (self.folder / kind).glob("[0-9]*")
        return sorted(int(file.name) for file in found if file.name.isdecimal())

    def lose(self, random):
        """Removes the newest files, as a power loss does; returns the lost batch ids by log."""
        chosen = random.choices(list(LOSSES), list(LOSSES.values()))[0]
        lost = {}
        for kind, count in zip(KINDS, chosen or (None, None), strict=True):
            batches = self.batches(kind)
            lost[kind] = batches[-count:] if count else batches if count is None else []
            self._forget(kind, lost[kind])
        return lost

    def forget_uncovered(self):
        """Removes files that Spark would rewrite: commits from the last offsets on, and state."""
        last = max(self.batches("offsets"), default=0)
        self._forget("commits", [batch for batch in self.batches("commits") if batch >= last])
        if not last:
            shutil.rmtree(self.folder / "state", ignore_errors=True)

    def _forget(self, kind, batches):
        for batch in batches:
            for name in (str(batch), f".{batch}.crc"):
                (self.folder / kind / name).unlink(missing_ok=True)
