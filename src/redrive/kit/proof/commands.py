"""Histories and the commands that they consist of: drawn from a seed, printed as a script, and read again."""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

from redrive.errors import InvalidValue

_COMMAND: Final = re.compile(r"(?:\d+ )?(?P<verb>[a-z_]+)(?P<values>(?: [a-z_]+=\S+)*)(?: -> (?P<answer>.+))?")

Kinds = Mapping[str, Callable[[str], Any]]


@dataclass(frozen=True)
class Command:
    """payment, message: which one it is about; empty = none."""

    verb: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.verb, *(f"{name}={_shown(value)}" for name, value in self.values.items())])

    @property
    def payment(self) -> str:
        return str(self.values.get("payment", ""))

    @property
    def message(self) -> str:
        return str(self.values.get("message", ""))


@dataclass(frozen=True, kw_only=True)
class History(ABC):
    """own_server: PostgreSQL is stopped in it, or its settings are changed. work: the verb without which nothing is
    violated.
    """

    work: ClassVar[str]
    seed: int
    relays: int
    own_server: bool
    commands: tuple[Command, ...]

    @property
    @abstractmethod
    def head(self) -> str:
        """The first line of its script."""

    def lines(self) -> Iterator[str]:
        """Everything that is needed to repeat it."""
        yield self.head
        yield from (f"  {number:>2} {command}" for number, command in enumerate(self.commands, 1))

    def with_commands(self, commands: Sequence[Command]) -> Self:
        return replace(self, commands=tuple(commands))

    @property
    def has_work(self) -> bool:
        return any(command.verb == self.work for command in self.commands)


class HistoryWriter:
    def __init__(self, system: str, seed: int) -> None:
        self._chance = random.Random(f"{system}/history/{seed}")
        self._seed = seed
        self._commands: list[Command] = []

    def _add(self, verb: str, **values: Any) -> None:
        self._commands.append(Command(verb, values))

    def _pause(self, verb: str, least: float, most: float, digits: int = 2) -> None:
        self._add(verb, seconds=round(self._chance.uniform(least, most), digits))

    def _sometimes(self, share: float, write: Callable[[], Any]) -> None:
        if self._chance.random() < share:
            write()


def read_parts(
    text: str, head: re.Pattern[str], verbs: Collection[str], *, begins: str
) -> tuple[re.Match[str], list[re.Match[str]]]:
    """The head of the first history in a text, and its commands. What is printed around a script is skipped."""
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
    """By the number of the command."""
    return {number: match["answer"] for number, match in enumerate(matches, 1) if match["answer"]}


def _values(text: str, kinds: Kinds) -> Iterator[tuple[str, Any]]:
    for pair in text.split():
        name, _, value = pair.partition("=")
        yield name, kinds.get(name, str)(value)


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
