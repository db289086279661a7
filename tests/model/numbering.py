"""Models a remote broker that numbers its messages and answers acknowledgements; L10, L30, L31.

What differs from `linking`: the process calls proven what was answered. Messages come in any order,
as each waits for its time after a cut. An acknowledgement on its way at a cut may be applied at any
time later, and then counts for the newer delivery. All messages have one body: if content were
asked, they would be equal.
"""

from tests.model.edge import Edge
from tests.model.linking import Linking


class Positioned(Edge):
    """The edge of such a link: the key is the position, the check the time of the message."""

    def key(self, number, _body):
        return (number + 1, 3)

    def check(self, number, _body):
        return 1_000 + number


class Numbering(Linking):
    """A link with a remote broker that numbers its messages."""

    def _deliverable(self, world):
        for at, message in enumerate(world.waiting):
            yield message, world.waiting[:at] + world.waiting[at + 1 :]

    def _said(self, process):
        """What is proven: each acknowledgement that the broker applied, by its answer; no other."""
        last = process.sent[process.applied - 1] + 1 if process.applied else 0
        return process.epoch, process.subscription, process.applied, last

    def _steps(self, world):
        yield from super()._steps(world)
        for message in world.late:
            late = tuple(each for each in world.late if each != message)
            waiting = tuple(each for each in world.waiting if each.number != message.number)
            roles = {}
            for role in ("process", "zombie"):
                process = getattr(world, role)
                if process is not None:
                    roles[role] = _settled(process, message.number)
            yield (
                f"a late acknowledgement of {message.number} is applied",
                world._replace(late=late, waiting=waiting, **roles),
            )

    def _cut(self, world, role, process):
        sent = [process.came[number] for number in process.sent[process.applied :]]
        after = super()._cut(world, role, process)
        gone = {process.came[number].number for number in process.gone}
        waiting = tuple(each for each in after.waiting if each.number not in gone)
        late = {*world.late, *(each for each in sent if each.number not in gone)}
        return after._replace(waiting=waiting, late=tuple(sorted(late)))


def _settled(process, number):
    """The process; a message that it holds has no delivery to come after a late settlement."""
    gone = {at for at, message in enumerate(process.came) if message.number == number}
    return process._replace(gone=process.gone | gone)
