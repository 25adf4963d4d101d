"""What operators do next in a history of the engine, drawn by where its messages are. Pure.

What was drawn stands in the script, so a script that is repeated or shrunk draws nothing.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from redrive.kit.proof.acts import Situations, drawn_act
from redrive.kit.proof.commands import Command
from redrive.prove.histories.destinations import DESTINATIONS, HEALTHY

_SITUATIONS: Final[Situations] = {
    "dead": (8, {"requeue": 6, "edit": 3, "replay": 3, "discard": 2, "confirm": 1, "skip": 1, "triage": 1, "group": 1}),
    "held": (8, {"deny": 4, "confirm": 2, "discard": 2, "skip": 1, "requeue": 1, "group": 1}),
    "unrecorded": (8, {"repair": 5, "discard": 1, "skip": 1}),
    "pending": (4, {"stop_message": 3, "skip": 2, "pause": 1, "requeue": 1}),
    "behind": (1, {"stop_message": 1, "skip": 1}),
    "leased": (3, {"stop_message": 2, "skip": 1, "pause": 1}),
    "discarded": (2, {"copy": 4}),
    "closed": (1, {"requeue": 1, "copy": 1, "discard": 1, "confirm": 1, "resume": 2, "pause": 1}),
}


def acts(draw: int, states: Mapping[str, str], paused: Sequence[str]) -> list[Command]:
    """One act, and sometimes what follows it. states: message to its state."""
    chance = random.Random(f"engine/act/{draw}")
    if paused and chance.random() < 0.5:
        return [Command("resume", {"destination": chance.choice(sorted(paused))})]
    if not states:
        return []
    found = {message: state if state in _SITUATIONS else "closed" for message, state in states.items()}
    message, verb = drawn_act(chance, found, _SITUATIONS)
    first = Command(verb, _values(chance, verb, message))
    if verb == "edit":
        return [first, Command("requeue", {"message": message})]
    return [first]


def _values(chance: random.Random, verb: str, message: str) -> dict[str, Any]:
    match verb:
        case "pause" | "resume":
            return {"destination": chance.choice([one for one in DESTINATIONS if one != HEALTHY])}
        case "requeue" | "replay" if chance.random() < 0.3:
            return {"message": message, "out_of_order": True}
        case "group":
            return {"message": message, "act": chance.choice(["resolve", "reopen", "ignore", "assign", "note"])}
    return {"message": message}
