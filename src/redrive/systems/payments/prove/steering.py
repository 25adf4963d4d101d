"""Draws what people do next by where the payments are, so that most acts meet the guards that are made for them. Pure.

What was drawn stands in the script, so a script that is repeated or shrunk draws nothing.
"""

import random
from collections.abc import Iterable, Sequence
from typing import Any, Final

from redrive.kit.proof.acts import Situations, drawn_act
from redrive.kit.proof.commands import Command
from redrive.systems.payments.prove.drawing import APPROVER, PEOPLE
from redrive.systems.payments.prove.judging import Reported

# What the engine answers where it does not let people do something to money.
GUARDS: Final = ("evidence", "second_person", "approver", "in_doubt", "owned", "one_stage", "moved_on")
_SITUATIONS: Final[Situations] = {
    "evidence": (
        12,
        {"requeue": 2, "deny": 3, "edit": 2, "replay": 2, "copy": 1, "discard": 2, "skip": 2, "cancel": 2, "confirm": 1}
        | {"second_key": 2},
    ),
    "held": (6, {"deny": 6, "confirm": 2, "discard": 2, "edit": 1, "requeue": 1, "skip": 2, "cancel": 1, "replay": 1}),
    "dead": (
        6,
        {"requeue": 6, "edit": 5, "discard": 2, "replay": 3, "confirm": 1, "skip": 1, "copy": 2, "second_key": 1},
    ),
    "dead in doubt": (
        8,
        {"edit": 4, "requeue": 3, "replay": 2, "discard": 2, "confirm": 1, "copy": 1, "second_key": 1},
    ),
    "pending in doubt": (5, {"cancel": 3, "skip": 3, "app_cancel": 3, "second_key": 2, "again": 1, "discard": 1}),
    "pending": (2, {"cancel": 2, "skip": 2, "app_cancel": 2, "again": 1, "copy": 1}),
    "closed unpaid": (2, {"copy": 4, "second_key": 3, "again": 1, "requeue": 1}),
    "over": (1, {"second_key": 3, "again": 2, "copy": 2, "requeue": 1, "discard": 1, "confirm": 1}),
}
_OF_PRODUCERS: Final = frozenset({"second_key", "again", "app_cancel"})
_BOTH: Final = ["alice", APPROVER]


def situation_of(one: Reported) -> str:
    if one.has_evidence and one.state in ("dead", "held", "pending", "leased"):
        return "evidence"
    if one.state in ("dead", "held"):
        return "dead in doubt" if one.state == "dead" and one.in_doubt else one.state
    if one.state in ("pending", "leased"):
        return "pending in doubt" if one.in_doubt else "pending"
    return "closed unpaid" if one.state in ("cancelled", "discarded", "skipped", "expired") else "over"


def acts(draw: int, seen: Iterable[Reported], payments: Sequence[str]) -> list[Command]:
    """One act, and sometimes what follows it."""
    if not payments:
        return []
    return _Drawing(draw, seen, payments).drawn()


class _Drawing:
    def __init__(self, draw: int, seen: Iterable[Reported], payments: Sequence[str]) -> None:
        self._chance = random.Random(f"payments/act/{draw}")
        self._draw = draw
        self._keys = 0
        self._found = dict.fromkeys(payments, "over")
        for one in seen:
            before = self._found.get(one.instruction_id)
            if before:
                self._found[one.instruction_id] = max(
                    before, situation_of(one), key=lambda there: _SITUATIONS[there][0]
                )

    def drawn(self) -> list[Command]:
        payment, verb = drawn_act(self._chance, self._found, _SITUATIONS)
        first = self._command(verb, payment)
        if verb not in _OF_PRODUCERS and self._chance.random() < 0.15:
            return self._interrupted(first)
        return [first, *self._following(verb, payment)]

    def _command(self, verb: str, payment: str, **values: Any) -> Command:
        values = {"payment": payment, **values}
        if verb not in _OF_PRODUCERS:
            values.setdefault("by", self._people())
        match verb:
            case "requeue":
                self._sometimes(0.25, values, stage="again")
                self._sometimes(0.6, values, out_of_order=True)
            case "replay":
                self._sometimes(0.25, values, stage="again")
            case "edit":
                values.setdefault("field", self._chance.choice(["iban", "iban", "idempotency_key"]))
            case "copy" | "second_key":
                self._keys += 1
                values["key"] = f"key-{self._draw}-{self._keys}"
        return Command(verb, values)

    def _interrupted(self, act: Command) -> list[Command]:
        """Another pair changes the payment between a proposal and its approval."""
        between = self._command(
            self._chance.choice(["edit", "requeue", "deny", "discard"]), act.payment, by=["bob", APPROVER]
        )
        return [
            Command(act.verb, {**act.values, "by": ["alice"]}),
            between,
            Command(act.verb, {**act.values, "by": [APPROVER]}),
        ]

    def _following(self, verb: str, payment: str) -> list[Command]:
        following = []
        if verb == "discard" and self._chance.random() < 0.4:
            following += [
                self._command("copy", payment, by=_BOTH),
                Command("quiet", {"seconds": 2.0}),
                self._command("edit", payment, by=_BOTH, field="idempotency_key"),
            ]
        if verb in ("edit", "discard") and self._chance.random() < 0.7:
            following.append(Command("requeue", {"payment": payment, "by": ["bob", APPROVER], "out_of_order": True}))
        if verb in ("cancel", "discard", "skip", "app_cancel") and self._chance.random() < 0.5:
            following.append(self._command("second_key", payment))
        return following

    def _people(self) -> list[str]:
        """The right pair most often; else one person, the same twice, or two of whom none may approve."""
        if self._chance.random() < 0.7:
            return [self._chance.choice(["alice", "bob"]), APPROVER]
        first = self._chance.choice(PEOPLE)
        return [first, self._chance.choice(PEOPLE)] if self._chance.random() < 0.6 else [first]

    def _sometimes(self, share: float, values: dict[str, Any], **more: Any) -> None:
        if self._chance.random() < share:
            values.update(more)
