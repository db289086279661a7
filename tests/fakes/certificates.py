"""Real certificates in files, issued by an authority of the test's own."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import trustme

DAY = timedelta(days=1)


class Identity(NamedTuple):
    """Paths of a PEM certificate and of its key."""

    cert: str
    key: str


class Authority:
    """An authority that tests trust, or do not.

    Args:
        folder: Folder for its files; created if it does not exist.
    """

    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._authority = trustme.CA()
        self._numbers = itertools.count(1)
        self.ca = self._write("ca.pem", self._authority.cert_pem.bytes())

    def issue(self, *names, user=None, from_day=-1, to_day=1):
        """A certificate of these names and its key; valid from and to a day relative to now.

        Args:
            names: The machine's names.
            user: A user's name instead, as common name; Erlang requires a machine's name as well.
            from_day: Days from now.
            to_day: Days from now.
        """
        now = datetime.now(UTC)
        names = names or (f"{user}.example",)
        made = self._authority.issue_cert(
            *names, common_name=user, not_before=now + from_day * DAY, not_after=now + to_day * DAY
        )
        # A server may be reading the files of another certificate of these names.
        stem = f"{next(self._numbers)}-{user or names[0]}"
        chain = b"".join(each.bytes() for each in made.cert_chain_pems)
        return Identity(
            self._write(f"{stem}.pem", chain),
            self._write(f"{stem}.key", made.private_key_pem.bytes()),
        )

    def _write(self, name, content):
        path = self.folder / name
        path.touch(0o600)  # some are keys
        path.write_bytes(content)
        return str(path)
