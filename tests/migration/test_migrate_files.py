"""What a set may contain, and in which order it runs."""

from __future__ import annotations

import pytest

from redrive.errors import InvalidValue, SchemaError
from redrive.store.migrations.files import ConcurrentIndex, concurrent_indexes, load
from tests.support.migration_sets import Files

pytestmark = pytest.mark.req("G-22")


def names(files: Files) -> list[str]:
    (loaded,) = load([files.as_set()])
    return [file.name for file in (*loaded.numbered, *loaded.verbs)]


def test_numbered_files_come_by_number_then_verbs_by_name(files: Files) -> None:
    files.table("1000_post_d.sql", "").table("010_pre_b.sql", "").table("009_post_c.sql", "")
    files.function("b", 1).function("a", 1)
    assert names(files) == ["009_post_c.sql", "010_pre_b.sql", "1000_post_d.sql", "a.sql", "b.sql"]


def test_a_verb_comes_after_the_ones_that_it_names(files: Files) -> None:
    files.function("a", 1, header="-- What it promises.\n-- redrive: after c, b.sql\n")
    files.function("b", 1).function("c", 1, header="-- redrive: after d\n").function("d", 1).function("e", 1)
    assert names(files) == ["b.sql", "d.sql", "c.sql", "a.sql", "e.sql"]


def test_verbs_that_wait_for_each_other_are_refused(files: Files) -> None:
    files.function("a", 1, header="-- redrive: after b\n").function("b", 1, header="-- redrive: after a\n")
    with pytest.raises(SchemaError, match=r"wait for each other: a\.sql, b\.sql"):
        load([files.as_set()])


def test_a_verb_after_a_file_that_does_not_exist_is_refused(files: Files) -> None:
    files.function("a", 1, header="-- redrive: after nothing\n")
    with pytest.raises(SchemaError, match=r"redrive/verbs/a\.sql runs after nothing\.sql, which does not exist"):
        load([files.as_set()])


@pytest.mark.parametrize("name", ["1_pre_a.sql", "001_a.sql", "001_mid_a.sql", "001_pre_A.sql", "001-pre-a.sql"])
def test_a_numbered_file_with_another_name_is_refused(files: Files, name: str) -> None:
    files.table(name, "")
    with pytest.raises(SchemaError, match="is not named NNN"):
        load([files.as_set()])


def test_a_verb_with_an_odd_name_is_refused(files: Files) -> None:
    files.verb("Claim.sql", "")
    with pytest.raises(SchemaError, match="is not named in lower case"):
        load([files.as_set()])


def test_two_files_of_one_number_are_refused(files: Files) -> None:
    files.table("001_pre_a.sql", "").table("001_post_b.sql", "")
    with pytest.raises(SchemaError, match="same number"):
        load([files.as_set()])


def test_files_that_are_not_sql_are_left_alone(files: Files) -> None:
    files.table("001_pre_a.sql", "").table("README.md", "words").verb("LANES.md", "words")
    assert names(files) == ["001_pre_a.sql"]


def test_a_set_without_files_is_refused(files: Files) -> None:
    with pytest.raises(SchemaError, match="has no files"):
        load([files.as_set()])


def test_line_endings_and_a_byte_order_mark_do_not_change_the_checksum(files: Files) -> None:
    files.table("001_pre_a.sql", "SELECT 1;\nSELECT 2;\n").table("002_pre_b.sql", "\ufeffSELECT 1;\r\nSELECT 2;\r")
    (loaded,) = load([files.as_set()])
    assert loaded.numbered[0].checksum == loaded.numbered[1].checksum


@pytest.mark.parametrize("word", ["BEGIN", "start transaction", "COMMIT", "ROLLBACK", "END", "ABORT"])
def test_a_file_that_speaks_of_transactions_is_refused(files: Files, word: str) -> None:
    files.table("001_pre_a.sql", f"CREATE TABLE redrive.a ();\n{word};")
    with pytest.raises(SchemaError, match=r"001_pre_a\.sql, line 2: (?i:" + word.split(maxsplit=1)[0] + ")"):
        load([files.as_set()])


def test_the_begin_of_a_function_body_is_no_transaction(files: Files) -> None:
    assert names(files.function("a", 1)) == ["a.sql"]


def test_an_open_quote_is_refused_with_file_and_line(files: Files) -> None:
    files.table("001_pre_a.sql", "SELECT 1;\nSELECT 'a;")
    with pytest.raises(SchemaError, match=r"001_pre_a\.sql, line 2: ' is opened and never closed"):
        load([files.as_set()])


@pytest.mark.parametrize(
    "text", ["CREATE INDEX CONCURRENTLY i ON t (a)", "create unique index concurrently on redrive.t (a)"]
)
def test_an_index_that_could_not_be_built_again_is_refused(files: Files, text: str) -> None:
    files.table("001_post_a.sql", f"-- redrive: no transaction\n{text};")
    with pytest.raises(SchemaError, match="line 2: write CREATE INDEX CONCURRENTLY IF NOT EXISTS"):
        load([files.as_set()])


def test_the_indexes_of_a_file_outside_a_transaction_are_known(files: Files) -> None:
    files.table(
        "001_post_a.sql",
        "-- redrive: no transaction\n"
        "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON redrive.t (a);\n"
        'create index concurrently if not exists "I;j" on only redrive."T ""u" using btree (b);',
    )
    (loaded,) = load([files.as_set()])
    assert concurrent_indexes(loaded.numbered[0]) == [
        ConcurrentIndex("i", "redrive.t"),
        ConcurrentIndex('"I;j"', 'redrive."T ""u"'),
    ]


def test_a_comment_to_the_runner_that_it_does_not_know_is_refused(files: Files) -> None:
    files.table("001_pre_a.sql", "-- redrive: no transactions\nSELECT 1")
    with pytest.raises(SchemaError, match="'-- redrive: no transactions', which means nothing there"):
        load([files.as_set()])


def test_a_verb_runs_in_a_transaction_whatever_it_says(files: Files) -> None:
    files.function("a", 1, header="-- redrive: no transaction\n")
    with pytest.raises(SchemaError, match="means nothing there"):
        load([files.as_set()])


def test_a_comment_below_the_first_statement_is_no_order_to_the_runner(files: Files) -> None:
    files.table("001_pre_a.sql", "SELECT 1;\n-- redrive: no transaction\n")
    (loaded,) = load([files.as_set()])
    assert loaded.numbered[0].transactional


@pytest.mark.parametrize("name", ["", "Payments", "a-b", "a'b", "a" * 64])
def test_a_set_name_outside_its_alphabet_is_refused(files: Files, name: str) -> None:
    with pytest.raises(InvalidValue, match="must be unique and match"):
        load([files.table("001_pre_a.sql", "").as_set(name)])


def test_two_sets_of_one_name_are_refused(files: Files) -> None:
    files.table("001_pre_a.sql", "")
    with pytest.raises(InvalidValue, match="must be unique"):
        load([files.as_set("payments"), files.as_set("payments")])


def test_the_engine_comes_first_and_a_set_of_its_name_stands_in_for_it(files: Files) -> None:
    files.table("001_pre_a.sql", "")
    assert [one.name for one in load([files.as_set("payments"), files.as_set()])] == ["redrive", "payments"]
