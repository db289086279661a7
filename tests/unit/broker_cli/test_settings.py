"""O1: the sources of the broker's options, and their precedence."""

import tomllib
from pathlib import Path

import pytest

from ackq.errors import InvalidArgumentError, UnknownOptionError
from ackq_broker.cli.options import OPTIONS
from ackq_broker.cli.settings import settings, variable
from ackq_broker.service.transport.listening import address

DATA = {"data": "/d"}


@pytest.fixture
def file(tmp_path):
    """Writes a file for `--config`, and returns its path."""

    def write(text):
        path = tmp_path / "broker.toml"
        path.write_text(text)
        return str(path)

    return write


def test_what_nobody_says_has_its_default():
    """O1: options that are not set have defaults, except `data`."""
    found = settings(DATA, {})
    assert found.options.data == Path("/d")
    assert found.options.listen == (address("127.0.0.1:5775"),)
    assert (found.options.memory_limit, found.options.no_sync) == (None, False)
    assert found.origins["listen"] == "default"
    with pytest.raises(InvalidArgumentError, match="no data directory is set: give --data DIR"):
        settings({}, {})


def test_the_nearer_one_wins(file):
    """O1: flag over environment over file over default."""
    config = file('data = "/f"\nlog-level = "error"\nno-sync = true\nport_file = "/p"')
    environment = {"ACKQ_BROKER_CONFIG": config, "ACKQ_BROKER_LOG_LEVEL": "debug"}
    flags = {"data": "/d", "config": None, "no-sync": None, "listen": ()}
    found = settings(flags, environment)
    assert (found.options.data, found.options.log_level) == (Path("/d"), "debug")
    assert (found.options.no_sync, found.options.port_file) == (True, Path("/p"))
    assert found.origins == {
        **dict.fromkeys(OPTIONS, "default"),
        "data": "--data",
        "log-level": "ACKQ_BROKER_LOG_LEVEL",
        "no-sync": f"no-sync in {config}",
        "port-file": f"port-file in {config}",
    }


def test_a_switch_can_be_turned_off(file):
    """O1: the environment can turn off what a file turns on."""
    environment = {"ACKQ_BROKER_CONFIG": file("no-sync = true"), "ACKQ_BROKER_NO_SYNC": "no"}
    assert not settings(DATA, environment).options.no_sync


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_can_be_said_three_ways(name, file):
    """O1: flag, environment and file have the same effect."""
    by_metavar = {"": "true", "SIZE": "1GiB", "LEVEL": "error", "FORMAT": "json"}
    by_metavar |= {"ADDRESS": "unix:/x", "HOST:PORT": "127.0.0.1:1"}
    text = by_metavar.get(OPTIONS[name].metavar, "/x")
    base = {} if name == "data" else DATA
    by_flag = settings({**base, name: text}, {}).options
    assert settings(base, {variable(name): text}).options == by_flag
    assert settings({**base, "config": file(f'{name} = "{text}"')}, {}).options == by_flag
    assert name == "data" or by_flag != settings(DATA, {}).options


def test_several_addresses(file):
    """O1, O2: repeated flags, a list in the file, commas in the environment."""
    expected = (address("127.0.0.1:1"), address("unix:/s"))
    both = ("127.0.0.1:1", "unix:/s")
    assert settings({**DATA, "listen": both}, {}).options.listen == expected
    assert settings(DATA, {"ACKQ_BROKER_LISTEN": "127.0.0.1:1, unix:/s"}).options.listen == expected
    config = file('listen = ["127.0.0.1:1", "unix:/s"]')
    assert settings({**DATA, "config": config}, {}).options.listen == expected


def test_an_unknown_key_is_refused(file):
    """O1: the error names the file and the nearest option."""
    config = file('lsten = "h:1"')
    with pytest.raises(UnknownOptionError) as error:
        settings({**DATA, "config": config}, {})
    told = f"{config}: there is no option 'lsten'. Did you mean listen? All of them: data"
    assert str(error.value).startswith(told)


@pytest.mark.parametrize(
    ("flags", "environment", "text", "told"),
    [
        ({"listen": ("7",)}, {}, "", "--listen '7' is not HOST:PORT, [IPV6]:PORT or unix:PATH."),
        ({}, {"ACKQ_BROKER_LOG_LEVEL": "loud"}, "", "ACKQ_BROKER_LOG_LEVEL 'loud' is not one of"),
        ({}, {"ACKQ_BROKER_MEMORY_LIMIT": "1"}, "", "ACKQ_BROKER_MEMORY_LIMIT '1' is no"),
        ({}, {}, "listen = 1.5", "listen in {file} 1.5 is not a string, number or boolean."),
        ({}, {}, "listen = " + "[" * 10_000, "{file} is not valid TOML: "),
    ],
)
def test_a_wrong_value_is_refused(flags, environment, text, told, file):
    """O1: the error names the place where the value is set."""
    config = file(text)
    with pytest.raises(InvalidArgumentError) as error:
        settings({**DATA, **flags, "config": config}, environment)
    assert str(error.value).startswith(told.format(file=config))


def test_a_file_that_cannot_be_read(tmp_path):
    """O1: a named config file that cannot be read is an error."""
    with pytest.raises(InvalidArgumentError, match="there is no file /nowhere, which --config or"):
        settings({**DATA, "config": "/nowhere"}, {})
    with pytest.raises(InvalidArgumentError, match="cannot be read: Is a directory"):
        settings({**DATA, "config": str(tmp_path)}, {})


def test_a_misspelt_variable_is_told():
    """O1: warned of, except variables that Kubernetes makes for a service of that name."""
    links = {"ACKQ_BROKER_SERVICE_HOST": "10.0.0.1", "ACKQ_BROKER_PORT_5775_TCP": "tcp://10.0.0.1"}
    (told,) = settings(DATA, {"ACKQ_BROKER_LISTN": "h:1", **links}).warnings
    assert told.startswith("the environment variable ACKQ_BROKER_LISTN sets no option of the")
    assert told.endswith(" Did you mean ACKQ_BROKER_LISTEN?")


def test_the_printed_settings_are_a_file_of_them(file):
    """O1: the output of `--print-config` is a config file with the same settings."""
    flags = {**DATA, "listen": ("h:1", "unix:/s"), "no-sync": True, "memory-limit": "1GiB"}
    found = settings(flags, {})
    text = "\n".join(found.lines())
    assert tomllib.loads(text)["listen"] == ["h:1", "unix:/s"]
    assert settings({"config": file(text)}, {}).options == found.options
