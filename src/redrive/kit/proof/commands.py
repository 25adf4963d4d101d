"""Histories and the commands that they consist of: drawn from a seed, printed as a script, and read again."""

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

from redrive.errors import InvalidValue

_COMMAND: Final = re.compile(r"(?:\d+ )?(?P<verb>[a-z_]+)(?P<values>(?: [a-z_]+=\S+)*)(?: -> (?P<answer>.+))?")

# Parameters that are no text.
_KINDS: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(["by", "faults"], lambda text: text.split(",")),
    **dict.fromkeys(["seconds", "by_seconds", "expires_seconds", "overlap_seconds"], float),
    **dict.fromkeys(["relay", "draw"], int),
    **dict.fromkeys(["out_of_order", "whole", "declared", "after_statement"], lambda text: text == "True"),
}


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


@dataclass(frozen=True)
class ScriptReader:
    """Reads the first history in a text; what is printed around it is skipped. begins: how a head is written."""

    head: re.Pattern[str]
    verbs: frozenset[str]
    begins: str

    def read(self, text: str) -> tuple[re.Match[str], tuple[Command, ...]]:
        """The head, and the commands. Raises InvalidValue."""
        head, found = self._parts(text)
        return head, tuple(Command(match["verb"], dict(_values(match["values"]))) for match in found)

    def answers(self, text: str) -> dict[int, str]:
        """Those that are written down, by the number of the command."""
        return {number: match["answer"] for number, match in enumerate(self._parts(text)[1], 1) if match["answer"]}

    def _parts(self, text: str) -> tuple[re.Match[str], list[re.Match[str]]]:
        lines = (line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#"))
        head = next((match for match in map(self.head.fullmatch, lines) if match), None)
        if head is None:
            raise InvalidValue(f"The script has no line that begins with: {self.begins} ...")
        commands = []
        for line in lines:
            if line.startswith("["):  # what was violated: the script is over
                break
            match = _COMMAND.fullmatch(line)
            if match is None or match["verb"] not in self.verbs:
                raise InvalidValue(f"This line of the script is no command: {line}")
            commands.append(match)
        return head, commands


def _values(text: str) -> Iterator[tuple[str, Any]]:
    for pair in text.split():
        name, _, value = pair.partition("=")
        yield name, _KINDS.get(name, str)(value)


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
