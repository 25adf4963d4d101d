"""What must hold at the end of a history, judged by the rail's ledger; of the database only its reports count. Pure.

Each violation is a sentence that begins with its class in brackets.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from redrive.systems.payments.prove.drawing import CURRENCY, History
from redrive.systems.payments.rail.ledger import Effect


@dataclass(frozen=True)
class Reported:
    """What the database says of one message of an instruction.

    state: pending, leased, dead, held, unrecorded, or how it was closed. tokens: those that its attempts have used.
    """

    instruction_id: str
    key: str
    state: str
    in_doubt: bool
    has_evidence: bool
    tokens: frozenset[str]

    @property
    def is_said_unpaid(self) -> bool:
        return self.state in ("dead", "cancelled", "discarded", "skipped", "expired") and not (
            self.in_doubt or self.has_evidence
        )


def judged(
    history: History, effects: Sequence[Effect], reported: Sequence[Reported], *, disordered: Collection[str] = ()
) -> list[str]:
    """disordered: payments that people took out of their order, or that a restore may have numbered anew."""
    wanted = {command.payment: command.values for command in history.submits}
    made: dict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        made[effect.instruction_id].append(effect)
    told: dict[str, list[Reported]] = defaultdict(list)
    for one in reported:
        told[one.instruction_id].append(one)
    return [
        *_paid_once(made),
        *_paid_right(wanted, effects),
        *_reported_right(wanted, made, told),
        *_in_order(effects, disordered),
    ]


def _paid_once(made: Mapping[str, Sequence[Effect]]) -> Iterator[str]:
    for payment, effects in made.items():
        if len(effects) > 1:
            entries = ", ".join(f"{one.reference} by token {one.token}" for one in effects)
            yield f"[paid twice] {payment} has {len(effects)} effects in the rail's ledger: {entries}."


def _paid_right(wanted: Mapping[str, Mapping[str, str]], effects: Sequence[Effect]) -> Iterator[str]:
    for effect in effects:
        asked = wanted.get(effect.instruction_id)
        if asked is None:
            yield f"[never asked for] {effect.instruction_id} was paid, and was never submitted."
        elif (Decimal(effect.amount), effect.currency, effect.participant_id) != (
            Decimal(asked["amount"]),
            CURRENCY,
            asked["participant"],
        ):
            yield (
                f"[other terms] {effect.instruction_id} was to be {asked['amount']} {CURRENCY} for"
                f" {asked['participant']}, and {effect.amount} {effect.currency} for {effect.participant_id} was paid."
            )


def _reported_right(
    wanted: Collection[str], made: Mapping[str, Sequence[Effect]], told: Mapping[str, Sequence[Reported]]
) -> Iterator[str]:
    for payment in wanted:
        reports = told.get(payment, ())
        if not made.get(payment) and any(one.state == "delivered" for one in reports):
            yield f"[reported as paid] {payment} is reported as delivered, and the rail has not paid it."
        for effect in made.get(payment, ()):
            payer = next((one for one in reports if effect.token in one.tokens), None)
            if payer is not None and payer.is_said_unpaid and len(reports) > 1:
                yield (
                    f"[second key] {payment} was paid under key {payer.key!r}, which is reported as {payer.state}"
                    " without doubt, and a second key was accepted."
                )


def _in_order(effects: Sequence[Effect], disordered: Collection[str]) -> Iterator[str]:
    last: dict[str, Effect] = {}
    for effect in sorted(effects, key=lambda one: one.effected_at):
        if effect.instruction_id in disordered:
            continue
        before = last.get(effect.participant_id)
        if before is not None and before.sequence_id > effect.sequence_id:
            yield (
                f"[out of order] {effect.instruction_id}, number {effect.sequence_id} of {effect.participant_id}, was"
                f" paid after number {before.sequence_id} ({before.instruction_id})."
            )
        else:
            last[effect.participant_id] = effect
