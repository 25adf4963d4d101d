"""The table of operator verbs. Command line, API and console are made from it: a row that is added is in all three.

A verb on messages needs nothing else than its row and its store call. `model.py` says what each column means.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import Any, Final

from redrive.errors import InvalidValue
from redrive.message import ParkReason
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
_TEXT: Final = float(workflow.TEXT_MAX)
_KEY_LENGTH: Final = 1000.0


def _seconds(help_text: str, *, http_default: float) -> Option:
    """How long to wait. Common proxies cut off a request that lasts longer than 25 seconds."""
    return Option(
        "seconds", help_text, float, flag="--wait", default=30.0, least=0, most=3600.0, http_most=25.0,
        http_default=http_default,
    )  # fmt: skip


# verbs on messages


def _message(name: str, title: str, words: str, applies_to: Mapping[str, str], *places: Command, **more: Any) -> Action:
    """A verb on messages: it calls the store's method of its name."""
    given: dict[str, Any] = {
        "call": lambda store, id_, who, **options: getattr(store, name)(id_, **asdict(who), **options),
        "path": "/messages/{id}/{act}",
        "page": "/messages/{id}/{act}",
        "two_people": True,
    } | more
    return Action(name, title, words, noun=Noun.MESSAGE, applies_to=applies_to, commands=places, **given)


def _discards(noun: str, words: str) -> Command:
    example = f"{EXAMPLE_ID} --reason 'customer was refunded by hand'"
    return Command(noun, example, help=f"{words} This cannot be undone.")


MESSAGE_ACTIONS: Final = (
    _message(
        "requeue",
        "Send it again",
        """Send dead letters again: these, or those that a filter selects.

        Same id, key and token; a fresh budget. What a filter selected is shown and asked about first. A message of an
        ordering key that has gone on without it needs --out-of-order; the refusal says how many later ones went.""",
        {"dead": "pending again, with a fresh budget"},
        Command(
            "messages",
            f"{EXAMPLE_ID} --reason 'erp is back'",
            "--destination erp --error-class HTTP_409 --dry-run --reason 'price list fixed'",
        ),
        options=(
            Option("stage", "Start at this stage instead of the one that failed."),
            Option(
                "out_of_order",
                "Also messages whose ordering key went on: before all of it that still wait.",
                bool,
                default=False,
                label="Also if later messages of its ordering key went out without it",
            ),
        ),
        by_filter=True,
        against_evidence=True,
    ),
    _message(
        "cancel",
        "Cancel it",
        """No further attempt of these messages.

        What is in flight ends as it ends, and the answer says so. A parked message is discarded instead.""",
        {
            "pending": "cancelled: it is not sent any more",
            "leased": "no further attempt; the one under way ends as it ends",
        },
        Command("messages", f"{EXAMPLE_ID} --reason 'order withdrawn'"),
        against_evidence=True,
    ),
    _message(
        "confirm",
        "Confirm that it happened",
        "It did happen: close it as delivered. It is never sent again; this cannot be undone.",
        dict.fromkeys(("dead", "held"), "delivered, on your word; it is never sent again"),
        Command("dead", f"{EXAMPLE_ID} --reference TX-8812 --reason 'paid by hand'"),
        Command("held", f"{EXAMPLE_ID} --reference TX-8812 --reason 'seen in the ledger'"),
        options=(
            Option(
                "reference",
                "The destination's own id of it, as evidence.",
                most=_KEY_LENGTH,
                one_message=True,
                label="Reference: the destination’s own id, if it has one",
            ),
        ),
    ),
    _message(
        "deny",
        "It did not happen: send it again",
        "It did not happen: send it again, with a fresh budget and no doubt.",
        {"held": "pending again: it is sent once more, after a lookup where the destination can be asked"},
        Command("held", f"{EXAMPLE_ID} --reason 'not in the ledger'"),
        against_evidence=True,
    ),
    _message(
        "repair",
        "Record its answer again",
        "Run `record` again with the kept answer; a relay does it. The message is never sent.",
        {"unrecorded": "its kept answer is recorded again; it is never sent"},
        Command("unrecorded", f"{EXAMPLE_ID} --reason 'missing column added'"),
        two_people=False,
    ),
    _message(
        "discard",
        "Discard it for good",
        "Close parked messages for good: they are never sent. This cannot be undone.",
        {reason.value: "discarded for good" for reason in ParkReason},
        _discards("dead", "Close dead letters for good: they are never sent."),
        _discards("held", "Close held messages although it is not known whether they happened."),
        _discards("unrecorded", "Close unrecorded messages: their answer is never recorded on your side."),
        final=True,
        against_evidence=True,
    ),
    _message(
        "copy",
        "Enqueue a copy of it",
        "Enqueue a new message with the content of a discarded one. The discarded one stays discarded.",
        {"discarded": "a new message with its content is enqueued, under a new key"},
        Command("messages", f"{EXAMPLE_ID} --key order:7:again --reason 'discarded by mistake'"),
        call=lambda store, id_, who, *, key: workflow.copy(store, id_, key, who),
        options=(
            Option(
                "key",
                "The idempotency key of the copy.",
                required=True,
                most=_KEY_LENGTH,
                label="Idempotency key of the copy",
            ),
        ),
        path="/messages/{id}/copy",
        single=True,
    ),
)


# the steps of the repair of a dead letter


def _step(name: str, title: str, words: str, example: str, **more: Any) -> Action:
    given: dict[str, Any] = {
        "applies_to": {"dead": workflow.DONE[name]},
        "page": f"/groups/{{group}}/{name}",
        "by_filter": True,
    } | more
    return Action(
        name, title, words, noun=Noun.DEAD, commands=(Command("dead", example),), path=f"/dead/{name}", **given
    )


STEPS: Final = (
    _step(
        "triage",
        "Set the cause",
        "Say what the cause was. It decides which evidence is needed before these can be sent again.",
        f"--group {EXAMPLE_GROUP} --cause data --reason 'no currency'",
        said="Cause set for",
        call=lambda store, ids, who, *, cause, owner=None: workflow.triage(store, ids, cause, who, owner=owner),
        steps=("open",),
        options=(
            Option("cause", "Why it failed.", Cause, required=True, label="Cause"),
            Option("owner", "Who looks into it."),
        ),
    ),
    _step(
        "remediate",
        "Say what was done",
        "Say what was done about the cause: evidence, or the ticket by which the data were corrected elsewhere.",
        f"--group {EXAMPLE_GROUP} --evidence 'erp is up since 14:02' --reason 'INC-7'",
        said="Remedy noted for",
        call=workflow.remediate,
        steps=("triaged",),
        options=(
            Option("evidence", "What was seen or done: the destination is up, release 2.4 is live.", most=_TEXT),
            Option("ticket", "Where it is written down; for data that were corrected elsewhere.", most=_TEXT),
        ),
        one_of=("evidence", "ticket"),
    ),
    _step(
        "edit",
        "Edit the payload",
        """Change payloads by one patch: a new version beside the old one. One it does not fit stays as it is.

        The new version is of the same message, with a token of its own. It is refused for a message that is in doubt:
        an earlier version may have had its effect. Needs a login that may read payloads. --dry-run shows the first
        payload before and after.

        Where the destination moves money, a changed payload is only proposed: a second person, an approver, sees the
        change and approves the very same payload with --approve.""",
        f"--group {EXAMPLE_GROUP} --patch @currency.json --reason 'INC-7'",
        said="New version saved for",
        call=lambda store, ids, who, *, patch: workflow.edit(store, ids, patch, who),
        steps=("triaged", "remediated", "validated"),
        options=(Option("patch", "Change the payload by a JSON Patch (RFC 6902).", list, required=True, most=1000),),
        two_people=True,
    ),
    _step(
        "validate",
        "Check whether they could be sent",
        """Let a relay check whether they could be sent: `validate`, and `lookup` where in doubt. Nothing is sent.

        Refused without the evidence that the cause needs.""",
        f"--group {EXAMPLE_GROUP} --reason 'INC-7'",
        said="A relay checked",
        call=workflow.validate,
        steps=("remediated",),
        options=(_seconds("How many seconds to wait for the answers of relays.", http_default=0.0),),
    ),
    _step(
        "ignore",
        "Ignore them",
        "Leave them parked; no repair is expected of anyone. `triage` takes that back.",
        f"--group {EXAMPLE_GROUP} --reason 'test data'",
        said="Ignored:",
        call=workflow.ignore,
        steps=("open", "triaged", "remediated", "validated"),
    ),
    _step(
        "verify",
        "Verify",
        "Say that a replayed message has arrived, and close the matter. Refused unless it was delivered.",
        f"{EXAMPLE_ID} --reason 'seen in the ERP, INC-7 closed'",
        said="Verified:",
        call=workflow.verify,
        applies_to={"delivered": workflow.DONE["verify"]},
        page="/replays/{replay}/verify",
        by_filter=False,
    ),
)


# marks of a failure group


async def _mark(
    store: PostgresStore, group: str, who: Who, *, mark: Any, value: str | None = None, hours: float | None = None
) -> GroupView:
    snooze = None if hours is None else timedelta(hours=hours)
    return await groups.mark(store, group, Marking(mark=mark, **asdict(who), value=value, snooze=snooze))


def _group_mark(name: Any, title: str, words: str, *options: Option, example: str = "") -> Action:
    return Action(
        name,
        title,
        words,
        noun=Noun.GROUP,
        call=partial(_mark, mark=name),
        options=options,
        commands=(Command("groups", f"{EXAMPLE_GROUP}{example} --reason 'erp 2.4 is live'"),),
        path="/groups/{id}/{mark}",
        page="/groups/{group}/mark/{mark}",
        all_tenants=True,
    )


def _value(metavar: str, label: str) -> Option:
    return Option("value", metavar, flag="", required=True, most=_TEXT, label=label)


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
            "hours", "How long.", float, default=24.0, least=0, above=True, most=SNOOZE_HOURS_MAX,
            label="For how many hours",
        ),
        example=" --hours 8",
    ),
    _group_mark("ignore", "Ignore the group", "Leave it out of the list for good. It is still counted."),
    _group_mark(
        "resolve", "Mark as resolved", "Say that the cause is gone. One failure more, and the group is regressed."
    ),
    _group_mark("reopen", "Open it again", "Say that it needs a repair after all."),
)  # fmt: skip


# replays


def _steering(name: Any, title: str, words: str, **more: Any) -> Action:
    given: dict[str, Any] = {"path": "/replays/{id}/{act}"} | more
    return Action(
        name,
        title,
        words,
        noun=Noun.REPLAY,
        call=lambda store, replay, who: replays.steer(store, replay, name, **asdict(who)),
        applies_to=dict.fromkeys(sorted(replays.FITS[name]), ""),
        commands=(Command("replay", f"{EXAMPLE_REPLAY} --reason 'INC-7'"),),
        page="/replays/{replay}/{act}",
        **given,
    )


STEERING: Final = (
    _steering(
        "approve",
        "Let it begin",
        "Let a replay that moves money begin; a second person has to.",
        path="/replays/{id}/approve",
        permission=Permission.APPROVE,
        two_people=True,
    ),
    _steering(
        "pause", "Send nothing more for now", "Send nothing more of it for now. What is under way ends as it ends."
    ),
    _steering("resume", "Go on", "Go on with a replay that was paused, or that stopped because too many failed."),
    _steering("cancel", "Send nothing more of it", "Send nothing more of it. What was not sent stays parked."),
)
_CREATE_EXAMPLE: Final = f"{EXAMPLE_REPLAY} --group {EXAMPLE_GROUP} --canary 10 --rate 50 --reason 'INC-7'"
REPLAY: Final = Action(
    "replay",
    "Replay",
    """Send dead letters again: those that were validated, from where they failed.

    --dry-run says how many would go, and why the others would not. Where the destination moves money, a second person
    has to approve the replay.""",
    noun=Noun.DEAD,
    call=replays.create,
    applies_to={"dead": "sent again by the replay"},
    options=(
        Option(
            "rate_per_second", "Messages per second.", float, flag="--rate", default=50.0, least=0, above=True,
            most=replays.RATE_MAX,
        ),
        Option(
            "canary", "So many first; the rest if all arrive.", int, default=0, least=0, most=replays.CANARY_MAX
        ),
        Option(
            "failure_ratio_max", "Stop when a larger part fails.", float, flag="--stop-at", default=0.1, least=0,
            most=1,
        ),
        Option("stage", "Where each starts; default: at the stage where it failed."),
        Option("out_of_order", "Also those whose ordering key went on without them.", bool, default=False),
        Option("override", "Also those that were not validated; the audit says so.", bool, default=False),
    ),
    commands=(
        Command("dead", f"{EXAMPLE_ID} --reason 'INC-7'"),
        Command("replay", f"{_CREATE_EXAMPLE} --dry-run", f"{_CREATE_EXAMPLE} --yes", within="create"),
    ),
    path="/replays",
    page="/groups/{group}/replay",
    two_people=True,
    by_filter=True,
)  # fmt: skip


# ordering keys and destinations

_SKIP_REASON: Final = "--reason 'order was cancelled by phone'"
SKIP: Final = Action(
    "skip",
    "Skip the head of a key",
    """Close the head of an ordering key, so that the key goes on. It is never sent; this cannot be undone.

    What is closed is the head that is shown, and no other: if the key has gone on meanwhile, nothing is done.""",
    noun=Noun.KEY,
    call=operations.skip,
    options=(Option("sequence", "Only if the head still is this number.", int, least=1, most=2**63 - 1),),
    commands=(
        Command(
            "keys",
            f"default customer:7 --dry-run {_SKIP_REASON}",
            f"default customer:7 --sequence 12 --yes {_SKIP_REASON}",
        ),
    ),
    path="/keys/skip",
    page="/keys/skip",
    two_people=True,
    final=True,
)


def _destination(name: str, title: str, words: str, *examples: str, option: Option, **more: Any) -> Action:
    return Action(
        name,
        title,
        words,
        noun=Noun.DESTINATION,
        options=(option,),
        commands=(Command("destinations", *examples),),
        path=f"/destinations/{{name}}/{name}",
        page="/destinations/{act}/{name:path}",
        all_tenants=True,
        **more,
    )


def _switch(verb: str) -> Callable[..., Awaitable[bool]]:
    async def call(store: PostgresStore, name: str, who: Who, *, key: str | None = None) -> bool:
        method, place = (verb, (name,)) if key is None else (f"{verb}_key", (name, key))
        return bool(await getattr(store, method)(*place, **asdict(who)))

    return call


_LIMIT_KEY: Final = Option(
    "key",
    "One limit key of it only, as `redrive destinations list` shows it.",
    label="One limit key only (empty: the whole destination)",
)
DESTINATION_ACTIONS: Final = (
    _destination(
        "pause",
        "Pause",
        "Send nothing there for now. What runs ends; messages wait and spend none of their attempts.",
        "erp --reason 'maintenance until 18:00'",
        call=_switch("pause"),
        said="was paused already",
        option=_LIMIT_KEY,
    ),
    _destination(
        "resume",
        "Resume",
        "Send there again, beginning with what is due.",
        "erp --reason 'erp 2.4 is live'",
        call=_switch("resume"),
        said="was not paused",
        option=_LIMIT_KEY,
    ),
    _destination(
        "test",
        "Let one through",
        """Let one message through to a destination whose breaker is open, or that asked for a rest.

        It is one that waits, sent by a relay as usual. If the destination answers, the others follow, slowly at first;
        if not, it is left alone for longer. Ends with 0 if it answered, with 1 if not or if no relay took the message
        in time.""",
        "erp",
        "erp --wait 60",
        call=destination_test.probe,
        option=_seconds("Seconds, at most.", http_default=5.0),
    ),
)

ACTIONS: Final = (*MESSAGE_ACTIONS, *STEPS, REPLAY, *STEERING, SKIP, *DESTINATION_ACTIONS, *MARKS)


def find(noun: Noun, name: str) -> Action:
    """InvalidValue for a verb that the noun does not have."""
    for action in ACTIONS:
        if (action.noun, action.name) == (noun, name):
            return action
    raise InvalidValue(f"There is no act {name[:50]!r}.")


COPY: Final = find(Noun.MESSAGE, "copy")
EDIT: Final = find(Noun.DEAD, "edit")
