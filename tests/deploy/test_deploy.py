"""What is in deploy/ is what its scripts make, names only what exists, and can be read."""

from __future__ import annotations

import configparser
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import yaml

from redrive.operate.cli.main import cli
from redrive.operate.observe import catalogue
from redrive.settings import Settings
from redrive.systems.evidence.metrics import METRICS as EVIDENCE
from redrive.systems.payments.metrics import METRICS as PAYMENTS
from redrive.systems.reviews.metrics import METRICS as REVIEWS
from redrive.systems.tenant.metrics import METRICS as TENANT

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RUNBOOKS = ROOT / "docs" / "runbooks"
SYSTEMS = {**PAYMENTS, **REVIEWS, **TENANT, **EVIDENCE}


def script(name: str) -> ModuleType:
    """One of the scripts of deploy/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"deploy_{name}", DEPLOY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for it there
    spec.loader.exec_module(module)
    return module


ALERTS = script("alerts")
DASHBOARDS = script("dashboards")


EVERY_ALERT = (*ALERTS.ALERTS, *ALERTS.PAYMENTS, *ALERTS.REVIEWS, *ALERTS.TENANT, *ALERTS.EVIDENCE)


def names_in(expr: str) -> set[str]:
    """Those of the engine begin alike; those of systems have names of their own."""
    found = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"redrive_\w+", expr)}
    return found | (set(re.findall(r"\w+", expr)) & set(SYSTEMS))


@pytest.mark.req("G-20")
@pytest.mark.parametrize("made", [ALERTS, DASHBOARDS], ids=["alerts", "dashboards"])
def test_the_files_are_what_the_scripts_make(made: Any) -> None:
    for path, text in made.files().items():
        assert path.read_text(encoding="utf-8") == text, f"run: python deploy/{made.__name__}.py"


@pytest.mark.parametrize("alert", EVERY_ALERT, ids=lambda alert: alert.name)
def test_an_alert_asks_for_metrics_that_exist(alert: Any) -> None:
    known = {metric.name for metric in catalogue.METRICS} | set(SYSTEMS)
    assert names_in(alert.expr)
    assert names_in(alert.expr) <= known
    assert set().union(*map(names_in, alert.series)) <= known


def test_every_metric_is_on_the_dashboard_and_nothing_else() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "redrive.json").read_text())
    exprs = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert set().union(*map(names_in, exprs)) == {metric.name for metric in catalogue.METRICS}
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.req("E-07")
def test_every_metric_of_evidence_is_on_its_dashboard_and_nothing_else() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "evidence.json").read_text())
    exprs = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert set().union(*(set(re.findall(r"\w+", expr)) & set(SYSTEMS) for expr in exprs)) == set(EVIDENCE)


@pytest.mark.req("E-07", "E-12")
def test_the_alerts_of_evidence_have_the_thresholds_of_the_document() -> None:
    exprs = {alert.name: (alert.expr, alert.after) for alert in ALERTS.EVIDENCE}
    assert exprs["EvidencePermanentFailures"] == ("max(evidence_permanent_failure_ratio) > 0.1", "0m")
    assert exprs["EvidenceRetryQueueDeep"] == (
        'max(evidence_retry_queue_depth{unit="artifacts"}) > 500',
        "10m",
    )
    assert "> 21600 or " in exprs["EvidenceN2Late"][0]
    assert exprs["EvidenceN2Late"][0].endswith("> 86400")
    assert exprs["EvidenceSchedulerSilent"][0].endswith("> 900")
    assert exprs["EvidenceN2AfterLastRetry"][0].endswith("> 1800")


@pytest.mark.req("G-27")
def test_each_reason_to_be_parked_has_its_alert() -> None:
    asked = " ".join(alert.expr for alert in ALERTS.ALERTS)
    assert all(f'reason="{reason}"' in asked for reason in catalogue.REASONS)


@pytest.mark.req("R-10")
def test_the_alerts_of_reviews_have_the_names_of_the_requirement_and_a_defect_pages() -> None:
    severities = {alert.name: alert.severity for alert in ALERTS.REVIEWS}
    assert severities == {
        "CodeDefectDeadLetter": "page",
        "ReplayFailedSameClass": "ticket",
        "SentWithoutProviderRecord": "page",
    }


@pytest.mark.req("P-06")
def test_the_thresholds_of_payments_are_those_of_the_ruling_and_can_be_changed() -> None:
    asked = {alert.name: (alert.expr.rpartition(" > ")[2], alert.after) for alert in ALERTS.PAYMENTS}
    assert asked == {
        "PaymentsOldestPending": ("60", "5m"),
        "PaymentsDlqGrowth": ("5", "0m"),
        "PaymentsStuckDispatching": ("0", "3m"),
        "PaymentsRetryableRate": ("0.2", "10m"),
        "PaymentsFindings": ("0", "0m"),
    }
    assert "(oldest_pending_age_seconds) > 120" in ALERTS.with_thresholds(["oldest_pending_seconds=120"])
    with pytest.raises(TypeError, match="oldest"):
        ALERTS.with_thresholds(["oldest=120"])


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {alert.name for alert in EVERY_ALERT}


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_a_runbook_says_where_to_look_and_what_to_do_with_commands_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Look", "Do"]
    for words in re.findall(r"`redrive ([^`]+)`", text):
        assert is_command(shlex.split(words)), f"{page.name}: redrive {words}"


def is_command(words: list[str]) -> bool:
    command: click.Command | None = cli
    while isinstance(command, click.Group) and words:
        command = command.get_command(click.Context(command), words.pop(0))
    options = {option for parameter in getattr(command, "params", []) for option in parameter.opts}
    return command is not None and {word for word in words if word.startswith("--")} <= options


def test_the_compose_file_and_the_provisioning_can_be_read() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert set(compose["services"]) == {"postgres", "upgrade", "relay", "prometheus", "grafana"}
    mounted = [v for s in compose["services"].values() for v in s.get("volumes", []) if v.startswith("./")]
    for source in (volume.split(":")[0] for volume in mounted):
        assert source == "./app" or (DEPLOY / source).exists(), source
    for path in (DEPLOY / "grafana" / "provisioning").rglob("*.yml"):
        assert yaml.safe_load(path.read_text())["apiVersion"] == 1


def test_the_dockerfile_copies_what_is_there_and_sets_what_is_known() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert all((ROOT / name).exists() for names in copied for name in names)
    named = [re.findall(r"REDRIVE_(\w+)=", line) for line in lines if line.startswith("ENV ")]
    assert {name.lower() for names in named for name in names} <= set(Settings.model_fields)
    health = next(line for line in lines if line.startswith("HEALTHCHECK"))
    assert is_command(json.loads(health.partition("CMD ")[2])[1:])


@pytest.mark.parametrize("path", sorted((DEPLOY / "systemd").iterdir()), ids=lambda path: path.name)
def test_a_unit_can_be_read_and_runs_a_command_that_exists(path: Path) -> None:
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    assert "Unit" in unit
    if "Service" in unit:
        assert is_command(shlex.split(unit["Service"]["ExecStart"])[1:])


@pytest.mark.full
@pytest.mark.req("G-20")
def test_every_alert_fires_and_clears(promtool: str) -> None:
    place = DEPLOY / "prometheus"
    for arguments in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]):
        done = subprocess.run([promtool, *arguments], cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
