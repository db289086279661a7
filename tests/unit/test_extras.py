"""The extra that a missing module belongs to."""

import json
from importlib import metadata
from types import SimpleNamespace

import pytest

from ackq import extras
from tests.libraries import replace

FOLDER = {"url": "file:///opt/a%20b", "dir_info": {}}
EDITABLE = {"url": "file:///opt/ackq", "dir_info": {"editable": True}}
WHEEL = {"url": "file:///opt/ackq-0.1.0-py3-none-any.whl", "archive_info": {}}
UNKNOWN = "'CHECKOUT[cli]'  (CHECKOUT: a checkout of ackq, or its wheel)"


@pytest.mark.parametrize(
    ("found", "installs"),
    [
        (json.dumps(FOLDER), "'/opt/a b[cli]'"),
        (json.dumps(EDITABLE), "-e '/opt/ackq[cli]'"),
        (json.dumps(WHEEL), "'/opt/ackq-0.1.0-py3-none-any.whl[cli]'"),
        (json.dumps({"url": "https://host/ackq.whl"}), UNKNOWN),
        ("{", UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_the_extra_is_named(monkeypatch, found, installs):
    """The message names the program, the module and the installation's source, not an index."""
    distribution = SimpleNamespace(read_text=lambda _: found)
    replace(monkeypatch, extras, metadata, distribution=lambda _: distribution)
    text = extras.missing(ModuleNotFoundError(name="click.core"), "The command ackq", "cli")
    assert text == f"The command ackq needs 'click': run  pip install {installs}"


@pytest.mark.parametrize("name", ["ackq", "ackq.client.missing", "ackq_broker.core"])
def test_a_module_of_ours_is_a_bug(name):
    """A missing module of ackq itself is raised again."""
    error = ModuleNotFoundError(name=name)
    with pytest.raises(ModuleNotFoundError) as raised:
        extras.missing(error, "The command ackq", "cli")
    assert raised.value is error
