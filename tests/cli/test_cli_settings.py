"""Settings: every bound, every contradiction, every unknown key, and where a value came from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import SettingsError
from redrive.settings import HEALS_WITHIN_SECONDS, LEASE_SECONDS_ADVISED, TABLE, RelayLimits, Settings
from tests.cli.conftest import Redrive

BOUNDS = {name: (row.low, row.high) for name, row in TABLE.items() if row.low is not None and row.high is not None}
OTHER = {"metrics_listen": "9464", "console_listen": "8000"}
# A lease at its lower bound needs heartbeats that fit into it.
BESIDE: dict[str, dict[str, float]] = {
    "lease_seconds": {"heartbeat_seconds": 0.1},
    "heartbeat_seconds": {"lease_seconds": 3600},
}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("REDRIVE_") and not name.startswith("REDRIVE_TEST_")]:
        monkeypatch.delenv(name)


@pytest.mark.req("G-19")
@pytest.mark.parametrize("name", BOUNDS)
def test_a_value_on_its_bound_is_accepted_and_its_neighbour_refused_with_value_and_bound(name: str) -> None:
    low, high = BOUNDS[name]
    beside = BESIDE.get(name, {})
    for value in (low, high):
        assert getattr(Settings(**{name: value, **beside}), name) == value
    step = 1 if isinstance(low, int) and isinstance(high, int) else 0.001
    for value in (low - step, high + step):
        with pytest.raises(SettingsError) as refused:
            Settings(**{name: value, **beside})
        assert f"{name} is {value}; it must be" in refused.value.message
        assert f"from {low} to {high}" in refused.value.message
        assert "default" in refused.value.next


@pytest.mark.req("G-19")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "sixty", True, None, [60], ""])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(SettingsError, match="lease_seconds is"):
        Settings(lease_seconds=value)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_truth_value_is_no_number(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is True"):
        Settings(**{name: True})


@pytest.mark.parametrize(("name", "value"), [("log_format", "xml"), ("log_level", "loud")])
def test_a_word_that_is_no_choice_is_refused_with_the_choices(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match="must be one of"):
        Settings(**{name: value})


@pytest.mark.req("G-14")
def test_a_lease_shorter_than_three_heartbeats_is_a_contradiction() -> None:
    assert Settings(lease_seconds=15, heartbeat_seconds=5).lease_seconds == 15
    with pytest.raises(SettingsError) as refused:
        Settings(lease_seconds=14.9, heartbeat_seconds=5)
    assert "lease_seconds is 14.9 and heartbeat_seconds is 5" in refused.value.message
    assert "15 s" in refused.value.message
    assert "raise lease_seconds to 15" in refused.value.next


@pytest.mark.req("G-14")
def test_the_defaults_heal_in_time_and_slower_settings_are_pointed_out() -> None:
    assert Settings().heals_within_seconds <= HEALS_WITHIN_SECONDS
    assert Settings().advice() == []
    assert Settings(lease_seconds=105).advice() == []
    (advice,) = Settings(lease_seconds=106).advice()
    assert "121 s" in advice


def test_a_lease_that_a_pause_of_the_process_outlasts_is_pointed_out() -> None:
    assert Settings(lease_seconds=LEASE_SECONDS_ADVISED, heartbeat_seconds=1).advice() == []
    (advice,) = Settings(lease_seconds=LEASE_SECONDS_ADVISED - 0.1, heartbeat_seconds=1).advice()
    assert "lease_seconds is 4.9" in advice


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("lease_second", "lease_seconds"), ("concurency", "concurrency"), ("leaseseconds", "lease_seconds")],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(
    wrong: str, meant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    advice = f"did you mean {meant}?"
    with pytest.raises(SettingsError, match=wrong) as by_argument:
        Settings(**{wrong: 5})
    assert by_argument.value.next == advice
    (tmp_path / "redrive.toml").write_text(f"{wrong} = 5\n")
    with pytest.raises(SettingsError, match=r"in redrive\.toml") as by_file:
        Settings.load()
    assert by_file.value.next == advice
    (tmp_path / "redrive.toml").unlink()
    monkeypatch.setenv(f"REDRIVE_{wrong.upper()}", "5")
    with pytest.raises(SettingsError, match=f"from REDRIVE_{wrong.upper()}") as by_variable:
        Settings.load()
    assert by_variable.value.next == advice


@pytest.mark.parametrize(
    "variable",
    ["REDRIVE_PG_BIN", "REDRIVE_SERVICE_HOST", "REDRIVE_PORT", "REDRIVE_PORT_5432_TCP_ADDR", "REDRIVE_TEST_X"],
)
def test_variables_that_others_set_are_no_settings(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "x")
    assert Settings.load().lease_seconds == 60


def test_a_flag_goes_before_a_variable_before_the_file_before_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "redrive.toml").write_text("poll_seconds = 1\nclaim_max = 10\nconcurrency = 5\n")
    monkeypatch.setenv("REDRIVE_CLAIM_MAX", "20")
    monkeypatch.setenv("REDRIVE_CONCURRENCY", "6")
    settings = Settings.load(concurrency=7, stop_seconds=None)
    names = ("concurrency", "claim_max", "poll_seconds", "stop_seconds")
    assert [getattr(settings, name) for name in names] == [7, 20, 1, 20]
    origins = settings.origins()
    named = [origins[name] for name in names]
    assert named == ["--concurrency", "REDRIVE_CLAIM_MAX", "poll_seconds in redrive.toml", "default"]
    assert origins.keys() == TABLE.keys()


def test_a_refused_value_names_where_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_LEASE_SECONDS", "0.5")
    with pytest.raises(SettingsError, match=r"lease_seconds is '0.5' \(from REDRIVE_LEASE_SECONDS\)"):
        Settings.load()


def test_an_empty_variable_counts_as_absent_and_none_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_LEASE_SECONDS", "")
    monkeypatch.setenv("REDRIVE_RETENTION_DAYS", "none")
    assert (Settings.load().lease_seconds, Settings.load().retention_days) == (60, None)


def test_the_dsn_is_found_in_the_order_that_is_documented(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found: list[tuple[str | None, str]] = []

    def look(**flags: Any) -> None:
        settings = Settings.load(**flags)
        found.append((settings.dsn, settings.origins()["dsn"]))

    look()
    monkeypatch.setenv("PGHOST", "db")
    look()
    monkeypatch.setenv("DATABASE_URL", "postgresql+psycopg://url/x")
    look()
    (tmp_path / "redrive.toml").write_text('dsn = "host=file"\n')
    look()
    (tmp_path / "secret").write_text("host=secret\n")
    monkeypatch.setenv("REDRIVE_DSN_FILE", str(tmp_path / "secret"))
    look()
    monkeypatch.setenv("REDRIVE_DSN", "host=variable")
    look()
    look(dsn="host=flag")
    assert found == [
        (None, "default"),
        ("postgresql://", "PGHOST"),
        ("postgresql://url/x", "DATABASE_URL"),
        ("host=file", "dsn in redrive.toml"),
        ("host=secret", "REDRIVE_DSN_FILE"),
        ("host=variable", "REDRIVE_DSN"),
        ("host=flag", "--dsn"),
    ]


def test_the_dsn_is_in_no_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "geheim" not in repr(Settings(dsn="postgresql://anna:geheim@db/x"))
    with pytest.raises(SettingsError) as refused:
        Settings(dsn=["geheim"])
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("content", ["lease_seconds =", "\xff", "[relay]\nlease_seconds = 5\n"])
def test_a_file_that_cannot_be_used_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_bytes(content.encode("latin-1"))
    with pytest.raises(SettingsError, match=r"redrive\.toml"):
        Settings.load()


def test_a_file_that_was_named_must_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        Settings.load(config=tmp_path / "other.toml")
    monkeypatch.setenv("REDRIVE_CONFIG", str(tmp_path / "other.toml"))
    with pytest.raises(SettingsError, match="cannot be read"):
        Settings.load()
    monkeypatch.setenv("REDRIVE_DSN_FILE", str(tmp_path / "no-secret"))
    monkeypatch.delenv("REDRIVE_CONFIG")
    with pytest.raises(SettingsError, match="REDRIVE_DSN_FILE names"):
        Settings.load()


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().lease_seconds = 5


@pytest.mark.parametrize("name", TABLE)
def test_every_setting_is_documented_with_its_unit(name: str) -> None:
    row = TABLE[name]
    assert row.help.endswith(".")
    assert bool(row.unit) == (row.low is not None) == (row.kind in (int, float))


def test_the_table_is_that_of_the_class_and_a_relay_takes_a_part_of_it() -> None:
    assert list(TABLE) == list(Settings.model_fields)
    assert RelayLimits.table().items() <= TABLE.items()
    assert Settings(lease_seconds=30).limits() == RelayLimits(lease_seconds=30).limits()


@pytest.mark.parametrize("name", TABLE)
def test_every_setting_is_read_from_its_variable_and_from_the_file(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = TABLE[name]
    value: Any = row.choices[-1] if row.choices else row.high if row.low is not None else OTHER.get(name, "/x")
    beside = BESIDE.get(name, {})
    lines = "".join(f"{key} = {json.dumps(one)}\n" for key, one in {**beside, name: value}.items())
    (tmp_path / "redrive.toml").write_text(lines)
    settings = Settings.load()
    assert (str(getattr(settings, name)), settings.origins()[name]) == (str(row.kind(value)), f"{name} in redrive.toml")
    monkeypatch.setenv(row.variable, str(value))
    settings = Settings.load()
    assert (str(getattr(settings, name)), settings.origins()[name]) == (str(row.kind(value)), row.variable)


def test_a_bad_setting_ends_a_command_with_two(nowhere: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_LEASE_SECONDS", "0.5")
    result = nowhere("status")
    assert result.exit_code == 2
    assert "REDRIVE_LEASE_SECONDS" in result.stderr
