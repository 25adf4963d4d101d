"""What an operator's verb is: a row of the table in `table.py`, from which CLI, API and console are made."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any

from redrive.errors import InvalidValue
from redrive.operate.web.principal import Permission
from redrive.who import one_line_text


class Noun(StrEnum):
    """message: messages by their ids, each on its own. dead: dead letters, by ids or a filter. Others: one, by name."""

    MESSAGE = "message"
    DEAD = "dead"
    GROUP = "group"
    REPLAY = "replay"
    KEY = "key"
    DESTINATION = "destination"


@dataclass(frozen=True, slots=True)
class Option:
    """One value that a verb takes. The same name, bounds and help hold on the command line, in the API and in forms.

    type: str, bool, int, float, a StrEnum, or list for JSON. least, most: of text its characters. above: least itself
    is refused. one_message: refused for several messages. flag: on the command line, where it is not the name;
    "" = an argument. label: in a form; "" = not in one. http_most, http_default: of a time that a request waits.
    """

    name: str
    help: str
    type: type = str
    _: KW_ONLY
    required: bool = False
    default: Any = None
    least: float = 1
    most: float = 100
    above: bool = False
    one_message: bool = False
    flag: str | None = None
    label: str = ""
    http_most: float | None = None
    http_default: float | None = None

    def parse(self, text: str | None) -> Any:
        if text is None and self.required:
            raise InvalidValue(f"{self.label or self.name} is missing.")
        return self.default if text is None else self.check(self._typed(text))

    def _typed(self, text: str) -> Any:
        try:
            return text == "yes" if self.type is bool else self.type(text)
        except ValueError:
            kind = "a number" if self.type in (int, float) else f"one of {', '.join(self.type)}"  # type: ignore[arg-type]
            raise InvalidValue(f"{self.name} is {text!r}; it must be {kind}.") from None

    def check(self, value: Any) -> Any:
        if self.type is str:
            return one_line_text(self.name, value, most=int(self.most))
        if self.type in (int, float):
            inside = self.least <= value <= self.most and not (self.above and value == self.least)
            if not inside:
                least = f"{'above' if self.above else 'at least'} {self.least:g}"
                raise InvalidValue(f"{self.name} is {value}; it must be {least} and at most {self.most:g}.")
        return value


class Command:
    """Where a verb stands on the command line: `redrive <noun> <verb>`. help: where it is not that of the verb.

    within: the command that carries it out, where that has another name than the verb.
    """

    def __init__(self, noun: str, *examples: str, help: str = "", within: str = "") -> None:  # noqa: A002 - as in Action
        self.noun, self.examples, self.help, self.within = noun, examples, help, within


@dataclass(frozen=True, slots=True)
class Action:
    """One verb.

    help: what it does, for people; the first paragraph is also its description in the API.
    title: its button in the console.
    said: stands before the number of messages that it was done to.
    applies_to: the states, or reasons of a parked message, that it fits, and where it leads from each.
    steps: the steps of the repair of a dead letter from which the console takes it.
    one_of: options of which at least one is given.
    call: the store call: the store, what it is done to, who does it; the options by their names.
    permission, all_tenants: what it takes over HTTP.
    two_people: where the destination moves money, a second person has to ask for the same.
    final: it cannot be undone, so the command line asks.
    by_filter: also all dead letters that a filter selects.
    single: one message, with an answer of its own.
    against_evidence: refused for a message that was proven delivered.
    path: of its route, below /api/v1.
    page: the path of its form in the console.
    """

    name: str
    title: str
    help: str
    _: KW_ONLY
    noun: Noun
    call: Callable[..., Awaitable[Any]]
    commands: tuple[Command, ...]
    path: str
    page: str
    said: str = ""
    applies_to: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    one_of: tuple[str, ...] = ()
    permission: Permission = Permission.ACT
    all_tenants: bool = False
    two_people: bool = False
    final: bool = False
    by_filter: bool = False
    single: bool = False
    against_evidence: bool = False

    @property
    def summary(self) -> str:
        return " ".join(self.help.split("\n\n")[0].split())

    def require_one(self, given: Mapping[str, Any]) -> None:
        if self.one_of and all(given[name] is None for name in self.one_of):
            raise InvalidValue(f"{self.title}: give {' or '.join(self.one_of)}.")

    def command(self, noun: str) -> Command:
        return next(one for one in self.commands if one.noun == noun)
