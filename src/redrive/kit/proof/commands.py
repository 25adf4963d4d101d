"""The lines of a history's script: commands that are written, printed and read again. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from redrive.errors import InvalidValue

_COMMAND: Final = re.compile(r"(?:\d+ )?(?P<verb>[a-z_]+)(?P<values>(?: [a-z_]+=\S+)*)(?: -> (?P<answer>.+))?")

Kinds = Mapping[str, Callable[[str], Any]]


@dataclass(frozen=True)
class Command:
    """One line of the script. values: its parameters."""

    verb: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.verb, *(f"{name}={_shown(value)}" for name, value in self.values.items())])

    @property
    def payment(self) -> str:
        """Which payment it is about; empty where it is about none."""
        return str(self.values.get("payment", ""))

    @property
    def message(self) -> str:
        """Which message it is about; empty where it is about none."""
        return str(self.values.get("message", ""))


def read_parts(
    text: str, head: re.Pattern[str], verbs: Collection[str], *, begins: str
) -> tuple[re.Match[str], list[re.Match[str]]]:
    """The head of the first history in a text, and its commands.

    begins: how a head begins, for the error. Lines that begin with # are for people; what is printed around a script is
    skipped, and it ends where a violation is named.
    """
    lines = (line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#"))
    found = next((match for match in map(head.fullmatch, lines) if match), None)
    if found is None:
        raise InvalidValue(f"The script has no line that begins with: {begins} ...")
    commands = []
    for line in lines:
        if line.startswith("["):  # what was violated: the script is over
            break
        match = _COMMAND.fullmatch(line)
        if match is None or match["verb"] not in verbs:
            raise InvalidValue(f"This line of the script is no command: {line}")
        commands.append(match)
    return found, commands


def read_commands(matches: Collection[re.Match[str]], kinds: Kinds) -> tuple[Command, ...]:
    """kinds: how the parameters that are no text are read."""
    return tuple(Command(match["verb"], dict(_values(match["values"], kinds))) for match in matches)


def read_answers(matches: Collection[re.Match[str]]) -> dict[int, str]:
    """The number of each command whose answer is written down, to that answer."""
    return {number: match["answer"] for number, match in enumerate(matches, 1) if match["answer"]}


def _values(text: str, kinds: Kinds) -> Iterator[tuple[str, Any]]:
    for pair in text.split():
        name, _, value = pair.partition("=")
        yield name, kinds.get(name, str)(value)


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
