"""The commands, the API, the console's lists, the settings file and the metrics of reviews."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from redrive.app import App
from redrive.errors import SettingsError
from redrive.kit.cli import Exit
from redrive.kit.proof.smtp_server import Act
from redrive.operate.cli import output
from redrive.operate.cli.main import cli
from redrive.operate.documents import titled
from redrive.operate.toml_destinations import app_from_file
from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.principal import Role
from redrive.system import discover
from redrive.systems import reviews
from redrive.systems.reviews import Recipient
from redrive.systems.reviews.metrics import CATEGORY_NAMES, METRICS
from redrive.systems.reviews.providers import providers_of
from redrive.systems.reviews.reconcile import DUTY
from redrive.systems.reviews.simulators.script import Script
from tests.api.conftest import ORIGIN, House, asking, bearer
from tests.systems.reviews.conftest import ADA, GRACE, Repository, desk, job_state, request, rows, submit
from tests.systems.reviews.test_smtp import mailing
from tools import documents

Run = Callable[..., Result]


@pytest.fixture
def run(reviewing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """The command line on the module's database; what it prints with `--json` is compared with its schema."""
    monkeypatch.chdir(tmp_path)
    printed = output.document

    def document(name: str, values: Any, **options: Any) -> None:
        documents.seen(name, titled(name, values))
        printed(name, values, **options)

    monkeypatch.setattr(output, "document", document)
    root = logging.getLogger()
    level = root.level
    yield lambda *arguments: CliRunner().invoke(cli, ["--dsn", reviewing, "reviews", *arguments])
    root.setLevel(level)
    for handler in [one for one in root.handlers if one.get_name() == "redrive"]:
        root.removeHandler(handler)


def _submit(run: Run, changelist: str, *more: str) -> Result:
    commits = ("--repository", "shop", "--base", "main", "--head", "topic")
    return run(
        "submit",
        changelist,
        "--key",
        f"key of {changelist}",
        *commits,
        "--notify",
        ADA,
        "--inform",
        f"{GRACE}@@hooks",
        *more,
    )


@pytest.mark.req("R-06", "G-21")
def test_a_review_is_submitted_shown_listed_and_run_again_by_command(run: Run, changelist: str) -> None:
    first = json.loads(_submit(run, changelist, "--json").output)
    assert (first["changelist_id"], first["state"], first["already_existed"]) == (changelist, "in_progress", False)
    again = _submit(run, changelist)
    assert (again.exit_code, "submitted before" in again.output) == (0, True)
    shown = json.loads(run("show", changelist, "--json").output)
    assert [(one["recipient"], one["required"], one["state"]) for one in shown["deliveries"]] == [
        (ADA, True, "waiting"),
        (GRACE, False, "waiting"),
    ]
    assert [(one["stage"], one["state"], one["attempts"]) for one in shown["stages"]] == [
        ("fetch", "pending", 0),
        ("llm", "waiting", 0),
    ]
    assert changelist in run("show", changelist).output
    listed = json.loads(run("list", "--json").output)
    assert changelist in [one["changelist_id"] for one in listed["items"]]
    assert changelist not in run("list", "--state", "succeeded").output
    refused = run("rerun", changelist, "--version", "2", "--key", f"{changelist} 2")
    assert refused.exit_code != 0
    assert "REVIEW_IN_PROGRESS" in refused.output


_JOBS = files("redrive.systems.reviews") / "sql" / "reads" / "jobs.sql"
_OPEN_ONES = {"tenant": "default", "before": None, "state": "in_progress", "limit": 100}
_OTHERS = """
INSERT INTO redrive_reviews.job (job_id, tenant, idempotency_key, changelist_id, review_version, repository,
    base_commit, head_commit, request_hash, message_id, created_at, reviewed_at, succeeded_at)
SELECT redrive.new_id(), 'default', 'other ' || n, 'other-' || n, 1, 'shop', 'main', 'topic', '', redrive.new_id(),
       now(), now(), now()
  FROM generate_series(1, 10001) AS g(n)
"""


@pytest.mark.req("R-08", "G-21")
def test_a_job_that_needs_a_person_is_listed_however_many_have_succeeded_since(
    reviewing: str, run: Run, changelist: str
) -> None:
    first = submit(reviewing, request(changelist))
    with psycopg.connect(reviewing) as conn:
        conn.execute(_OTHERS)
        conn.execute("ANALYZE redrive_reviews.job")
        plan = psycopg.ClientCursor(conn).execute(f"EXPLAIN {_JOBS.read_text()}".encode(), _OPEN_ONES).fetchall()
    assert "Index Scan Backward using job_open" in str(plan)
    listed = json.loads(run("list", "--state", "in_progress", "--json").output)
    assert ([one["job_id"] for one in listed["items"]], listed["next"]) == ([str(first.job_id)], None)
    assert str(first.job_id) not in run("list", "--state", "succeeded", "--json").output


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "never"),
        ("attempts", "never", "--version", "1", "--recipient", ADA),
        ("decide", "never", "--version", "1", "--recipient", ADA, "--sent", "--reason", "x"),
        ("reconcile",),
    ],
)
def test_a_command_about_what_is_not_there_says_so(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code != 0
    assert not isinstance(result.exception, AssertionError)
    assert result.output.strip()


@pytest.mark.req("R-11", "G-21")
async def test_a_finished_review_is_shown_by_api_and_console_and_its_attempts_by_command(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, run: Run
) -> None:
    async with desk(reviewing, repository, tmp_path) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "succeeded")
    listed = json.loads(run("attempts", changelist, "--version", "1", "--recipient", ADA, "--json").output)
    assert [(one["attempt"], one["answer"]) for one in listed["items"]] == [(1, "delivered")]
    house = House(reviewing)
    app = create_app(reviewing, AuthConfig(origin=ORIGIN), systems=discover())
    async with asking(app) as client:
        viewer, operator, other = [
            bearer(await house.token(role, tenant))
            for role, tenant in ((Role.VIEWER, "*"), (Role.OPERATOR, "*"), (Role.VIEWER, "another"))
        ]
        path = f"/api/v1/reviews/jobs/{changelist}"
        shown = (await client.get(path, headers=operator)).json()
        assert (shown["state"], shown["findings"], shown["deliveries"][0]["recipient"]) == ("succeeded", 3, ADA)
        hidden = (await client.get(path, headers=viewer)).json()
        assert hidden["deliveries"][0]["recipient"] == "…@example.org"
        assert (await client.get(path, headers=other)).status_code == 404
        assert (await client.get(f"{path}?version=9", headers=operator)).status_code == 404
        jobs = (await client.get("/api/v1/reviews/jobs?state=succeeded", headers=operator)).json()
        assert changelist in [one["changelist_id"] for one in jobs["items"]]
        for name in ("reviews", "parts"):
            page = await client.get(
                f"/systems/reviews/{name}?search={changelist}", headers={**operator, "Accept": "text/html"}
            )
            assert (page.status_code, changelist in page.text, ADA in page.text) == (200, True, False)


@pytest.mark.req("R-12", "G-21")
async def test_a_held_delivery_is_decided_by_command(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, run: Run
) -> None:
    async with desk(reviewing, repository, tmp_path) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "succeeded")
    with psycopg.connect(reviewing) as conn:
        conn.execute(
            "UPDATE redrive_reviews.delivery SET status = 'held', notified_at = NULL, evidence = NULL"
            " WHERE changelist_id = %s",
            [changelist],
        )
        conn.execute("UPDATE redrive_reviews.job SET succeeded_at = NULL WHERE changelist_id = %s", [changelist])
    assert job_state(reviewing, changelist) == "retryable_failed"
    decide = ("decide", changelist, "--version", "1", "--recipient", ADA, "--sent", "--reason", "Ada has it", "--json")
    assert json.loads(run(*decide).output)["result"] == "sent"
    assert job_state(reviewing, changelist) == "succeeded"
    assert run(*decide).exit_code != 0


@pytest.mark.req("R-12", "G-21")
@pytest.mark.parametrize(("decision", "act"), [("--sent", "confirm"), ("--not-sent", "deny")])
async def test_a_delivery_whose_message_is_held_names_the_command_that_decides_it(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, run: Run, decision: str, act: str
) -> None:
    async with (
        mailing("END", Act.LOSE_REPLY) as (_, provider),
        desk(reviewing, repository, tmp_path, more=[provider]) as opened,
    ):
        submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "mail")]))
        await opened.state(changelist, "retryable_failed")
    ((held,),) = rows(reviewing, "SELECT message_id FROM redrive_reviews.delivery WHERE changelist_id = %s", changelist)
    refused = run("decide", changelist, "--version", "1", "--recipient", ADA, decision, "--reason", "Ada has it")
    assert refused.exit_code == Exit.REFUSED
    assert f"redrive held {act} {held}" in " ".join(refused.output.split())


@pytest.mark.req("R-11")
async def test_attempts_and_acts_are_listed_in_the_order_in_which_they_happened(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, run: Run
) -> None:
    async with desk(reviewing, repository, tmp_path, Script(first=["refused"])) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "retryable_failed")
        with psycopg.connect(reviewing) as conn:
            conn.execute(
                "SELECT redrive.requeue_1(message_id, 'anna', 'it exists now') FROM redrive_reviews.delivery"
                " WHERE changelist_id = %s",
                [changelist],
            )
        await opened.state(changelist, "succeeded")
    written = ADA.replace("example", "EXAMPLE")
    listed = json.loads(run("attempts", changelist, "--version", "1", "--recipient", written, "--json").output)
    assert [(one["verb"], one["code"], one["actor"]) for one in listed["items"]] == [
        ("settle", "RECIPIENT_INVALID", None),
        ("requeue", None, "anna"),
        ("settle", None, None),
    ]


@pytest.mark.req("R-13", "R-05")
async def test_a_stage_that_is_dead_says_what_a_replay_would_do(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, run: Run
) -> None:
    async with desk(reviewing, repository, tmp_path) as opened:
        submit(reviewing, request(changelist, repository, head_commit="nowhere"))
        await opened.state(changelist, "retryable_failed")
    said = " ".join(run("show", changelist).output.split())
    assert "fetch: a replay is idempotent: the stage reads, and has no effect outside." in said
    assert "llm: a replay" not in said


@pytest.mark.req("R-12", "G-21")
def test_the_providers_of_a_settings_file_are_compared_by_command(run: Run, tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text(
        '[reviews.repositories]\nshop = "shop.git"\n[reviews.providers.unused]\nkind = "smtp"\nhost = "127.0.0.1"\n'
        'sender = "reviews@example.org"\ntls = "none"\n'
    )
    result = run("reconcile", "--json")
    assert result.exit_code == 0, result.output
    compared = json.loads(result.stdout)
    assert [(one["provider"], one["requeued"], one["held"]) for one in compared["providers"]] == [("unused", 0, 0)]


SETTINGS = """
[reviews]
diff_bytes_max = 1000
[reviews.repositories]
shop = "shop.git"
[reviews.critic]
url = "https://models.example/v1"
model = "m"
api_key_env = "A_KEY"
[reviews.providers.email]
kind = "smtp"
host = "smtp.example"
sender = "reviews@example.org"
username = "reviews"
password_env = "A_PASSWORD"
[reviews.providers.hooks]
kind = "http"
url = "https://mail.example/v1"
headers_env = { Authorization = "A_KEY" }
"""


@pytest.mark.req("R-09", "G-30")
def test_a_settings_file_declares_repositories_critic_and_providers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "the-key")
    monkeypatch.setenv("A_PASSWORD", "the-password")
    file = tmp_path / "redrive.toml"
    file.write_text(SETTINGS)
    app = app_from_file(file)
    assert set(app.destinations) == {"reviews.fetch", "reviews.llm", "reviews.notify.email", "reviews.notify.hooks"}
    assert DUTY in app.duties
    by_name: dict[str, Any] = {one.name: one for one in providers_of(app)}
    assert by_name["email"].password == "the-password"
    assert by_name["hooks"].headers == {"Authorization": "the-key"}
    rules = {name: app.destinations[f"reviews.notify.{name}"].rules for name in ("email", "hooks")}
    assert (rules["email"].in_doubt, rules["hooks"].in_doubt) == ("hold", "lookup")
    assert {one.rules.policy.attempts for one in app.destinations.values()} == {5}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('password_env = "A_PASSWORD"', 'password = "in the file"'),
        ('api_key_env = "A_KEY"', 'api_key = "in the file"'),
        ('kind = "smtp"', 'kind = "pigeon"'),
        ("diff_bytes_max = 1000", "diff_bytes_max = 0"),
        ("diff_bytes_max = 1000", "diff_max = 1"),
        ('shop = "shop.git"', "shop = 7"),
    ],
)
def test_a_settings_file_that_is_wrong_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    monkeypatch.setenv("A_KEY", "the-key")
    monkeypatch.setenv("A_PASSWORD", "the-password")
    file = tmp_path / "redrive.toml"
    file.write_text(SETTINGS.replace(old, new))
    with pytest.raises(SettingsError):
        app_from_file(file)


@pytest.mark.req("R-10")
def test_the_metrics_read_what_is_dead_escalated_and_violated(reviewing: str) -> None:
    app = App()
    hooks = reviews.HttpProvider(name="hooks", url="https://mail.example")
    app.include(reviews.with_reviews({"shop": "shop.git"}, providers=[hooks]))
    assert dict(app.systems["reviews"].metrics) == dict(METRICS)
    dead = rows(reviewing, str(METRICS["reviews_dead_letters"].query))
    assert {(stage, category) for stage, category, _ in dead} == {
        (stage, category) for stage in ("fetch", "llm", "notify") for category in CATEGORY_NAMES
    }
    escalated = rows(reviewing, str(METRICS["reviews_escalated_letters"].query))
    assert {stage for stage, _, _ in escalated} == {"fetch", "llm", "notify"}
