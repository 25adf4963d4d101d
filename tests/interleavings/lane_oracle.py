"""What must hold of a lane after every case: one place for each message, one lease, numbers without gaps, nobody has
overtaken anybody, and quiescence: what may go, goes, without another message and with nothing for the duty to mend.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.interleavings.cases import Ran
from tests.interleavings.lane_verbs import LANE, NEVER, SETTLING
from tests.interleavings.oracle import ENDING_A_CLAIM, statements

CLAIM_ENDS = ENDING_A_CLAIM | {"complete"}
LEFT_TO_THE_DUTY = {"complete_rr", "enqueue_sms"}
SETTLED_BEFORE = {"empty": 1, "halting": 1, "held": 1, "going_on": 1, "behind_three": 1, "halted_behind_three": 2}


def broken(ran: Ran) -> list[str]:
    """The sentences that are not true of this case; none when all is well."""
    return [
        *statements(ran, LANE.skipping),
        *_places(ran.facts),
        *_attempts(ran.facts),
        *_outcomes(ran),
        *_order(ran),
        *_quiescence(ran),
    ]


def _places(facts: dict[str, Any]) -> Iterator[str]:
    for sequence, message in enumerate(facts["messages"], start=1):
        closings = [row for row in message["archive"] if row["closed"]]
        found = [name for name in ("pending", "lease", "parked") if message[name]] + ["closed"] * len(closings)
        if len(found) != 1:
            yield f"message {sequence} is in {found or 'no place'}"
    if sum(message["lease"] is not None for message in facts["messages"]) > 1:
        yield "two messages of the lane are in hand"
    numbers = facts["stream"]["numbers"]
    if numbers != list(range(1, facts["stream"]["last"] + 1)):
        yield f"the numbers are {numbers}, the last one given is {facts['stream']['last']}"


def _attempts(facts: dict[str, Any]) -> Iterator[str]:
    for sequence, message in enumerate(facts["messages"], start=1):
        ended = [row["attempt"] for row in message["archive"] if row["verb"] in CLAIM_ENDS]
        held = [message["lease"]["attempt"]] if message["lease"] else []
        if sorted(ended + held) != list(range(1, len(ended + held) + 1)):
            yield f"attempts of message {sequence} ended {ended}, held {held}: not dense"


def _outcomes(ran: Ran) -> Iterator[str]:
    """An outcome is accepted once for its claim; a refused one is kept as evidence; a rolled back one is neither."""
    answers = [
        ran.replies[session].value or ""
        for session, call in enumerate(ran.calls)
        if call.verb.removesuffix("_rr") in SETTLING and ran.case.commits[session] and session not in ran.undone
    ]
    accepted = SETTLED_BEFORE.get(ran.case.state, int(ran.case.state == "before_a_suspect"))
    accepted += sum(answer.startswith("settled") for answer in answers)
    archived = [row for m in ran.facts["messages"] for row in m["archive"] if row["verb"] in {"settle", "complete"}]
    if len(archived) != accepted:
        yield f"{accepted} outcomes were accepted, {len(archived)} are in the archive"
    late = sum(message["late"] for message in ran.facts["messages"])
    if late != answers.count("refused"):
        yield f"{answers.count('refused')} outcomes were refused, {late} are kept as late answers"


def _order(ran: Ran) -> Iterator[str]:
    for call, reply in zip(ran.calls, ran.replies, strict=True):
        answer = reply.value or ""
        if "overtakes" in answer:
            yield f"{call.verb} said {answer}"
        never = NEVER.get(ran.case.state, {}).get(call.verb)
        if never and ran.case.verbs[0] == call.verb and re.fullmatch(never, answer):
            yield f"{call.verb} said {answer} of a lane that is {ran.case.state}"
    if any("overtakes" in said for said in ran.facts["drained"]):
        yield f"the rest went out as {ran.facts['drained']}"


def _quiescence(ran: Ran) -> Iterator[str]:
    mended, astray = ran.facts["mended"], ran.facts["astray"]
    # A look as old as its transaction cannot know of a head for another destination: that one is left to the duty.
    if (mended or astray) and not LEFT_TO_THE_DUTY.issubset(ran.case.verbs):
        yield f"the lane was forgotten: {astray} heads without a token of their own, {mended} mended"
    if mended != astray:
        yield f"{astray} heads without a token of their own, but {mended} mended"
    if any(said.startswith("left") for said in ran.facts["drained"]):
        yield f"not everything went out: {ran.facts['drained']}"
