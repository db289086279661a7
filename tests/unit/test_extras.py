"""Which extra a missing module asks for."""

import pytest

from ackq import extras


def test_the_extra_is_named():
    """The line names the part, the module and the command to run."""
    text = extras.missing(ModuleNotFoundError(name="click.core"), "The command ackq", "cli")
    assert text == "The command ackq needs 'click': run  pip install 'ackq[cli]'"


@pytest.mark.parametrize("name", ["ackq", "ackq.client.missing", "ackq_broker.core"])
def test_a_module_of_ours_is_a_bug(name):
    """No extra brings it: the error goes on."""
    error = ModuleNotFoundError(name=name)
    with pytest.raises(ModuleNotFoundError) as raised:
        extras.missing(error, "The command ackq", "cli")
    assert raised.value is error
