"""Prints the migrations as one script, for psql and for tools that keep their own history; needs no database.

On an empty database it leaves what `upgrade` would have left. The row of a numbered file comes before its statements: a
script that is run twice stops there, with nothing done.
"""

from collections.abc import Iterable, Mapping

from redrive.errors import InvalidValue
from redrive.store.migrations.files import LoadedSet, MigrationFile, MigrationSet, load
from redrive.store.migrations.lock import LOCK_KEY
from redrive.store.migrations.state import Applied, Phase, judge_all, plan

SEARCH_PATH = "redrive, pg_temp"
LOCK_TIMEOUT_SECONDS = 5

BOOTSTRAP = """\
DO $bootstrap$
BEGIN
    -- CREATE SCHEMA IF NOT EXISTS asks for the privilege even where there is nothing to create.
    IF to_regnamespace('redrive') IS NULL THEN
        CREATE SCHEMA redrive;
    END IF;
    IF to_regclass('redrive.schema_version') IS NULL THEN
        CREATE TABLE redrive.schema_version (
            set_name        text        NOT NULL,
            number_or_file  text        NOT NULL,
            phase           text        NOT NULL CHECK (phase IN ('pre', 'post', 'verb')),
            checksum        text        NOT NULL,
            applied_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
            applied_by      text        NOT NULL DEFAULT current_user,
            duration_ms     bigint      NOT NULL,
            product_version text        NOT NULL,
            PRIMARY KEY (set_name, number_or_file)
        );
        COMMENT ON TABLE redrive.schema_version IS
            'Which migration files were applied; written by the migrator only.';
    END IF;
END
$bootstrap$;
"""


def sql(
    phase: Phase = "all",
    sets: Iterable[MigrationSet] = (),
    *,
    above: Mapping[str, int] | None = None,
    transactions: bool = True,
) -> str:
    """above: leaves out the numbered files of a set up to that number, for a database that has those.

    transactions: False leaves out BEGIN and COMMIT, for a tool that has a transaction around the script.
    """
    files = [file for one in load(sets) for file in _chosen(one, phase, (above or {}).get(one.name, 0))]
    if not transactions and (outside := [file.label for file in files if not file.transactional]):
        raise InvalidValue(f"{outside[0]} cannot run inside a transaction; print the script with its own transactions.")
    parts = [_transaction(BOOTSTRAP, transactions=transactions)]
    parts += [_part(file, transactions=transactions) for file in files]
    return "\n".join(parts)


def _chosen(loaded: LoadedSet, phase: Phase, above: int) -> list[MigrationFile]:
    done = [file for file in loaded.numbered if (file.number or 0) <= above]
    if phase == "post":
        # A script of the post phase is for a database that has had the pre phase.
        last = max((file.number or 0 for file in loaded.numbered if file.phase == "pre"), default=0)
        done = [file for file in loaded.numbered if (file.number or 0) <= max(above, last)] + list(loaded.verbs)
    rows = [Applied(file.set_name, file.key, file.phase, file.checksum, file.version) for file in done]
    (judged,) = judge_all(rows, [loaded])
    return plan(judged, phase)


def _part(file: MigrationFile, *, transactions: bool) -> str:
    heading = f"-- {file.label}\n"
    if not file.transactional:
        return f"{heading}SET search_path = {SEARCH_PATH};\n{_body(file)}{_record(file)}RESET search_path;\n"
    if file.phase == "verb":
        return heading + _transaction(_body(file) + _record(file), transactions=transactions)
    return heading + _transaction(_record(file) + _body(file), transactions=transactions)


def _transaction(body: str, *, transactions: bool) -> str:
    settings = (
        f"SET LOCAL search_path = {SEARCH_PATH};\n"
        "SET LOCAL client_min_messages = warning;\n"
        f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s';\n"
        f"DO $lock$ BEGIN PERFORM pg_advisory_xact_lock({LOCK_KEY}); END $lock$;\n"
    )
    return f"BEGIN;\n{settings}{body}COMMIT;\n" if transactions else settings + body


def _body(file: MigrationFile) -> str:
    text = file.text.rstrip() + "\n"
    return text if not file.statements or file.statements[-1].terminated else text + ";\n"


def _record(file: MigrationFile) -> str:
    values = ", ".join(
        "'" + value.replace("'", "''") + "'"
        for value in (file.set_name, file.key, file.phase, file.checksum, file.version)
    )
    again = (
        "\n    ON CONFLICT (set_name, number_or_file) DO UPDATE SET checksum = excluded.checksum,\n"
        "        product_version = excluded.product_version, applied_at = excluded.applied_at,\n"
        "        applied_by = excluded.applied_by, duration_ms = excluded.duration_ms"
    )
    return (
        "INSERT INTO redrive.schema_version\n"  # noqa: S608 - the values are quoted above
        "       (set_name, number_or_file, phase, checksum, product_version, duration_ms)\n"
        f"    VALUES ({values}, 0){again if file.phase == 'verb' else ''};\n"
    )
