"""Hostile bytes: valid ones, changed a little, by a random generator.

The generator is `random.Random`, or Hypothesis's own, which shrinks what it drew.
"""

import struct
from copy import deepcopy

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

UNSIGNED = (0, 1, 2, 3, 5, 50, 100, 255, 256, 65_535, 65_536, 1 << 20, (1 << 31) - 1, 1 << 31)
HUGE = ((1 << 32) - 1, 1 << 32, 1 << 53, 1 << 61, 1 << 62, (1 << 63) - 1)
SIGNED = (*UNSIGNED, *HUGE, -1, -2, -8, -(1 << 31), -(1 << 63))
TEXTS = (
    "",
    "q",
    "a",
    "s",
    "dead",
    "#",
    "*.#.*",
    "\0",
    "x" * 255,
    "x" * 256,
    "é" * 130,
    "\N{RIGHT-TO-LEFT OVERRIDE}x\n\x1b[2J",
    "w" * 5000,
    "../../etc/passwd",
)


def some_bytes(rng, most):
    return bytes(rng.randrange(256) for _ in range(rng.randrange(most + 1)))


def mutated(data, rng, donors=()):
    """A copy of `data` with some bytes flipped, set, cut, doubled, or spliced from `donors`."""
    held = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        rng.choice(_ACTS)(held, rng.randrange(len(held) + 1), rng, donors or (data,))
    return bytes(held)


def _flip(held, at, rng, _donors):
    held[at : at + 1] = bytes(each ^ 1 << rng.randrange(8) for each in held[at : at + 1])


def _set(held, at, rng, _donors):
    value = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    held[at : at + 1] = bytes(value for _ in held[at : at + 1])


def _number(held, at, rng, _donors):
    width, code = rng.choice(((2, "h"), (4, "i"), (8, "q")))
    if at + width <= len(held):
        top = 1 << (8 * width - 1)
        value = rng.choice([each for each in SIGNED if -top <= each < top])
        struct.pack_into(f"<{code}", held, at, value)


def _cut(held, at, _rng, _donors):
    del held[at:]


def _drop(held, at, rng, _donors):
    del held[at : at + rng.randrange(1, 32)]


def _insert(held, at, rng, _donors):
    held[at:at] = some_bytes(rng, 16)


def _double(held, at, rng, _donors):
    held[at:at] = held[at : at + rng.randrange(1, 64)] * rng.choice((1, 1, 2, 50))


def _splice(held, at, rng, donors):
    donor = rng.choice(donors)
    start = rng.randrange(len(donor) + 1)
    end = start + rng.randrange(64)
    held[at : at + rng.choice((0, end - start))] = donor[start:end]


def _reverse(held, at, rng, _donors):
    there = rng.randrange(len(held) + 1)
    low, high = min(at, there), max(at, there)
    held[low:high] = held[low:high][::-1]


_ACTS = (_flip, _set, _number, _cut, _drop, _insert, _double, _splice, _reverse)


def with_numbers(message, rng):
    """A copy of an Arrow message with some attributes changed."""
    changed = deepcopy(message)
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.randrange(12)
        if kind <= 2:
            _change_pair(changed.nodes, rng)
        elif kind <= 5:
            _change_pair(changed.buffers, rng)
        elif kind == 6:
            changed.rows = _near(changed.rows, rng)
        elif kind == 7:
            changed.body_length = _near(len(changed.body), rng)
        elif kind == 8:
            changed.version = rng.randrange(6)
            changed.codec = rng.choice((None, 0, 1, 2))
            changed.kind = rng.choice((3, 3, 3, 0, 1, 2, 4, 5, 77))
        elif kind == 9:
            codec = rng.choice(("zstd", "lz4_frame", "", "x" * 1000))
            changed.custom = [("ARROW:experimental_compression", codec)] * rng.choice((0, 1, 20))
            changed.views = [_near(1, rng)] * rng.randrange(3)
        elif kind == 10:
            changed.after = some_bytes(rng, 32)
        else:
            changed.body = mutated(changed.body, rng)
    return changed


def _change_pair(pairs, rng):
    """Changes, doubles, drops or swaps an entry of a list of pairs."""
    if not pairs:
        pairs.append((0, 0))
    at, kind = rng.randrange(len(pairs)), rng.randrange(8)
    first, second = pairs[at]
    if kind <= 2:
        pairs[at] = (_near(first, rng), second)
    elif kind <= 5:
        pairs[at] = (first, _near(second, rng))
    elif kind == 6:
        pairs[at] = rng.choice(pairs)
    elif rng.randrange(2):
        del pairs[at]
    else:
        pairs.insert(at, pairs[at])


def _near(value, rng):
    """A number close to a right one, or far from all right ones."""
    if rng.randrange(2):
        near = value + rng.choice((-64, -8, -1, 1, 8, 64))
        return max(SIGNED[-1], min(near, -SIGNED[-1] - 1))
    return rng.choice(SIGNED)


# --- protobuf ---


_VALUES = {
    FieldDescriptor.TYPE_UINT64: (*UNSIGNED, *HUGE, (1 << 64) - 1),
    FieldDescriptor.TYPE_FIXED64: (*UNSIGNED, *HUGE, (1 << 64) - 1),
    FieldDescriptor.TYPE_INT64: SIGNED,
    FieldDescriptor.TYPE_UINT32: (*UNSIGNED, (1 << 32) - 1),
    FieldDescriptor.TYPE_INT32: (0, 1, -1, (1 << 31) - 1, -(1 << 31)),
    FieldDescriptor.TYPE_BOOL: (False, True),
    FieldDescriptor.TYPE_ENUM: (0, 1, 2, 3, 4, 77),
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_BYTES: (b"", b"x", bytes(16), b"\xff" * 16, bytes(32), b"y" * 5000),
}


class Filler:
    """Fills messages by their descriptors.

    Args:
        rng: The random generator.
        given: By a field's name, values in addition to odd ones: names that exist, ids.
    """

    def __init__(self, rng, given=None):
        self._rng = rng
        self._given = given or {}

    def message(self, descriptor, depth=0):
        """A message of a type, with random fields."""
        made = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if self._rng.random() < 0.25:
                continue
            if field.containing_oneof and made.WhichOneof(field.containing_oneof.name):
                continue
            self._set(made, field, depth)
        return made

    def _set(self, made, field, depth):
        name, rng = field.name, self._rng
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth > 4 or field.message_type.GetOptions().map_entry:
                return
            if field.is_repeated:
                for _ in range(rng.randrange(4)):
                    getattr(made, name).add().CopyFrom(self.message(field.message_type, depth + 1))
            else:
                getattr(made, name).CopyFrom(self.message(field.message_type, depth + 1))
        elif field.is_repeated:
            getattr(made, name).extend(self._value(field) for _ in range(rng.randrange(5)))
        else:
            setattr(made, name, self._value(field))

    def _value(self, field):
        rng = self._rng
        if field.name in self._given and rng.random() < 0.7:
            return rng.choice(self._given[field.name])
        return rng.choice(_VALUES[field.type])


# --- JSON ---


def odd_value(rng, depth=0):
    """A JSON value of any type."""
    kind = rng.randrange(10)
    if kind == 0 and depth < 3:
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 1 and depth < 3:
        return {rng.choice(TEXTS): odd_value(rng, depth + 1) for _ in range(rng.randrange(4))}
    if kind <= 4:
        return rng.choice((*TEXTS, "\ud800", "0001-01-01T00:00:00+23:59", "9" * 400))
    if kind <= 7:
        return rng.choice((*SIGNED, 10**30, -(10**30)))
    return rng.choice((None, True, False, 0.5, 1e308, float("inf"), float("nan")))


def changed_value(value, rng):
    """A JSON document with some values changed, removed, or under another name."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = rng.choice(sorted(value))
        changed = dict(value)
        if rng.random() < 0.15:
            changed[rng.choice((*TEXTS, name + "s"))] = changed.pop(name)
        elif rng.random() < 0.15:
            del changed[name]
        else:
            changed[name] = changed_value(value[name], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], changed_value(value[at], rng), *value[at + 1 :]]
    return odd_value(rng)
