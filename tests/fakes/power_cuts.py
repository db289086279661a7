"""What a power cut can leave of unsynced changes: of files' content, and of their names.

A change of content is (offset, bytes), or (None, size). A change of names is ("name", path, file),
("rename", source, target, file) or ("unlink", path).
"""

SECTOR = 512


def renamed(names, changes):
    """Names and their files after some changes."""
    names = dict(names)
    for kind, path, *what in changes:
        if kind == "name":
            names[path] = what[0]
        elif kind == "rename":
            # The new name may reach the disk without the removal of the old one, never the reverse.
            if names.get(path) is what[1]:
                del names[path]
            names[what[0]] = what[1]
        else:
            names.pop(path, None)
    return names


def with_all(content, changes):
    """A file's content after all changes."""
    content = bytearray(content)
    for offset, what in changes:
        if offset is None:
            _cut_or_extend(content, what)
        else:
            _cut_or_extend(content, max(len(content), offset + len(what)))
            content[offset : offset + len(what)] = what
    return bytes(content)


def with_some(content, changes, share, random, torn=0.0):
    """A file's content after a share of the changes, sector by sector, a share of them torn."""
    some = []
    for offset, what in changes:
        if offset is None:
            if random.random() < share:
                some.append((None, what))
            continue
        start, end = offset, offset + len(what)
        while start < end:
            stop = min((start // SECTOR + 1) * SECTOR, end)
            if random.random() < share:
                first, last = start, stop
                if torn and share < 1 and random.random() < torn:
                    first, last = sorted(random.randint(start, stop) for _ in range(2))
                some.append((first, what[first - offset : last - offset]))
            start = stop
    return with_all(content, some)


def _cut_or_extend(content, size):
    if size < len(content):
        del content[size:]
    elif size > len(content):
        content.extend(bytes(size - len(content)))
