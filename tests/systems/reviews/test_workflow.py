"""The operator's workflow of a dead letter of reviews (R-05, R-13): no replay before its steps, and what a replay
repeats.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from redrive.kit.cli import Exit
from redrive.kit.database import open_database
from redrive.operate.actions.results import Outcome
from redrive.operate.cli.main import cli
from redrive.operate.desk import workflow
from redrive.operate.desk.causes import Cause
from redrive.systems.reviews.changelist import Changelist
from redrive.systems.reviews.critic import RuleCritic
from redrive.systems.reviews.findings import Finding
from redrive.systems.reviews.simulators.script import Script
from redrive.systems.reviews.taxonomy import terminal
from redrive.who import Who
from tests.systems.reviews.conftest import Repository, desk, request, rows, submit

ANNA = Who(actor="anna", reason="a test")


Command = Callable[..., Awaitable[Result]]
WHY = ("--actor", "anna", "--reason", "the mailbox exists now")


@pytest.fixture
def command(reviewing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """The real command line on the module's database, beside the relay of a desk."""
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    level = root.level

    async def run(*arguments: object) -> Result:
        given = ["--dsn", reviewing, *map(str, arguments)]
        return await asyncio.to_thread(CliRunner().invoke, cli, given)

    yield run
    root.setLevel(level)
    for handler in [one for one in root.handlers if one.get_name() == "redrive"]:
        root.removeHandler(handler)


class Broken(RuleCritic):
    """Refused until it is mended."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_mended = False

    async def review(self, changelist: Changelist) -> list[Finding]:
        self.asked += 1
        if not self.is_mended:
            raise terminal("AUTH_DENIED")
        return await super().review(changelist)


@pytest.mark.req("R-05", "R-01")
@pytest.mark.seed(
    "001",
    "Replay starts at the failed stage (not from workflow start) unless operator explicitly requests full restart.",
)
@pytest.mark.seed("001", "Ensure remediation evidence is recorded in ticket/incident.")
async def test_a_dead_letter_is_replayed_after_its_steps_and_begins_at_the_stage_that_failed(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    critic = Broken()
    async with desk(reviewing, repository, tmp_path, critic=critic) as opened, open_database(reviewing) as store:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "retryable_failed")
        ((id_,),) = rows(reviewing, "SELECT message_id FROM redrive_reviews.job WHERE changelist_id = %s", changelist)
        refused = (await workflow.validate(store, [id_], ANNA))[0]
        assert refused.outcome is Outcome.REFUSED, "it was validated before its cause was set"
        assert (await workflow.triage(store, [id_], Cause.AUTH_CONFIG, ANNA))[0].outcome is Outcome.DONE
        assert (await workflow.validate(store, [id_], ANNA))[0].outcome is Outcome.REFUSED
        remedy = await workflow.remediate(store, [id_], ANNA, evidence="the key was rotated", ticket="OPS-7")
        assert remedy[0].outcome is Outcome.DONE
        assert (await workflow.validate(store, [id_], ANNA))[0].outcome is Outcome.DONE
        critic.is_mended = True
        with psycopg.connect(reviewing) as conn:
            conn.execute("SELECT redrive.requeue_1(%s, 'anna', 'the key was rotated')", [id_])
        await opened.state(changelist, "succeeded")
    assert critic.asked == 2
    attempts = rows(
        reviewing,
        "SELECT split_part(destination, '.', 2), count(*) FROM redrive.attempt WHERE message_id = %s AND verb "
        "= 'settle' GROUP BY 1",
        id_,
    )
    assert dict(attempts) == {"fetch": 1, "llm": 2}


@pytest.mark.req("R-13")
@pytest.mark.seed("001", "Confirm replay is idempotent or safe for duplicate effects.")
async def test_a_delivery_says_what_a_replay_would_do(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path, Script(first=["refused"])) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "retryable_failed")
    said = rows(reviewing, "SELECT on_replay FROM redrive_reviews.delivery WHERE changelist_id = %s", changelist)
    assert said == [("idempotent: the provider is asked first where it is in doubt, and remembers the token",)]


@pytest.mark.req("R-13", "R-05")
async def test_a_code_defect_is_validated_only_with_the_release_that_has_the_fix(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path, critic=Broken()) as opened, open_database(reviewing) as store:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "retryable_failed")
        ((id_,),) = rows(reviewing, "SELECT message_id FROM redrive_reviews.job WHERE changelist_id = %s", changelist)
        await workflow.triage(store, [id_], Cause.CODE_DEFECT, ANNA)
        await workflow.remediate(store, [id_], ANNA, ticket="BUG-1")
        refused = (await workflow.validate(store, [id_], ANNA))[0]
        assert refused.outcome is Outcome.REFUSED
        await workflow.remediate(store, [id_], ANNA, evidence="release 1.4.2, validated in staging")
        assert (await workflow.validate(store, [id_], ANNA))[0].outcome is Outcome.DONE


@pytest.mark.req("R-05", "R-13")
@pytest.mark.seed("001", "Operators MUST use the following workflow before replaying dead-letter items")
@pytest.mark.seed("001", "Annotate dead-letter item with resolution notes and close incident.")
@pytest.mark.parametrize("noun", ["replay", "dead"])
async def test_a_replay_without_recorded_remediation_is_refused_unless_it_is_overridden_with_a_reason(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, command: Command, noun: str
) -> None:
    """By the commands `redrive replay create` and `redrive dead replay`, of a notification that was refused."""
    async with desk(reviewing, repository, tmp_path, Script(first=["refused"])) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "retryable_failed")
        ((id_,),) = rows(
            reviewing, "SELECT message_id FROM redrive_reviews.delivery WHERE changelist_id = %s", changelist
        )
        create = ("replay", "create", changelist, id_) if noun == "replay" else ("dead", "replay", id_)
        assert (await command(*create, *WHY)).exit_code == Exit.REFUSED
        assert "not validated yet" in (await command(*create, *WHY, "--dry-run")).output
        assert (await command("dead", "triage", id_, "--cause", "data", *WHY)).exit_code == 0
        assert (await command(*create, *WHY)).exit_code == Exit.REFUSED, (
            "it was triaged, and no remediation is recorded"
        )
        assert (await command(*create, "--override", "--actor", "anna")).exit_code != 0, "no reason was given"
        assert len(opened.sent) == 0
        shown = await command("reviews", "show", changelist)
        assert "a replay is idempotent: the provider is asked first where it is in doubt" in " ".join(
            shown.output.split()
        )
        made = await command(*create, "--override", *WHY)
        assert made.exit_code == 0, made.output
        await opened.state(changelist, "succeeded")
        assert (await command("dead", "verify", id_, *WHY)).exit_code == 0
        assert len(opened.sent) == 1
    audited = rows(
        reviewing,
        "SELECT actor, reason FROM redrive.operator_action WHERE act = 'replay' AND after ->> 'override' = 'true'"
        " AND after ->> 'filter' LIKE %s",
        f"%{id_}%",
    )
    assert audited == [("anna", "the mailbox exists now")]
    closed = "SELECT reason FROM redrive.operator_action WHERE act = 'verify' AND subject = %s"
    assert rows(reviewing, closed, str(id_)) == [("the mailbox exists now",)]


@pytest.mark.req("R-05", "R-10")
@pytest.mark.seed(
    "001",
    "If replay fails again with the same non-retryable `error_class`, item MUST be re-queued to "
    "dead-letter and escalated for engineering review.",
)
async def test_a_replay_that_ends_in_the_same_class_is_dead_again_and_escalated(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, command: Command
) -> None:
    letters = (
        "SELECT k.error_class, k.escalated FROM redrive_reviews.dead_letters k JOIN redrive_reviews.delivery d"
        " USING (message_id) WHERE d.changelist_id = %s"
    )
    async with desk(reviewing, repository, tmp_path, Script(first=["refused", "refused"])) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "retryable_failed")
        assert rows(reviewing, letters, changelist) == [("RECIPIENT_INVALID", False)]
        ((id_,),) = rows(
            reviewing, "SELECT message_id FROM redrive_reviews.delivery WHERE changelist_id = %s", changelist
        )
        assert (await command("dead", "replay", id_, "--override", *WHY)).exit_code == 0
        await opened.until(lambda: rows(reviewing, letters, changelist) == [("RECIPIENT_INVALID", True)])
        assert opened.calls.count("request") == 2
        assert opened.sent == []
