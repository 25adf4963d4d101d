"""What must hold, judged by the rails' ledgers and by what was to be paid. Pure.

Each rule gives one sentence with ids for every violation.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from redrive.systems.payments.rail.ledger import Effect
from redrive.systems.payments.rail.script import Fault
from redrive.systems.payments.validation import Instruction

Line = Mapping[str, Any]
# After these answers everybody knows that nothing was paid: the next request needs no question before it.
DEFINITIVE = frozenset({Fault.THROTTLED, Fault.UNAVAILABLE})
SHOWN = 5


def paid_once(wanted: Sequence[Instruction], made: Sequence[Effect]) -> Iterator[str]:
    counts = Counter(effect.instruction_id for effect in made)
    ids = {instruction.instruction_id for instruction in wanted}
    yield from _named("were paid more than once", [name for name, count in counts.items() if count > 1])
    yield from _named("were never paid", [name for name in ids if not counts[name]])
    yield from _named("were paid without an instruction", [name for name in counts if name not in ids])


def paid_to_the_cent(wanted: Sequence[Instruction], made: Sequence[Effect]) -> Iterator[str]:
    asked = {one.instruction_id: (Decimal(one.amount), one.currency, one.participant_id) for one in wanted}
    wrong = [
        effect.instruction_id
        for effect in made
        if asked.get(effect.instruction_id) != (Decimal(effect.amount), effect.currency, effect.participant_id)
    ]
    yield from _named("were paid with another amount, currency or participant", wrong)
    for currency in sorted({one.currency for one in wanted}):
        want = sum(Decimal(one.amount) for one in wanted if one.currency == currency)
        have = sum(Decimal(effect.amount) for effect in made if effect.currency == currency)
        if want != have:
            yield f"{want} {currency} were to be paid, and {have} were."


def in_order(lines: Sequence[Line]) -> Iterator[str]:
    """A participant's payment was first asked for after the one before it was made and asked for the last time."""
    first: dict[tuple[str, int], float] = {}
    last: dict[tuple[str, int], float] = {}
    for line in lines:
        if line["log"] == "request" and line["call"] == "send":
            key, at = (line["participant_id"], line["sequence_id"]), line["at"]
        elif line["log"] == "effect":
            key, at = (line["participant_id"], line["sequence_id"]), line["effected_at"]
        else:
            continue
        first[key] = min(first.get(key, at), at)
        last[key] = max(last.get(key, at), at)
    overtaken = [
        f"{participant} {number}"
        for (participant, number), at in first.items()
        if last.get((participant, number - 1), at) > at
    ]
    yield from _named("were sent before the payment before them was over", overtaken)


def without_gaps(numbers: Mapping[str, Sequence[int]]) -> Iterator[str]:
    broken = [name for name, found in numbers.items() if sorted(found) != list(range(1, len(found) + 1))]
    yield from _named("participants have gaps in their numbers", broken)


def asked_before_sent_again(lines: Sequence[Line]) -> Iterator[str]:
    """Between two sends of a token is a question that was answered with no, unless the first was refused."""
    unsure: dict[str, bool] = {}
    blind: list[str] = []
    for line in lines:
        token = line.get("token", "")
        if line["log"] == "looked_up" and not line["found"]:
            unsure[token] = False
        elif line["log"] == "request" and line["call"] == "send":
            if unsure.get(token):
                blind.append(token)
            unsure[token] = line["fault"] not in DEFINITIVE
    yield from _named("were sent again without a question", blind)


def held_when_too_late(late: Collection[str], *, held: Collection[str], found: Collection[str | None]) -> Iterator[str]:
    """A rail that forgets tokens: a payment that was made late is held, unless it was `found` by a question after the
    effect.
    """
    yield from _named(
        "were paid late, and are neither held nor found", [one for one in late if one not in {*held, *found}]
    )
    yield from _named("are held, and nothing was late with them", [one for one in held if one not in late])
    if not held:
        yield "Nothing was held: no effect came after its question, and nothing was tried."


def counted(lines: Sequence[Line]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for line in lines:
        if line["log"] == "request":
            found["requests" if line["call"] == "send" else "questions"] += 1
            if line["fault"]:
                found[f"fault: {line['fault']}"] += 1
        elif line["log"] in ("effect", "repeat"):
            found["effects" if line["log"] == "effect" else "answered as duplicates"] += 1
    return dict(found)


def _named(what: str, found: Sequence[str]) -> Iterator[str]:
    if found:
        shown = ", ".join(sorted(found)[:SHOWN])
        yield f"{len(found)} {what}: {shown}{' …' if len(found) > SHOWN else ''}."
