"""Settings of `serve`: each option's value, from its flag, the environment, a file or its default.

Invariant: a flag overrides the environment, which overrides the file, which overrides the default.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ackq.errors import InvalidArgumentError, UnknownOptionError
from ackq_broker.cli.options import DEFAULTS, OPTIONS, Option, ServeOptions

PREFIX: Final = "ACKQ_BROKER_"
CONFIG: Final = "ACKQ_BROKER_CONFIG"
_DEFAULT: Final = "default"


class Settings(NamedTuple):
    """Effective options, where each came from, and warnings.

    Attributes:
        options: The options.
        origins: Where each value was set, by the option's name.
        warnings: Texts on environment variables that look like a misspelt one of an option.
    """

    options: ServeOptions
    origins: Mapping[str, str]
    warnings: tuple[str, ...]

    def lines(self) -> list[str]:
        """The settings as the lines of a file for `--config`, with the origin of each."""
        lines = []
        for name, origin in self.origins.items():
            value = getattr(self.options, name.replace("-", "_"))
            line = f"# {name}" if value is None else f"{name} = {_toml(value)}"
            lines.append(f"{line}  # {origin}")
        return lines


def variable(name: str) -> str:
    """The name of the environment variable of an option."""
    return PREFIX + name.upper().replace("-", "_")


def settings(flags: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """Combines flags, environment and the file of `--config` into the settings.

    Args:
        flags: The text of each given flag, by the option's name; several texts for a repeatable
            option, True for a switch. `config` may name the file.
        environment: The environment variables of the process.

    Raises:
        InvalidArgumentError: Names the option, where it was set, and the expected value.
        UnknownOptionError: The file has an unknown key; names the nearest option.
    """
    file = flags.get("config") or environment.get(CONFIG)
    written = _read(Path(str(file))) if file else {}
    values: dict[str, Any] = {}
    origins = {}
    for name, option in OPTIONS.items():
        origin, said = _said(name, flags, environment, written, str(file))
        values[name.replace("-", "_")] = (
            DEFAULTS[name] if said is None else _parsed(name, option, origin, said)
        )
        origins[name] = origin
    if values["data"] is None:
        raise InvalidArgumentError(
            "no data directory is set: give --data DIR, the environment variable "
            f"{variable('data')}, or data in the file of --config"
        )
    return Settings(ServeOptions(**values), origins, _warnings(environment))


def _said(
    name: str,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    written: Mapping[str, object],
    file: str,
) -> tuple[str, object]:
    """The origin of an option and its value there; None if unset, also by an empty variable."""
    if (flag := flags.get(name)) not in (None, (), False):
        return f"--{name}", flag
    key = variable(name)
    if text := environment.get(key):
        return key, text.split(",") if _several(name) else text
    if name in written:
        return f"{name} in {file}", written[name]
    return _DEFAULT, None


def _several(name: str) -> bool:
    return isinstance(DEFAULTS[name], tuple)


def _parsed(name: str, option: Option, origin: str, said: object) -> object:
    """Parses the given value of an option, which may have any type of TOML."""
    try:
        if _several(name):
            parts: Sequence[object] = said if isinstance(said, list | tuple) else [said]
            return tuple(option.parse(_text(part)) for part in parts)
        return option.parse(_text(said))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{origin} {error.message}", **error.fields) from error


def _text(said: object) -> str:
    if isinstance(said, bool):
        return "true" if said else "false"
    if isinstance(said, str | int):
        return str(said).strip()
    raise InvalidArgumentError(f"{said!r} is not a string, number or boolean.")


def _read(path: Path) -> dict[str, object]:
    """Reads a TOML file; returns its values by the options' names."""
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidArgumentError(
            f"there is no file {path}, which --config or {CONFIG} names", file=path
        ) from None
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error.strerror}", file=path) from error
    except (ValueError, RecursionError) as error:  # of TOML, UTF-8, a number's length, its depth
        raise InvalidArgumentError(f"{path} is not valid TOML: {error}", file=path) from error
    found = {}
    for key, value in written.items():
        name = key.replace("_", "-")
        if name not in OPTIONS:
            raise UnknownOptionError(
                f"{path}: there is no option {key!r}.{_nearest(name, OPTIONS)} All of them:"
                f" {', '.join(OPTIONS)}.",
                file=path,
                option=key,
            )
        found[name] = value
    return found


def _warnings(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings of misspelt variables; others of the prefix may be of a Kubernetes service."""
    known = {CONFIG, *map(variable, OPTIONS)}
    return tuple(
        f"the environment variable {key} sets no option of the broker.{nearest}"
        for key in sorted(environment)
        if key.startswith(PREFIX) and key not in known and (nearest := _nearest(key, known))
    )


def _nearest(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.8)
    return f" Did you mean {near[0]}?" if near else ""


def _toml(value: object) -> str:
    """A value in TOML syntax; its strings have the syntax of JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value) if isinstance(value, int) else json.dumps(str(value))
