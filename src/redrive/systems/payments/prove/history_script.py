"""Reads written histories, in the form in which they are printed. Pure.

    history 0: rail with lookup only, no statement, 1 relays, timeout 0.3 s
      1 submit payment=pay-1 participant=p1 amount=5.00 faults=late -> new
      2 deny payment=pay-1 by=bob,carol -> delivered

Numbers, answers (after `->`) and lines that begin with # are for people; what is printed around a script is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from redrive.kit.proof import commands
from redrive.systems.payments.prove.drawing import ABILITY_NAMES, VERBS, History

_HEAD: Final = re.compile(
    rf"history (?P<seed>\d+): rail with (?P<rail>{'|'.join(ABILITY_NAMES.values())}),"
    r" (?P<statement>a|no) statement, (?P<relays>\d+) relays,"
    r" timeout (?P<timeout>[\d.]+) s(?P<other>.*)"
)
_KINDS: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(["by", "faults"], lambda text: text.split(",")),
    **dict.fromkeys(["seconds", "overlap_seconds"], float),
    **dict.fromkeys(["relay", "draw"], int),
    **dict.fromkeys(["out_of_order", "declared", "after_statement"], lambda text: text == "True"),
}


def read_script(text: str) -> History:
    """InvalidValue where there is none, or where a line is not one of its commands."""
    head, found = _parts(text)
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
        commands=commands.read_commands(found, _KINDS),
    )


def answers_of(text: str) -> dict[int, str]:
    """The number of each command whose answer is written down, to that answer."""
    return commands.read_answers(_parts(text)[1])


def _parts(text: str) -> tuple[re.Match[str], list[re.Match[str]]]:
    return commands.read_parts(text, _HEAD, VERBS, begins="history SEED: rail with")
