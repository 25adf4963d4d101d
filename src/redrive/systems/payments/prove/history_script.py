"""Written histories: the form in which a history is printed, read back, so that one that was found can be kept. Pure.

    history 0: rail with lookup only, no statement, 1 relays, timeout 0.3 s
      1 submit payment=pay-1 participant=p1 amount=5.00 faults=late -> new
      2 deny payment=pay-1 by=bob,carol -> delivered

Numbers, answers (after `->`) and lines that begin with # are for people; what is printed around a script is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from redrive.errors import InvalidValue
from redrive.systems.payments.prove.histories import ABILITY_NAMES, VERBS, Command, History

_HEAD: Final = re.compile(
    r"history (?P<seed>\d+): rail with (?P<rail>[a-z ]+), (?P<statement>a|no) statement, (?P<relays>\d+) relays,"
    r" timeout (?P<timeout>[\d.]+) s(?P<other>.*)"
)
_COMMAND: Final = re.compile(r"(?:\d+ )?(?P<verb>[a-z_]+)(?P<values>(?: [a-z_]+=\S+)*)(?: -> (?P<answer>.+))?")
_KINDS: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(["by", "faults"], lambda text: text.split(",")),
    **dict.fromkeys(["seconds", "overlap_seconds"], float),
    **dict.fromkeys(["relay", "draw"], int),
    **dict.fromkeys(["out_of_order", "declared", "after_statement"], lambda text: text == "True"),
}


def read_script(text: str) -> History:
    """The first history in it; InvalidValue where there is none, or where a line is not one of its commands."""
    head, commands = _parts(text)
    other = head["other"]
    return History(
        seed=int(head["seed"]),
        ability=next(ability for ability, name in ABILITY_NAMES.items() if name == head["rail"]),
        statement=head["statement"] == "a",
        own_server="a server of its own" in other,
        mute="at first it cannot tell" in other,
        compares="relays compare" in other,
        timeout_seconds=float(head["timeout"]),
        relays=int(head["relays"]),
        commands=tuple(Command(match["verb"], dict(_values(match["values"]))) for match in commands),
    )


def answers_of(text: str) -> dict[int, str]:
    """The number of each command whose answer is written down, to that answer."""
    return {number: match["answer"] for number, match in enumerate(_parts(text)[1], 1) if match["answer"]}


def _parts(text: str) -> tuple[re.Match[str], list[re.Match[str]]]:
    lines = (line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#"))
    head = next((match for match in map(_HEAD.fullmatch, lines) if match), None)
    if head is None or head["rail"] not in ABILITY_NAMES.values():
        raise InvalidValue("The script has no line that begins with: history SEED: rail with ...")
    commands = []
    for line in lines:
        if line.startswith("["):  # what was violated: the script is over
            break
        match = _COMMAND.fullmatch(line)
        if match is None or match["verb"] not in VERBS:
            raise InvalidValue(f"This line of the script is no command: {line}")
        commands.append(match)
    return head, commands


def _values(text: str) -> Iterator[tuple[str, Any]]:
    for pair in text.split():
        name, _, value = pair.partition("=")
        yield name, _KINDS.get(name, str)(value)
