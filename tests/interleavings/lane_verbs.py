"""The verbs and the states of one lane: an ordering key with one, two or three messages.

Time grows with every verb as in `verbs`: a claim made in a case has run out for the reap that follows it, only the
claim that a state begins with outlives the case. What is not due in a state, or after `retry_later`, is not due in the
case at all, but long before the lane is drained at its end.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.interleavings.sessions import Reply
from tests.interleavings.subject import Call, Holder, Subject
from tests.interleavings.verbs import LEASE_SECONDS, OWNER, worker_of

SETTLING: Final = ("deliver", "deliver_next", "retry", "retry_later", "halt", "go_on", "advance", "complete")
CLAIMING: Final = ("claim", "claim_mail", "claim_sms", "claim_suspect")

_PARKED: Final = ("claim", "enqueue", "requeue", "requeue_in_turn", "discard", "skip", "cancel_next", "reap")
_WAITING: Final = (
    "claim",
    "enqueue",
    "skip",
    "cancel_head",
    "cancel_next",
    "expire",
    "deliver_next",
    "hand_back",
    "reap",
)
# What can do something in a state; the complete run tries all of them everywhere.
VERBS: Final[dict[str, tuple[str, ...]]] = {
    "empty": ("claim", "enqueue", "skip", "cancel_next", "deliver_next"),
    "pending": (*_WAITING, "retry", "halt", "go_on"),
    "pending_three": ("claim", "enqueue", "skip", "cancel_head", "cancel_next", "deliver_next", "go_on"),
    "delayed": ("claim", "enqueue", "skip", "cancel_head", "cancel_next"),
    "expired": ("claim", "enqueue", "skip", "cancel_head", "cancel_next", "expire"),
    "suspect": ("claim", "claim_suspect", "enqueue", "skip", "cancel_head", "cancel_next", "deliver"),
    "leased_alone": (*SETTLING, "complete_rr", "claim", "enqueue", "enqueue_sms", "hand_back", "cancel_head", "skip"),
    "leased": (
        *SETTLING,
        "complete_rr",
        "claim",
        "enqueue",
        "hand_back",
        "reap_owner",
        "cancel_head",
        "cancel_next",
        "skip",
    ),
    "leased_three": ("claim", "deliver", "deliver_next", "go_on", "hand_back", "reap_owner", "cancel_next", "enqueue"),
    "run_out": (
        "claim",
        "claim_suspect",
        "deliver_next",
        "retry",
        "hand_back",
        "reap",
        "cancel_head",
        "cancel_next",
        "skip",
    ),
    "halting": _PARKED,
    "held": ("claim", "enqueue", "deny", "confirm", "discard", "skip", "cancel_next"),
    "going_on": _PARKED,
    "behind_three": (
        "requeue",
        "requeue_in_turn",
        "discard",
        "claim",
        "deliver_next",
        "hand_back",
        "reap_owner",
        "cancel_next",
    ),
    "halted_behind_three": ("requeue", "requeue_in_turn", "requeue_next", "skip", "discard", "claim", "enqueue"),
    "other_destination": (
        "claim",
        "claim_mail",
        "deliver",
        "deliver_next",
        "complete",
        "complete_rr",
        "hand_back",
        "reap_owner",
    ),
    "other_expired": ("claim", "claim_mail", "claim_sms", "enqueue", "skip", "cancel_head", "expire"),
    "other_token": ("claim", "claim_mail", "enqueue", "skip", "cancel_next", "expire"),
    "paused": ("claim", "deliver_next", "hand_back", "reap_owner", "cancel_next", "enqueue", "skip"),
    "before_a_suspect": (
        "claim",
        "claim_suspect",
        "deliver",
        "deliver_next",
        "hand_back",
        "reap_owner",
        "cancel_next",
        "skip",
    ),
}
STATES: Final = tuple(VERBS)
# Three at once: whoever holds the head, whoever comes, whoever looks, and what a person does meanwhile.
TRIPLES: Final[dict[str, tuple[str, ...]]] = {
    "pending": ("claim", "enqueue", "deliver_next", "retry", "cancel_head", "cancel_next", "skip", "reap"),
    "suspect": ("claim", "claim_suspect", "enqueue", "cancel_head", "skip", "deliver"),
    "leased_alone": (
        *("claim", "enqueue", "enqueue_sms", "deliver", "deliver_next", "go_on", "complete", "complete_rr"),
        *("hand_back", "skip"),
    ),
    "leased": (
        *("claim", "enqueue", "deliver", "deliver_next", "retry_later", "go_on", "halt", "hand_back", "reap_owner"),
        *("cancel_next", "skip", "complete_rr"),
    ),
    "run_out": ("claim", "claim_suspect", "reap", "deliver_next", "hand_back", "cancel_head", "cancel_next", "skip"),
    "going_on": ("claim", "enqueue", "requeue", "requeue_in_turn", "discard", "skip", "cancel_next", "reap"),
    "behind_three": ("claim", "requeue", "requeue_in_turn", "deliver_next", "hand_back", "cancel_next", "reap_owner"),
    "halted_behind_three": ("claim", "requeue", "requeue_next", "skip", "discard", "deny"),
}

# An answer that must never occur in a state, whatever runs beside it: the head is not to go.
NEVER: Final[dict[str, dict[str, str]]] = {
    "delayed": {"claim": r"[12]/.*"},
    "paused": {"claim": r"\d+/.*", "deliver_next": r"settled, then .*"},
    "before_a_suspect": {"claim": r"2/.*", "deliver_next": r"settled, then .*"},
    "other_token": {"claim_mail": r"2/.*"},
    "other_destination": {"claim_mail": r"2/.*", "deliver_next": r"settled, then .*"},
}


def holder_of(state: str) -> Holder:
    """Who has the head in hand, or has had it; attempt 0 where nobody ever had: refused, unless a case claims first."""
    if state == "behind_three":
        return Holder(OWNER, 1, 2)
    if state == "before_a_suspect":
        return Holder(OWNER, 2, 1)
    return Holder(
        OWNER, 0 if state in {"pending", "pending_three", "delayed", "expired", "other_expired", "other_token"} else 1
    )


def call(verb: str, *, subject: str, session: int, holder: Holder, now: str) -> Call:
    worker = worker_of(session) if verb in CLAIMING else holder.worker
    values = {
        "worker": f"'{worker}'::uuid",
        "sequence": holder.sequence,
        "attempt": holder.attempt,
        "now": now,
        "lease": LEASE_SECONDS,
        "act": "'ann', 'looked into it'",
    }
    return Call(verb, worker, holder.attempt, _STATEMENTS[verb].format(**values))


def claimed(call: Call, reply: Reply) -> Holder | None:
    said = re.fullmatch(r"(\d+)/(\d+)", reply.value or "")
    return Holder(call.worker, int(said[2]), int(said[1])) if said and call.verb in CLAIMING else None


_SETTLE: Final = "SELECT interleaving.settle({{worker}}, {{sequence}}, {{attempt}}, '{kind}', {{now}}{more})"
_STATEMENTS: Final[dict[str, str]] = {
    "claim": "SELECT interleaving.claim({worker}, {lease}, {now})",
    "claim_mail": "SELECT interleaving.claim({worker}, {lease}, {now}, '{{mail}}')",
    "claim_sms": "SELECT interleaving.claim({worker}, {lease}, {now}, '{{sms}}')",
    "claim_suspect": "SELECT interleaving.claim_suspect({worker}, {lease}, {now})",
    "deliver": "SELECT interleaving.deliver({worker}, {sequence}, {attempt}, false, {lease}, {now})",
    "deliver_next": "SELECT interleaving.deliver({worker}, {sequence}, {attempt}, true, {lease}, {now})",
    "retry": _SETTLE.format(kind="retry", more=""),
    "retry_later": _SETTLE.format(kind="retry_later", more=""),
    "halt": _SETTLE.format(kind="halting", more=""),
    "go_on": _SETTLE.format(kind="going_on", more=""),
    "advance": _SETTLE.format(kind="advance", more=""),
    "complete": _SETTLE.format(kind="close", more=", 'complete'"),
    "complete_rr": _SETTLE.format(kind="close", more=", 'complete'"),
    "hand_back": (
        "SELECT attempt FROM redrive.hand_back_1"
        "({worker}, ARRAY[interleaving.id_of({sequence})], ARRAY[{attempt}], {now})"
    ),
    "reap": "SELECT redrive.reap_1(10, NULL, {now})",
    "reap_owner": f"SELECT redrive.reap_1(10, '{OWNER}', {{now}})",
    "expire": "SELECT redrive.expire_1(10, {now})",
    "enqueue": "SELECT interleaving.enqueue({now})",
    "enqueue_sms": "SELECT interleaving.enqueue({now}, 'sms')",
    "cancel_head": "SELECT redrive.cancel_1(interleaving.id_of(1), NULL, NULL, {now})",
    "cancel_next": "SELECT redrive.cancel_1(interleaving.id_of(2), NULL, NULL, {now})",
    "skip": "SELECT redrive.skip_1('default', 'customer:1', {act}, NULL, {now})",
    "requeue": "SELECT redrive.requeue_1(interleaving.id_of(1), {act}, NULL, true, {now})",
    "requeue_in_turn": "SELECT redrive.requeue_1(interleaving.id_of(1), {act}, NULL, false, {now})",
    "requeue_next": "SELECT redrive.requeue_1(interleaving.id_of(2), {act}, NULL, true, {now})",
    "discard": "SELECT redrive.discard_1(interleaving.id_of(1), {act}, {now})",
    "confirm": "SELECT redrive.confirm_1(interleaving.id_of(1), {act}, 'reference', {now})",
    "deny": "SELECT redrive.deny_1(interleaving.id_of(1), {act}, {now})",
}
ALL_VERBS: Final = tuple(verb for verb in _STATEMENTS if verb != "complete_rr")

LANE: Final = Subject(
    helpers=(Path(__file__).parent / "lanes.sql").read_text(),
    prepare=f"SELECT interleaving.prepare('{{state}}', '{OWNER}', {{now}})",
    facts="SELECT interleaving.facts({subject}, {now})",
    skipping=frozenset({*CLAIMING, "reap", "reap_owner", "expire"}),
    holder_of=holder_of,
    call=call,
    claimed=claimed,
    openings={"complete_rr": "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM redrive.lease"},
    forgiven={"complete_rr": frozenset({"40001"})},
    plain={"complete_rr": "complete"},
    aside=frozenset({"mended", "astray"}),
    lesser={"deliver_next": "deliver"},  # handing over is a may: what became due while it waited for the lane is left
)
