"""What the rows of the database mean to this version's files."""

from __future__ import annotations

import pytest

from redrive.errors import SchemaError
from redrive.store.migrations.files import load
from redrive.store.migrations.state import USABLE, Applied, Checked, Phase, compare, judge_all, plan
from tests.support.migration_sets import Files

pytestmark = pytest.mark.req("G-22")


@pytest.fixture
def four(files: Files) -> Files:
    """Two releases: each with a pre and a post, and one verb."""
    files.table("001_pre_a.sql", "SELECT 1").table("002_post_b.sql", "SELECT 2")
    files.table("003_pre_c.sql", "SELECT 3").table("004_post_d.sql", "SELECT 4")
    return files.function("claim", 1)


def rows(files: Files, *keys: str, version: str = "1.0") -> list[Applied]:
    (loaded,) = load([files.as_set()])
    known = {file.key: file for file in (*loaded.numbered, *loaded.verbs)}
    return [Applied("redrive", key, known[key].phase, known[key].checksum, version) for key in keys]


def planned(files: Files, applied: list[Applied], phase: Phase) -> list[str]:
    (judged,) = judge_all(applied, load([files.as_set()]))
    return [file.key for file in plan(judged, phase)]


ALL = ("001", "002", "003", "004", "claim.sql")


def test_no_table_and_no_rows_are_both_absent(four: Files) -> None:
    absent = compare(None, [four.as_set()])
    assert absent == compare([], [four.as_set()])
    assert (absent.state, absent.next, len(absent.pending)) == ("absent", "redrive db upgrade", 5)


def test_all_rows_are_current(four: Files) -> None:
    assert compare(rows(four, *ALL), [four.as_set()]) == Checked("current", (), "The schema is current.", "")


def test_plain_tuples_of_any_driver_will_do(four: Files) -> None:
    assert compare([tuple(row) for row in rows(four, *ALL)], [four.as_set()]).state == "current"


@pytest.mark.parametrize("missing", ["003", "claim.sql"])
def test_a_missing_pre_or_verb_is_behind(four: Files, missing: str) -> None:
    four.remove("tables/004_post_d.sql")
    checked = compare(rows(four, *(key for key in ALL if key not in (missing, "004"))), [four.as_set()])
    assert (checked.state, len(checked.pending), checked.next) == ("behind", 1, "redrive db upgrade")


def test_a_missing_post_alone_is_behind_post_and_usable(four: Files) -> None:
    checked = compare(rows(four, "001", "002", "003", "claim.sql"), [four.as_set()])
    assert (checked.state, checked.pending) == ("behind_post", ("redrive/tables/004_post_d.sql",))
    assert checked.next == "redrive db upgrade --phase post"
    assert checked.state in USABLE


def test_an_unknown_higher_number_is_ahead_and_usable(four: Files) -> None:
    newer = Applied("redrive", "005", "pre", "f" * 64, "2.0")
    checked = compare([*rows(four, *ALL), newer], [four.as_set()])
    assert (checked.state, checked.pending, checked.next) == ("ahead", (), "")
    assert checked.state in USABLE


def test_an_unknown_lower_number_is_invalid(four: Files) -> None:
    applied = rows(four, *ALL)
    four.remove("tables/003_pre_c.sql")
    checked = compare(applied, [four.as_set()])
    assert checked.state == "invalid"
    assert "redrive 003, which this version never had" in checked.detail


def test_a_pending_number_below_an_applied_one_is_invalid(four: Files) -> None:
    checked = compare(rows(four, "001", "002", "004", "claim.sql"), [four.as_set()])
    assert checked.state == "invalid"
    assert "003 was never applied although 004 was" in checked.detail


def test_a_changed_file_is_named_with_the_way_out(four: Files) -> None:
    applied = rows(four, *ALL)
    checked = compare(applied, [four.table("002_post_b.sql", "SELECT 22").as_set()])
    assert checked.state == "changed"
    assert "redrive/tables/002_post_b.sql" in checked.detail
    assert checked.next == "restore 002_post_b.sql as it was released and write the change as a new numbered file"


def test_a_file_that_moved_to_another_phase_is_changed(four: Files) -> None:
    applied = rows(four, *ALL)
    four.remove("tables/004_post_d.sql").table("004_pre_d.sql", "SELECT 4")
    assert compare(applied, [four.as_set()]).state == "changed"


@pytest.mark.parametrize(
    ("theirs", "state"),
    [
        ("0.9", "behind"),
        ("1.0rc1", "behind"),
        ("1.0.dev3", "behind"),
        ("1.0", "behind"),
        ("1.0.0", "behind"),
        ("unknown", "behind"),
        ("1.0.1", "ahead"),
        ("1.10", "ahead"),
        ("2.0rc1", "ahead"),
    ],
)
def test_a_verb_of_a_later_version_is_not_replaced_by_ours(four: Files, theirs: str, state: str) -> None:
    applied = [*rows(four, "001", "002", "003", "004"), *rows(four, "claim.sql", version=theirs)]
    checked = compare(applied, [four.function("claim", 2).as_set(version="1.0")])
    assert checked.state == state


def test_a_verb_of_a_database_with_higher_numbers_is_not_replaced_by_ours(four: Files) -> None:
    applied = [*rows(four, *ALL), Applied("redrive", "005", "pre", "f" * 64, "1.0")]
    four.function("claim", 2)
    assert compare(applied, [four.as_set()]).state == "ahead"
    assert planned(four, applied, "all") == []


def test_a_newer_database_without_one_of_our_verbs_is_invalid(four: Files) -> None:
    applied = [*rows(four, *ALL), Applied("redrive", "005", "pre", "f" * 64, "2.0")]
    checked = compare(applied, [four.function("settle", 1).as_set()])
    assert checked.state == "invalid"
    assert "without redrive/verbs/settle.sql" in checked.detail


def test_rows_of_a_set_that_is_not_installed_any_more_do_not_matter(four: Files) -> None:
    gone = Applied("payments", "001", "pre", "f" * 64, "1.0")
    assert compare([gone, *rows(four, *ALL)], [four.as_set()]).state == "current"


def test_several_sets_are_as_good_as_the_worst(four: Files) -> None:
    newer = Applied("redrive", "005", "pre", "f" * 64, "2.0")
    checked = compare([*rows(four, *ALL), newer], [four.as_set(), four.as_set("payments")])
    assert checked.state == "behind"
    assert checked.next == "redrive db upgrade"
    assert checked.pending[0] == "payments/tables/001_pre_a.sql"


def test_all_runs_by_number_with_the_verbs_before_the_last_posts(four: Files) -> None:
    assert planned(four, [], "all") == ["001", "002", "003", "claim.sql", "004"]
    assert planned(four, rows(four, "001"), "all") == ["002", "003", "claim.sql", "004"]


def test_pre_on_an_empty_database_leaves_only_the_last_posts(four: Files) -> None:
    assert planned(four, [], "pre") == ["001", "002", "003", "claim.sql"]


def test_pre_is_refused_while_a_post_of_an_earlier_release_is_pending(four: Files) -> None:
    with pytest.raises(SchemaError, match=r"002_post_b\.sql of an earlier release .* --phase post, then --phase pre"):
        planned(four, rows(four, "001", "claim.sql"), "pre")


def test_post_runs_the_overdue_ones_and_stops_before_the_next_pre(four: Files) -> None:
    assert planned(four, rows(four, "001"), "post") == ["002"]


@pytest.mark.parametrize(("applied", "first"), [(("001", "002"), "003_pre_c"), (("001", "002", "003"), "claim")])
def test_post_is_refused_before_pre(four: Files, applied: tuple[str, ...], first: str) -> None:
    with pytest.raises(SchemaError, match=first + r"\.sql has to be applied before .* --phase pre"):
        planned(four, rows(four, *applied), "post")


@pytest.mark.parametrize("phase", ["all", "pre", "post"])
def test_a_changed_set_runs_nothing(four: Files, phase: Phase) -> None:
    applied = rows(four, "001")
    with pytest.raises(SchemaError, match=r"001_pre_a\.sql is not the file that version 1\.0 applied"):
        planned(four.table("001_pre_a.sql", "SELECT 11"), applied, phase)


@pytest.mark.parametrize("phase", ["all", "pre", "post"])
def test_a_set_that_is_out_of_order_runs_nothing(four: Files, phase: Phase) -> None:
    with pytest.raises(SchemaError, match="003 was never applied although 004 was"):
        planned(four, rows(four, "001", "002", "004", "claim.sql"), phase)
