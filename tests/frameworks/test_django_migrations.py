"""`manage.py migrate` brings the schema by our own migrator, once, and never takes it away."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.migrations.exceptions import IrreversibleError
from django.test import override_settings

import redrive
from redrive.store.migrations import migrate
from tools import django_migration


def test_migrate_brings_the_schema_and_a_second_time_finds_nothing_to_do(new_project: Any, empty_database: str) -> None:
    call_command("migrate", verbosity=0)
    assert migrate.check(empty_database).state == "current"
    with transaction.atomic():
        redrive.enqueue(new_project, "mail", 1)
    call_command("migrate", verbosity=0)
    with psycopg.connect(empty_database) as conn:
        assert conn.execute("SELECT count(*) FROM redrive.message").fetchone() == (1,)


def test_a_schema_that_somebody_else_brought_is_taken_as_it_is(own_project: Any, database: str) -> None:
    call_command("migrate", "redrive", verbosity=0)
    assert migrate.check(database).state == "current"


def test_the_way_back_is_refused_with_what_to_do_instead(new_project: Any, empty_database: str) -> None:
    call_command("migrate", "redrive", verbosity=0)
    with pytest.raises(IrreversibleError, match="DROP SCHEMA redrive CASCADE"):
        call_command("migrate", "redrive", "zero", verbosity=0)
    assert migrate.check(empty_database).state == "current"


@override_settings(REDRIVE_DATABASE="other")
def test_another_database_of_the_project_is_left_alone(new_project: Any, empty_database: str) -> None:
    call_command("migrate", "redrive", verbosity=0, skip_checks=True)
    assert migrate.check(empty_database).state == "absent"


def test_the_sql_can_be_read_and_run_by_hand(new_project: Any, empty_database: str) -> None:
    script = io.StringIO()
    call_command("sqlmigrate", "redrive", "0001", stdout=script)
    assert migrate.check(empty_database).state == "absent"
    with psycopg.connect(empty_database, autocommit=True) as conn:
        conn.execute(script.getvalue().encode())
    assert migrate.check(empty_database).state == "current"


def test_models_and_migrations_say_the_same(project: Any) -> None:
    try:
        call_command("makemigrations", "redrive", "--check", "--dry-run", verbosity=0)
    except (SystemExit, CommandError) as ended:
        pytest.fail(f"The models have changed; write a migration for them by hand: {ended}")


def test_a_version_is_stamped_anew_until_it_is_released_and_the_next_one_gets_a_migration_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(django_migration.MIGRATIONS, tmp_path, dirs_exist_ok=True)
    (first,) = tmp_path.glob("[0-9]*.py")
    first.write_text(first.read_text(encoding="utf-8").replace(django_migration.wanted().fingerprint, "0123"))
    assert django_migration.found(tmp_path) != django_migration.wanted()
    django_migration.write(tmp_path)
    assert django_migration.found(tmp_path) == django_migration.wanted()
    assert list(tmp_path.glob("[0-9]*.py")) == [first]

    monkeypatch.setattr(redrive, "__version__", "0.2.0")
    django_migration.write(tmp_path)
    second = tmp_path / "0002_redrive_0_2_0.py"
    assert f'dependencies = [("redrive", "{first.stem}")]' in second.read_text(encoding="utf-8")
    assert django_migration.found(tmp_path) == django_migration.wanted()
    compile(second.read_text(encoding="utf-8"), second.name, "exec")
