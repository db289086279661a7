"""Text that others wrote, made fit for a log line, an error or a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text with everything escaped that could pass for more than text on one line.

    That is what Unicode calls not printable: line ends, terminal escapes and other control
    characters, marks that turn the direction of reading, spaces that are none, lone surrogates.

    >>> printable("a\nb")
    'a\\nb'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
