"""The verbs and the states that the interleavings are made of.

A verb is one SQL call on the one message of a case. Time is a number of seconds that grows with every verb issued,
by far more than the lease of a claim, so that a claim made in a case has run out for the reap that follows it; only
`leased` begins with a lease that outlives the case, and `renew` makes one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import UUID

from tests.interleavings.sessions import Reply
from tests.interleavings.subject import Call, Holder, Subject

OWNER: Final = UUID("00000000-0000-4000-8000-00000000000a")
LEASE_SECONDS: Final = 30
RENEWED_SECONDS: Final = 6000

CORE: Final = (
    "claim",
    "deliver",
    "retry",
    "retry_in_doubt",
    "park",
    "reap",
    "requeue",
    "cancel",
    "hand_back",
    "renew",
)
# What else can do something in a state; the complete run tries all of them everywhere.
EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "pending": (),
    "pending_future": (),
    "pending_expired": ("expire",),
    "suspect": (),
    "leased": ("reap_owner", "discard"),
    "leased_run_out": ("discard",),
    "dead": ("confirm", "discard"),
    "held": ("confirm", "deny", "discard"),
    "unrecorded": ("repair", "discard"),
    "closed": (),
}
STATES: Final = tuple(EXTRAS)
ALL_VERBS: Final = (*CORE, "expire", "confirm", "deny", "repair", "discard", "reap_owner")

# These look past a row that somebody else has locked; they never wait for anybody.
SKIPPING: Final = frozenset({"claim", "reap", "reap_owner", "renew", "expire"})
SETTLING: Final = frozenset({"deliver", "retry", "retry_in_doubt", "park"})

# Out of parked by a person's decision: it may be attempted again whatever was said before.
REVIVING: Final = frozenset({"requeue", "deny", "confirm", "repair"})


def worker_of(session: int) -> UUID:
    return UUID(int=OWNER.int + 1 + session)


def holder_of(state: str) -> Holder:
    """Nobody has ever claimed a message that is simply pending: attempt 0 is refused for good."""
    return Holder(OWNER, 0 if state.startswith("pending") else 1)


def call(verb: str, *, subject: str, session: int, holder: Holder, now: str) -> Call:
    """The statement of a verb. The session's own worker claims; the holder settles."""
    worker = worker_of(session) if verb == "claim" else holder.worker
    values = {
        "id": f"'{subject}'::uuid",
        "worker": f"'{worker}'::uuid",
        "attempt": str(holder.attempt),
        "now": now,
        "act": "'ann', 'looked into it'",
    }
    return Call(verb, worker, holder.attempt, _STATEMENTS[verb].format(**values))


_STATEMENTS: Final[dict[str, str]] = {
    "claim": f"SELECT interleaving.claim({{worker}}, {LEASE_SECONDS}, {{now}})",
    "deliver": "SELECT interleaving.deliver({worker}, {id}, {attempt}, {now})",
    "retry": "SELECT interleaving.settle({worker}, {id}, {attempt}, 'retry', {now})",
    "retry_in_doubt": "SELECT interleaving.settle({worker}, {id}, {attempt}, 'retry_in_doubt', {now})",
    "park": "SELECT interleaving.settle({worker}, {id}, {attempt}, 'dead', {now})",
    "reap": "SELECT redrive.reap_1(10, NULL, {now})",
    "reap_owner": f"SELECT redrive.reap_1(10, '{OWNER}', {{now}})",
    "requeue": "SELECT redrive.requeue_1({id}, {act}, NULL, false, {now})",
    "cancel": "SELECT redrive.cancel_1({id}, NULL, NULL, {now})",
    "hand_back": "SELECT attempt FROM redrive.hand_back_1({worker}, ARRAY[{id}], ARRAY[{attempt}], {now})",
    "renew": (
        "SELECT attempt FROM redrive.renew_1"
        f"({{worker}}, ARRAY[{{id}}], ARRAY[{{attempt}}], {RENEWED_SECONDS}, {{now}})"
    ),
    "expire": "SELECT redrive.expire_1(10, {now})",
    "confirm": "SELECT redrive.confirm_1({id}, {act}, 'reference', {now})",
    "deny": "SELECT redrive.deny_1({id}, {act}, {now})",
    "repair": "SELECT redrive.repair_1({id}, {act}, {now})",
    "discard": "SELECT redrive.discard_1({id}, {act}, {now})",
}


def claimed(call: Call, reply: Reply) -> Holder | None:
    if call.verb == "claim" and (reply.value or "").isdigit():
        return Holder(call.worker, int(reply.value or 0))
    return None


MESSAGE: Final = Subject(
    helpers=(Path(__file__).parent / "states.sql").read_text(),
    prepare=f"SELECT interleaving.clear(); SELECT interleaving.prepare('{{state}}', '{OWNER}', {{now}})",
    facts="SELECT interleaving.facts('{subject}')",
    skipping=SKIPPING,
    holder_of=holder_of,
    call=call,
    claimed=claimed,
)
