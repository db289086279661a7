"""Hook of mkdocs: links to files that the site does not have become plain text."""

import re
from pathlib import PurePosixPath
from posixpath import normpath

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown, *, page, files, **_):
    """Returns a page's text without its links to source files and folders."""
    folder = PurePosixPath(page.file.src_uri).parent

    def kept(link):
        target = files.get_file_from_path(normpath(f"{folder}/{link[2]}"))
        return link[0] if target is not None and target.inclusion.is_included() else link[1]

    return _LINK.sub(kept, markdown)
