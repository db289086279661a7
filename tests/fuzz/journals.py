"""Targets: damaged files of a data directory, through every tool that reads them.

The damage is that of the fault model: flipped bits, sectors of zeros or of another time, files that
end early, are missing, or are another's.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from ackq.errors import AckqError
from ackq_broker.core import records, views
from ackq_broker.core.core import Core
from ackq_broker.engine.snapshot import unpack_state
from ackq_broker.journal import Journal, dump, repair, verify
from tests.fuzz.mutations import mutated, some_bytes
from tests.fuzz.targets import folder, outcome_of, target

GOLDEN = Path(__file__).parent.parent / "wire/operations/golden"
SECTOR = 512
SEGMENT_BYTES = 6144


def damaged_directory(rng):
    """A copy of a data directory with one to three acts of damage."""
    directory = Path(folder().name, "data")
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(rng.choice(sorted(GOLDEN.iterdir())), directory)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        damage(rng.choice(sorted(directory.iterdir())), rng)
    return directory


def damage(path, rng):
    """Damages a file once, as a bad disk does."""
    if not path.exists():
        return
    data = bytearray(path.read_bytes())
    others = [each.read_bytes() for each in path.parent.iterdir() if each.is_file()]
    at, kind = rng.randrange(len(data) + 1), rng.randrange(12)
    sector = at // SECTOR * SECTOR
    if kind <= 3 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 4:
        data[sector : sector + SECTOR] = bytes(len(data[sector : sector + SECTOR]))
    elif kind == 5:
        del data[at:]
    elif kind == 6:
        other = rng.choice(others)
        data[sector : sector + SECTOR] = other[sector : sector + SECTOR]
    elif kind == 7:
        data += bytes(rng.choice((1, SECTOR, 100_000)))
    elif kind == 8:
        data += some_bytes(rng, 200)
    elif kind == 9:
        path.unlink()
        return
    elif kind == 10:
        data = bytearray(rng.choice(others))
    else:
        data = bytearray(mutated(bytes(data), rng, others))
    path.write_bytes(data)


def opened(directory):
    """The outcome of opening a journal as a broker does, up to its state, in a word."""
    failures = []
    try:
        journal, recovery = Journal.open(
            directory,
            on_synced=lambda _: None,
            on_failure=failures.append,
            sync=False,
            segment_bytes=SEGMENT_BYTES,
        )
    except AckqError as error:
        return type(error).__name__
    try:
        core = Core() if recovery.snapshot is None else unpack_state(recovery.snapshot)[0]
        for sequence, data in recovery.records:
            core.apply(sequence, records.decode(data))
            journal.free_blocks(core.drain_dead_blocks())
        for block_id in views.durable_blocks(core.state):
            if block_id not in recovery.lost_blocks:
                journal.read_block(block_id)
    except AckqError as error:
        return type(error).__name__
    finally:
        journal.close()
    assert not failures
    return "opened"


@target(15)
def data_directory(rng):
    """Q7, I2: verify, dump, open and repair: each reads the directory or reports why not."""
    directory = damaged_directory(rng)
    for read in (verify, lambda path: list(dump(path))):
        # Errors that the commands report in a line.
        with suppress(AckqError, OSError):
            outcome = read(directory)
            assert outcome is not None
    said = opened(directory)
    mended, _ = outcome_of(lambda: repair(directory, segment_bytes=SEGMENT_BYTES))
    if mended != "taken":
        return f"{said}, {mended}"
    again = opened(directory)
    assert again == "opened", f"repaired, and then {again}"
    return f"{said}, repaired"
