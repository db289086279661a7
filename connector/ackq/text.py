"""Escapes text from others for a log line, an error or a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text with every non-printable character escaped: nothing but plain text on one line.

    Not printable in Unicode are line ends, terminal escapes and other control characters, marks
    that change the reading direction, spaces other than the ASCII one, and lone surrogates.

    >>> printable("a\nb")
    'a\\nb'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
