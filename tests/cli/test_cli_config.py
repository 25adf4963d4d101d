"""`redrive config show` and `redrive completion`: what is in force and from where; words that a shell completes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from redrive.operate.cli.main import NOUNS, cli
from redrive.settings import TABLE
from redrive.store.runtime.open_store import without_secrets
from redrive.system import discover

SHELLS = ("bash", "zsh", "fish")


def show(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["config", "show", *arguments])
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.req("G-21")
def test_every_setting_is_shown_with_its_value_and_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("redrive.toml").write_text('poll_seconds = 0.5\n[destinations.crm]\ntransport = "http"\n')
    monkeypatch.setenv("REDRIVE_CLAIM_MAX", "7")
    monkeypatch.setenv("DATABASE_URL", "postgresql://anna@db.example/shop")
    document = json.loads(show("--json"))
    items = {item["name"]: (item["value"], item["origin"]) for item in document["items"]}
    assert list(items) == list(TABLE)
    assert items["poll_seconds"] == (0.5, "poll_seconds in redrive.toml")
    assert items["claim_max"] == (7, "REDRIVE_CLAIM_MAX")
    assert sorted(items["dsn"][0].split()) == ["dbname=shop", "host=db.example", "user=anna"]
    assert items["dsn"][1] == "DATABASE_URL"
    assert items["lease_seconds"] == (60.0, "default")
    assert (document["schema"], document["destinations"]) == ("redrive.config/v1", ["crm"])
    lines = [line.split() for line in show("--origin").splitlines()]
    assert ["claim_max", "7", "REDRIVE_CLAIM_MAX"] in lines
    assert ["retention_days", "none", "default"] in lines
    assert ["claim_max", "7"] in [line.split() for line in show().splitlines()]


@pytest.mark.req("G-15")
@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://anna:geheim@db.example:5432/shop",
        "postgresql+psycopg://anna:geheim@db.example/shop",
        "host=db.example user=anna password=geheim",
        "host=db.example password='geheim",
        "postgresql://anna:ge heim geheim@[",
    ],
)
@pytest.mark.parametrize("flags", [(), ("--origin",), ("--json",)])
def test_no_password_is_shown(dsn: str, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_DSN", dsn)
    monkeypatch.setenv("REDRIVE_LISTEN_DSN", dsn)
    said = show(*flags)
    assert "heim" not in said
    assert "dsn" in said


def test_of_a_dsn_only_what_is_secret_is_hidden() -> None:
    shown = without_secrets("host=a password=b sslpassword=c user=d")
    assert sorted(shown.split()) == ["host=a", "password=[…]", "sslpassword=[…]", "user=d"]


def test_a_setting_that_cannot_be_is_refused_as_everywhere() -> None:
    Path("redrive.toml").write_text("lease_second = 5")
    result = CliRunner().invoke(cli, ["config", "show"])
    assert (result.exit_code, "did you mean lease_seconds?" in result.stderr) == (2, True)


@pytest.mark.req("G-21")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_gets_its_script_and_the_help_says_where_it_goes(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert f"_REDRIVE_COMPLETE={shell}_complete" in result.stdout
    found = shutil.which(shell)
    if found:
        subprocess.run([found, "-n"], input=result.stdout, text=True, check=True)
    assert f"redrive completion {shell}" in CliRunner().invoke(cli, ["completion", "--help"]).stdout


def completed(*words: str) -> set[str]:
    environment = {
        "_REDRIVE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["redrive", *words]),
        "COMP_CWORD": str(len(words)),
    }
    said = CliRunner().invoke(cli, [], env=environment, prog_name="redrive").stdout
    return {line.partition(",")[2] for line in said.splitlines()}


@pytest.mark.req("G-21")
def test_nouns_verbs_options_and_choices_are_completed() -> None:
    assert completed("") == {*NOUNS, *discover()}
    assert completed("mess") == {"messages"}
    assert {"list", "show", "cancel"} <= completed("messages", "")
    assert {"--json", "--dsn", "--origin"} <= completed("config", "show", "--")
    assert completed("completion", "") == set(SHELLS)
