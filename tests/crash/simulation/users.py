"""The users of a world: one whose everything is, and a stranger with fewer rights (A1, A2, A10)."""

from types import SimpleNamespace

from ackq_broker.security.name_pattern import NamePattern
from ackq_broker.security.users import User, Users, hash_of

OWNER, STRANGER = "alice", "mallory"
# The one queue that the stranger may make, read and, as any other one in some worlds, write to.
OWN = "own"
# How many worlds have users.
_SHARE = 0.2


class Security:
    """In the place of the broker's `SecurityOptions`: users who are there without a file.

    Args:
        write: Where the stranger may write, a pattern.
    """

    def __init__(self, write):
        everything, own = NamePattern(".*"), NamePattern(OWN)
        owner = User(OWNER, (hash_of(OWNER),), "operator", everything, everything, everything)
        stranger = User(STRANGER, (hash_of(STRANGER),), "observer", own, NamePattern(write), own)
        self._users = Users({each.name: each for each in (owner, stranger)})

    def users_file(self):
        """As of `SecurityOptions`; it never changes."""
        return SimpleNamespace(users=self._users, changed=lambda: False)

    def credentials(self):
        """As of `SecurityOptions`: without TLS."""


def drawn(chance):
    """The security of a world; None in most: anybody may do anything."""
    return Security(chance.choice((OWN, ".*"))) if chance.random() < _SHARE else None


def metadata(user):
    """What a call of a user carries: as its token, its name; "": nothing."""
    return (("authorization", f"Bearer {user}"),) if user else ()
