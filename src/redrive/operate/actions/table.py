"""The table of operator verbs. Command line, API and console are made from it: a row that is added is in all three.

A verb on messages needs nothing else than its row and its store call. `model.py` says what each column means.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from redrive.errors import InvalidValue
from redrive.message import MessageId, ParkReason
from redrive.operate import destination_test, operations
from redrive.operate.actions.model import Action, Command, Noun, Option
from redrive.operate.desk import groups, replays, workflow
from redrive.operate.desk.causes import Cause
from redrive.operate.desk.groups import Marking
from redrive.operate.web.principal import Permission
from redrive.store.reads.models import GroupView
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

EXAMPLE_ID: Final = "0199b2c4-7d1e-7a30-9c57-3f0a1b2c3d4e"
EXAMPLE_GROUP: Final = "3f9a0c41d2e7"
EXAMPLE_REPLAY: Final = "erp-2.4"
SNOOZE_HOURS_MAX: Final = groups.SNOOZE_MAX / timedelta(hours=1)
_WAIT_SECONDS_MAX: Final = 3600.0
_HTTP_WAIT_SECONDS_MAX: Final = 25.0  # a request that lasts longer is cut off by common proxies
_TEXT: Final = float(workflow.TEXT_MAX)
_KEY_LENGTH: Final = 1000.0

_OUT_OF_ORDER: Final = Option(
    name="out_of_order",
    type=bool,
    default=False,
    help="Also messages whose ordering key went on: before all of it that still wait.",
    label="Also if later messages of its ordering key went out without it",
)
_STAGE: Final = Option(name="stage", help="Start at this stage instead of the one that failed.")


async def _copy(store: PostgresStore, id_: MessageId, *, actor: str, reason: str, key: str) -> MessageId:
    return await workflow.copy(store, id_, key, Who(actor=actor, reason=reason))


MESSAGE_ACTIONS: Final = (
    Action(
        name="requeue",
        noun=Noun.MESSAGE,
        help="""Send dead letters again: these, or those that a filter selects.

        Same id, key and token; a fresh budget. What a filter selected is shown and asked about first. A message of an
        ordering key that has gone on without it needs --out-of-order; the refusal says how many later ones went.""",
        title="Send it again",
        call=lambda store, id_, **given: store.requeue(id_, **given),
        applies_to={"dead": "pending again, with a fresh budget"},
        options=(_STAGE, _OUT_OF_ORDER),
        commands=(
            Command(
                noun="messages",
                examples=(
                    f"{EXAMPLE_ID} --reason 'erp is back'",
                    "--destination erp --error-class HTTP_409 --dry-run --reason 'price list fixed'",
                ),
            ),
        ),
        path="/messages/{id}/{act}",
        page="/messages/{id}/{act}",
        two_people=True,
        by_filter=True,
        against_evidence=True,
    ),
    Action(
        name="cancel",
        noun=Noun.MESSAGE,
        help="""No further attempt of these messages.

        What is in flight ends as it ends, and the answer says so. A parked message is discarded instead.""",
        title="Cancel it",
        call=lambda store, id_, **given: store.cancel(id_, **given),
        applies_to={
            "pending": "cancelled: it is not sent any more",
            "leased": "no further attempt; the one under way ends as it ends",
        },
        commands=(Command(noun="messages", examples=(f"{EXAMPLE_ID} --reason 'order withdrawn'",)),),
        path="/messages/{id}/{act}",
        page="/messages/{id}/{act}",
        two_people=True,
        against_evidence=True,
    ),
    Action(
        name="confirm",
        noun=Noun.MESSAGE,
        help="It did happen: close it as delivered. It is never sent again; this cannot be undone.",
        title="Confirm that it happened",
        call=lambda store, id_, **given: store.confirm(id_, **given),
        applies_to=dict.fromkeys(("dead", "held"), "delivered, on your word; it is never sent again"),
        options=(
            Option(
                name="reference",
                help="The destination's own id of it, as evidence.",
                most=_KEY_LENGTH,
                one_message=True,
                label="Reference: the destination’s own id, if it has one",
            ),
        ),
        commands=(
            Command(noun="dead", examples=(f"{EXAMPLE_ID} --reference TX-8812 --reason 'paid by hand'",)),
            Command(noun="held", examples=(f"{EXAMPLE_ID} --reference TX-8812 --reason 'seen in the ledger'",)),
        ),
        path="/messages/{id}/{act}",
        page="/messages/{id}/{act}",
        two_people=True,
    ),
    Action(
        name="deny",
        noun=Noun.MESSAGE,
        help="It did not happen: send it again, with a fresh budget and no doubt.",
        title="It did not happen: send it again",
        call=lambda store, id_, **given: store.deny(id_, **given),
        applies_to={"held": "pending again: it is sent once more, after a lookup where the destination can be asked"},
        commands=(Command(noun="held", examples=(f"{EXAMPLE_ID} --reason 'not in the ledger'",)),),
        path="/messages/{id}/{act}",
        page="/messages/{id}/{act}",
        two_people=True,
        against_evidence=True,
    ),
    Action(
        name="repair",
        noun=Noun.MESSAGE,
        help="Run `record` again with the kept answer; a relay does it. The message is never sent.",
        title="Record its answer again",
        call=lambda store, id_, **given: store.repair(id_, **given),
        applies_to={"unrecorded": "its kept answer is recorded again; it is never sent"},
        commands=(Command(noun="unrecorded", examples=(f"{EXAMPLE_ID} --reason 'missing column added'",)),),
        path="/messages/{id}/{act}",
        page="/messages/{id}/{act}",
    ),
    Action(
        name="discard",
        noun=Noun.MESSAGE,
        help="Close parked messages for good: they are never sent. This cannot be undone.",
        title="Discard it for good",
        call=lambda store, id_, **given: store.discard(id_, **given),
        applies_to={reason.value: "discarded for good" for reason in ParkReason},
        commands=tuple(
            Command(noun=noun, help=words, examples=(f"{EXAMPLE_ID} --reason 'customer was refunded by hand'",))
            for noun, words in (
                ("dead", "Close dead letters for good: they are never sent. This cannot be undone."),
                ("held", "Close held messages although it is not known whether they happened. This cannot be undone."),
                (
                    "unrecorded",
                    "Close unrecorded messages: their answer is never recorded on your side. This cannot be undone.",
                ),
            )
        ),
        path="/messages/{id}/{act}",
        page="/messages/{id}/{act}",
        two_people=True,
        final=True,
        against_evidence=True,
    ),
    Action(
        name="copy",
        noun=Noun.MESSAGE,
        help="Enqueue a new message with the content of a discarded one. The discarded one stays discarded.",
        title="Enqueue a copy of it",
        call=_copy,
        applies_to={"discarded": "a new message with its content is enqueued, under a new key"},
        options=(
            Option(
                name="key",
                help="The idempotency key of the copy.",
                required=True,
                most=_KEY_LENGTH,
                label="Idempotency key of the copy",
            ),
        ),
        commands=(
            Command(noun="messages", examples=(f"{EXAMPLE_ID} --key order:7:again --reason 'discarded by mistake'",)),
        ),
        path="/messages/{id}/copy",
        page="/messages/{id}/{act}",
        two_people=True,
        single=True,
    ),
)

STEPS: Final = (
    Action(
        name="triage",
        noun=Noun.DEAD,
        help="Say what the cause was. It decides which evidence is needed before these can be sent again.",
        title="Set the cause",
        said="Cause set for",
        call=lambda store, ids, who, *, cause, owner=None: workflow.triage(store, ids, cause, who, owner=owner),
        applies_to={"dead": workflow.DONE["triage"]},
        steps=("open",),
        options=(
            Option(name="cause", type=Cause, required=True, help="Why it failed.", label="Cause"),
            Option(name="owner", help="Who looks into it."),
        ),
        commands=(Command(noun="dead", examples=(f"--group {EXAMPLE_GROUP} --cause data --reason 'no currency'",)),),
        path="/dead/triage",
        page="/groups/{group}/triage",
        by_filter=True,
    ),
    Action(
        name="remediate",
        noun=Noun.DEAD,
        help="Say what was done about the cause: evidence, or the ticket by which the data were corrected elsewhere.",
        title="Say what was done",
        one_of=("evidence", "ticket"),
        said="Remedy noted for",
        call=workflow.remediate,
        applies_to={"dead": workflow.DONE["remediate"]},
        steps=("triaged",),
        options=(
            Option(
                name="evidence", most=_TEXT, help="What was seen or done: the destination is up, release 2.4 is live."
            ),
            Option(name="ticket", most=_TEXT, help="Where it is written down; for data that were corrected elsewhere."),
        ),
        commands=(
            Command(
                noun="dead",
                help="""Say what was done about the cause, or change the payload.

                A changed payload is a new version of the same message, with a token of its own; the old one is kept. It
                is refused for a message that is in doubt: an earlier version may have had its effect. Needs a login
                that may read payloads. --dry-run with --patch shows the first payload before and after.

                Where the destination moves money, a changed payload is only proposed: a second person, an approver,
                sees the change and approves the very same payload with --approve.""",
                examples=(
                    f"--group {EXAMPLE_GROUP} --evidence 'erp is up since 14:02' --reason 'INC-7'",
                    f"--group {EXAMPLE_GROUP} --patch @currency.json --reason 'INC-7'",
                ),
            ),
        ),
        path="/dead/remediate",
        page="/groups/{group}/remediate",
        by_filter=True,
    ),
    Action(
        name="edit",
        noun=Noun.DEAD,
        help="Change payloads by one patch: a new version beside the old one. One it does not fit stays as it is.",
        title="Edit the payload",
        said="New version saved for",
        call=lambda store, ids, who, *, patch: workflow.edit(store, ids, patch, who),
        applies_to={"dead": workflow.DONE["edit"]},
        steps=("triaged", "remediated", "validated"),
        options=(
            Option(
                name="patch", type=list, required=True, most=1000, help="Change the payload by a JSON Patch (RFC 6902)."
            ),
        ),
        commands=(Command(noun="dead", within="remediate"),),
        path="/dead/edit",
        page="/groups/{group}/edit",
        two_people=True,
        by_filter=True,
    ),
    Action(
        name="validate",
        noun=Noun.DEAD,
        help="""Let a relay check whether they could be sent: `validate`, and `lookup` where in doubt. Nothing is sent.

        Refused without the evidence that the cause needs.""",
        title="Check whether they could be sent",
        said="A relay checked",
        call=workflow.validate,
        applies_to={"dead": workflow.DONE["validate"]},
        steps=("remediated",),
        options=(
            Option(
                name="seconds",
                type=float,
                flag="--wait",
                default=30.0,
                least=0,
                most=_WAIT_SECONDS_MAX,
                http_most=_HTTP_WAIT_SECONDS_MAX,
                http_default=0.0,
                help="How many seconds to wait for the answers of relays.",
            ),
        ),
        commands=(Command(noun="dead", examples=(f"--group {EXAMPLE_GROUP} --reason 'INC-7'",)),),
        path="/dead/validate",
        page="/groups/{group}/validate",
        by_filter=True,
    ),
    Action(
        name="ignore",
        noun=Noun.DEAD,
        help="Leave them parked; no repair is expected of anyone. `triage` takes that back.",
        title="Ignore them",
        said="Ignored:",
        call=workflow.ignore,
        applies_to={"dead": workflow.DONE["ignore"]},
        steps=("open", "triaged", "remediated", "validated"),
        commands=(Command(noun="dead", examples=(f"--group {EXAMPLE_GROUP} --reason 'test data'",)),),
        path="/dead/ignore",
        page="/groups/{group}/ignore",
        by_filter=True,
    ),
    Action(
        name="verify",
        noun=Noun.DEAD,
        help="Say that a replayed message has arrived, and close the matter. Refused unless it was delivered.",
        title="Verify",
        said="Verified:",
        call=workflow.verify,
        applies_to={"delivered": workflow.DONE["verify"]},
        commands=(Command(noun="dead", examples=(f"{EXAMPLE_ID} --reason 'seen in the ERP, INC-7 closed'",)),),
        path="/dead/verify",
        page="/replays/{replay}/verify",
    ),
)


async def _mark(
    store: PostgresStore, group: str, who: Who, *, mark: Any, value: str | None = None, hours: float | None = None
) -> GroupView:
    snooze = None if hours is None else timedelta(hours=hours)
    marking = Marking(mark=mark, actor=who.actor, reason=who.reason, value=value, snooze=snooze)
    return await groups.mark(store, group, marking)


def _group_mark(name: Any, title: str, words: str, *options: Option, example: str = "") -> Action:
    return Action(
        name=name,
        noun=Noun.GROUP,
        help=words,
        title=title,
        call=lambda store, group, who, **given: _mark(store, group, who, mark=name, **given),
        options=options,
        commands=(Command(noun="groups", examples=(f"{EXAMPLE_GROUP}{example} --reason 'erp 2.4 is live'",)),),
        path="/groups/{id}/{mark}",
        page="/groups/{group}/mark/{mark}",
        all_tenants=True,
    )


def _value(metavar: str, label: str) -> Option:
    return Option(name="value", flag="", required=True, most=_TEXT, help=metavar, label=label)


MARKS: Final = (
    _group_mark("assign", "Assign", "Say who looks into it.", _value("OWNER", "To whom"), example=" ada"),
    _group_mark(
        "note", "Note", "Write down what is known.", _value("TEXT", "What is known"), example=" 'waits for INC-7'"
    ),
    _group_mark(
        "snooze",
        "Snooze",
        "Leave it out of the list for a while.",
        Option(
            name="hours",
            type=float,
            default=24.0,
            least=0,
            above=True,
            most=SNOOZE_HOURS_MAX,
            help="How long.",
            label="For how many hours",
        ),
        example=" --hours 8",
    ),
    _group_mark("ignore", "Ignore the group", "Leave it out of the list for good. It is still counted."),
    _group_mark(
        "resolve", "Mark as resolved", "Say that the cause is gone. One failure more, and the group is regressed."
    ),
    _group_mark("reopen", "Open it again", "Say that it needs a repair after all."),
)


def _steering(name: Any, title: str, words: str, *, permission: Permission = Permission.ACT) -> Action:
    return Action(
        name=name,
        noun=Noun.REPLAY,
        help=words,
        title=title,
        call=lambda store, replay, who: replays.steer(store, replay, name, actor=who.actor, reason=who.reason),
        applies_to=dict.fromkeys(sorted(replays.FITS[name]), ""),
        commands=(Command(noun="replay", examples=(f"{EXAMPLE_REPLAY} --reason 'INC-7'",)),),
        path="/replays/{id}/approve" if name == "approve" else "/replays/{id}/{act}",
        page="/replays/{replay}/{act}",
        permission=permission,
        two_people=name == "approve",
    )


STEERING: Final = (
    _steering(
        "approve",
        "Let it begin",
        "Let a replay that moves money begin; a second person has to.",
        permission=Permission.APPROVE,
    ),
    _steering(
        "pause",
        "Send nothing more for now",
        "Send nothing more of it for now. What is under way ends as it ends.",
    ),
    _steering("resume", "Go on", "Go on with a replay that was paused, or that stopped because too many failed."),
    _steering("cancel", "Send nothing more of it", "Send nothing more of it. What was not sent stays parked."),
)
REPLAY: Final = Action(
    name="replay",
    noun=Noun.DEAD,
    help="""Send dead letters again: those that were validated, from where they failed.

    --dry-run says how many would go, and why the others would not. Where the destination moves money, a second person
    has to approve the replay.""",
    title="Replay",
    call=replays.create,
    applies_to={"dead": "sent again by the replay"},
    options=(
        Option(
            name="rate_per_second",
            type=float,
            flag="--rate",
            default=50.0,
            least=0,
            above=True,
            most=replays.RATE_MAX,
            help="Messages per second.",
        ),
        Option(
            name="canary",
            type=int,
            default=0,
            least=0,
            most=replays.CANARY_MAX,
            help="So many first; the rest if all arrive.",
        ),
        Option(
            name="failure_ratio_max",
            type=float,
            flag="--stop-at",
            default=0.1,
            least=0,
            most=1,
            help="Stop when a larger part fails.",
        ),
        Option(name="stage", help="Where each starts; default: at the stage where it failed."),
        Option(
            name="out_of_order",
            type=bool,
            default=False,
            help="Also those whose ordering key went on without them.",
        ),
        Option(
            name="override",
            type=bool,
            default=False,
            help="Also those that were not validated; the audit says so.",
        ),
    ),
    commands=(
        Command(noun="dead", examples=(f"{EXAMPLE_ID} --reason 'INC-7'",)),
        Command(
            noun="replay",
            within="create",
            examples=tuple(
                f"{EXAMPLE_REPLAY} --group {EXAMPLE_GROUP} --canary 10 --rate 50 --reason 'INC-7' {last}"
                for last in ("--dry-run", "--yes")
            ),
        ),
    ),
    path="/replays",
    page="/groups/{group}/replay",
    two_people=True,
    by_filter=True,
)
SKIP: Final = Action(
    name="skip",
    noun=Noun.KEY,
    help="""Close the head of an ordering key, so that the key goes on. It is never sent; this cannot be undone.

    What is closed is the head that is shown, and no other: if the key has gone on meanwhile, nothing is done.""",
    title="Skip the head of a key",
    call=operations.skip,
    options=(
        Option(name="sequence", type=int, least=1, most=2**63 - 1, help="Only if the head still is this number."),
    ),
    commands=(
        Command(
            noun="keys",
            examples=tuple(
                f"default customer:7 {how} --reason 'order was cancelled by phone'"
                for how in ("--dry-run", "--sequence 12 --yes")
            ),
        ),
    ),
    path="/keys/skip",
    page="/keys/skip",
    two_people=True,
    final=True,
)


async def _pause(store: PostgresStore, name: str, who: Who, *, key: str | None = None) -> bool:
    given: dict[str, Any] = {"actor": who.actor, "reason": who.reason}
    return await (store.pause(name, **given) if key is None else store.pause_key(name, key, **given))


async def _resume(store: PostgresStore, name: str, who: Who, *, key: str | None = None) -> bool:
    given: dict[str, Any] = {"actor": who.actor, "reason": who.reason}
    return await (store.resume(name, **given) if key is None else store.resume_key(name, key, **given))


_LIMIT_KEY: Final = Option(
    name="key",
    help="One limit key of it only, as `redrive destinations list` shows it.",
    label="One limit key only (empty: the whole destination)",
)
DESTINATION_ACTIONS: Final = (
    Action(
        name="pause",
        noun=Noun.DESTINATION,
        help="Send nothing there for now. What runs ends; messages wait and spend none of their attempts.",
        title="Pause",
        said="was paused already",
        call=_pause,
        options=(_LIMIT_KEY,),
        commands=(Command(noun="destinations", examples=("erp --reason 'maintenance until 18:00'",)),),
        path="/destinations/{name}/pause",
        page="/destinations/{act}/{name:path}",
        all_tenants=True,
    ),
    Action(
        name="resume",
        noun=Noun.DESTINATION,
        help="Send there again, beginning with what is due.",
        title="Resume",
        said="was not paused",
        call=_resume,
        options=(_LIMIT_KEY,),
        commands=(Command(noun="destinations", examples=("erp --reason 'erp 2.4 is live'",)),),
        path="/destinations/{name}/resume",
        page="/destinations/{act}/{name:path}",
        all_tenants=True,
    ),
    Action(
        name="test",
        noun=Noun.DESTINATION,
        help="""Let one message through to a destination whose breaker is open, or that asked for a rest.

        It is one that waits, sent by a relay as usual. If the destination answers, the others follow, slowly at first;
        if not, it is left alone for longer. Ends with 0 if it answered, with 1 if not or if no relay took the message
        in time.""",
        title="Let one through",
        call=lambda store, name, who, *, seconds: destination_test.probe(
            store, name, actor=who.actor, reason=who.reason, seconds=seconds
        ),
        options=(
            Option(
                name="seconds",
                type=float,
                flag="--wait",
                default=30.0,
                least=0,
                most=_WAIT_SECONDS_MAX,
                http_most=_HTTP_WAIT_SECONDS_MAX,
                http_default=5.0,
                help="Seconds, at most.",
            ),
        ),
        commands=(Command(noun="destinations", examples=("erp", "erp --wait 60")),),
        path="/destinations/{name}/test",
        page="/destinations/{act}/{name:path}",
        all_tenants=True,
    ),
)

ACTIONS: Final = (*MESSAGE_ACTIONS, *STEPS, REPLAY, *STEERING, SKIP, *DESTINATION_ACTIONS, *MARKS)


def find(noun: Noun, name: str) -> Action:
    """InvalidValue for a verb that the noun does not have."""
    for action in ACTIONS:
        if (action.noun, action.name) == (noun, name):
            return action
    raise InvalidValue(f"There is no act {name[:50]!r}.")


def by_name(actions: tuple[Action, ...]) -> Mapping[str, Action]:
    return {action.name: action for action in actions}
