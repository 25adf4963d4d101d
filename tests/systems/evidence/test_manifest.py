"""The CSV of an upload: encodings, header, every bad line by number and rule, and what it names against the archive."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from pathlib import Path

import pytest

from redrive.systems.evidence.checking import Checked, check
from redrive.systems.evidence.file_types import FileType
from redrive.systems.evidence.manifest import read_manifest
from redrive.systems.evidence.problems import KEPT_MAX, Problem, Problems, UploadRefused, as_csv
from redrive.systems.evidence.upload_limits import UploadLimits
from tests.systems.evidence.archives import CASE, LINES, OTHER, PDF, PNG, named, written, zipped

LIMITS = UploadLimits()


def checked(tmp_path: Path, lines: str | bytes | None, files: dict[str, bytes] | None = None) -> Checked:
    return check(written(tmp_path, zipped({"a.pdf": PDF} if files is None else files, lines)), LIMITS)


def problems(
    tmp_path: Path, lines: str | bytes | None, files: dict[str, bytes] | None = None
) -> list[tuple[str, int | None, str]]:
    with pytest.raises(UploadRefused) as caught:
        checked(tmp_path, lines, files)
    return [(one.file, one.line, one.rule) for one in caught.value.problems]


@pytest.mark.req("E-01")
@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode(),
        lambda text: codecs.BOM_UTF8 + text.encode(),
        lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
        lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
        lambda text: text.encode("latin-1"),
    ],
    ids=["UTF-8", "UTF-8 with mark", "UTF-16 LE", "UTF-16 BE", "Latin-1"],
)
def test_each_encoding_gives_the_same_names(encode: object, tmp_path: Path) -> None:
    assert callable(encode)
    found = checked(tmp_path, encode(named("café.pdf")), {"café.pdf": PDF})
    assert [one.name for line, _ in found.lines for one in line.files] == ["café.pdf"]


@pytest.mark.parametrize(
    "data", [LINES.encode("utf-16-le"), codecs.BOM_UTF8 + b"caf\xe9", codecs.BOM_UTF16_LE + b"\x00\xd8x\x00"]
)
def test_an_encoding_that_does_not_fit_is_refused(data: bytes, tmp_path: Path) -> None:
    assert problems(tmp_path, data) == [("cases.csv", None, "ENCODING")]


def test_a_name_is_found_although_the_archive_has_it_in_another_unicode_form(tmp_path: Path) -> None:
    assert checked(tmp_path, named("caf\u00e9.pdf"), {"cafe\u0301.pdf": PDF}).files == 1


def test_line_ends_of_every_kind_and_empty_lines_are_read(tmp_path: Path) -> None:
    lines = f"\ufeffCase_ID , FILES\r\n{CASE},a.pdf\r\r{str(OTHER).upper()},\n\n"
    found = checked(tmp_path, lines.encode())
    assert [(line.number, line.case_id, len(files)) for line, files in found.lines] == [(2, CASE, 1), (4, OTHER, 0)]


HEADERS: Sequence[tuple[str, list[str]]] = [
    ("case_id,files,colour", ["COLUMN_UNKNOWN"]),
    ("case_id", ["COLUMN_MISSING"]),
    ("files,files,case", ["COLUMN_DUPLICATE", "COLUMN_UNKNOWN", "COLUMN_MISSING"]),
    ("case_id;files", ["COLUMN_UNKNOWN", "COLUMN_MISSING", "COLUMN_MISSING"]),
    ('"case_id,files', ["LINE_SYNTAX"]),
    ("", ["COLUMN_MISSING", "COLUMN_MISSING"]),
]


@pytest.mark.req("E-01")
@pytest.mark.parametrize(("header", "rules"), HEADERS)
def test_a_header_is_refused_with_all_that_is_wrong(header: str, rules: list[str], tmp_path: Path) -> None:
    found = problems(tmp_path, f"{header}\n{CASE},a.pdf\n")
    assert [one for one in found if one[2] in rules] == [("cases.csv", 1, rule) for rule in rules]


BAD_LINES: Sequence[tuple[str, str]] = [
    ("CASE_ID_INVALID", "abc,b.pdf,"),
    ("CASE_ID_INVALID", f"{CASE.hex},b.pdf,"),
    ("CASE_ID_INVALID", f"{{{CASE}}},b.pdf,"),
    ("CASE_ID_INVALID", ",b.pdf,"),
    ("CASE_DUPLICATE", f"{OTHER},b.pdf,"),
    ("FILE_MISSING", f"{CASE},b.pdf|c.pdf,"),
    ("FILE_MISSING", f"{CASE},B.PDF,"),
    ("FILE_DUPLICATE", f"{CASE},b.pdf|b.pdf,"),
    ("FILE_DUPLICATE", f"{CASE},b.pdf|a.pdf,"),
    ("PATH_OUTSIDE", f"{CASE},../b.pdf,"),
    ("PATH_OUTSIDE", f"{CASE},/b.pdf,"),
    ("NAME_INVALID", f"{CASE},b.pdf||c.pdf,"),
    ("CELL_COUNT", f"{CASE},b.pdf"),
    ("CELL_COUNT", f"{CASE},b.pdf,,"),
    ("LINE_SYNTAX", f'{CASE},"b.pdf,'),
    ("LINE_SYNTAX", f'{CASE},"b".pdf,'),
    ("TYPE_UNKNOWN", f"{CASE},b.pdf,exe"),
    ("TYPE_UNKNOWN", f"{CASE},b.exe,"),
    ("TYPES_COUNT", f"{CASE},b.pdf,pdf|pdf"),
    ("INVALID_FORMAT", f"{CASE},b.pdf,png"),
    ("FILES_TOO_MANY", f"{CASE},{'|'.join(f'{one}.pdf' for one in range(101))},"),
]


@pytest.mark.req("E-01")
@pytest.mark.parametrize(("rule", "line"), BAD_LINES)
def test_a_bad_line_is_reported_by_file_line_and_rule(rule: str, line: str, tmp_path: Path) -> None:
    lines = f"case_id,files,types\n{OTHER},a.pdf,pdf\n{line}\n"
    found = problems(tmp_path, lines, {"a.pdf": PDF, "b.pdf": PDF})
    assert ("cases.csv", 3, rule) in found
    assert {(file, number) for file, number, _ in found} <= {("cases.csv", 3), ("b.pdf", None)}


def test_the_same_file_without_the_fault_is_accepted(tmp_path: Path) -> None:
    lines = f"case_id,files,types\n{OTHER},a.pdf,pdf\n{CASE},b.pdf,PDF\n"
    assert checked(tmp_path, lines, {"a.pdf": PDF, "b.pdf": PDF}).files == 2


@pytest.mark.req("E-01")
def test_every_bad_line_is_reported(tmp_path: Path) -> None:
    lines = f"case_id,files\nx,a.pdf\n{CASE},z.pdf\ny,\n{OTHER},a.pdf\n"
    assert problems(tmp_path, lines) == [
        ("cases.csv", 2, "CASE_ID_INVALID"),
        ("cases.csv", 4, "CASE_ID_INVALID"),
        ("cases.csv", 3, "FILE_MISSING"),
    ]


@pytest.mark.req("E-01")
def test_a_file_that_no_line_names_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, LINES, {"a.pdf": PDF, "b.pdf": PDF}) == [("b.pdf", None, "FILE_NOT_MENTIONED")]


@pytest.mark.req("E-01")
@pytest.mark.parametrize(
    ("files", "lines", "rule"),
    [
        ({"a.pdf": PDF}, None, "MANIFEST_MISSING"),
        ({"a.pdf": PDF, "x/cases.csv": LINES.encode()}, None, "MANIFEST_MISSING"),
        ({"a.pdf": PDF, "More.CSV": b"x"}, LINES, "MANIFEST_SEVERAL"),
    ],
)
def test_an_archive_has_exactly_one_csv_at_its_top(
    files: dict[str, bytes], lines: str | None, rule: str, tmp_path: Path
) -> None:
    assert problems(tmp_path, lines, files) == [("evidence.zip", None, rule)]


def test_a_csv_in_a_folder_is_evidence(tmp_path: Path) -> None:
    found = checked(tmp_path, named("x/orders.csv"), {"x/orders.csv": b"order,amount\n1,2\n"})
    assert found.files == 1


def test_a_csv_without_lines_is_refused(tmp_path: Path) -> None:
    found = problems(tmp_path, "case_id,files\n\n", {"a.pdf": PDF})
    assert ("cases.csv", None, "MANIFEST_EMPTY") in found


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        ({"lines_max": 1}, "LINES_TOO_MANY"),
        ({"line_characters_max": 43}, "LINE_TOO_LONG"),
        ({"manifest_bytes_max": 101}, "MANIFEST_TOO_LARGE"),
    ],
)
def test_bounds_of_the_csv(limits: dict[str, int], rule: str, tmp_path: Path) -> None:
    path = written(tmp_path, zipped({"a.pdf": PDF}, f"case_id,files\n{CASE},a.pdf  \n{OTHER},     \n"))
    name, value = next(iter(limits.items()))
    with pytest.raises(UploadRefused, match=rule):
        check(path, UploadLimits(**limits))
    bounds = {"lines_max": 2, "line_characters_max": 44, "manifest_bytes_max": 102}
    assert bounds[name] > value
    assert check(path, UploadLimits(**{name: bounds[name]})).files == 1


@pytest.mark.req("E-05")
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.pdf", PNG),
        ("a.png", PDF),
        ("a.jpg", PNG),
        ("a.tif", b"text"),
        ("a.txt", PDF),
        ("a.txt", b"a\0b"),
        ("a.pdf", b"MZ\x90\0"),
        ("a.pdf", zipped()),
        ("a.pdf", b" %PDF-1.7"),
        ("x/a.csv", b"\x1f\x8b\x08"),
    ],
)
def test_a_file_that_is_not_what_it_is_declared_to_be_is_refused(name: str, data: bytes, tmp_path: Path) -> None:
    assert problems(tmp_path, named(name), {name: data}) == [("cases.csv", 2, "INVALID_FORMAT")]


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, LINES, {"a.pdf": b""}) == [("cases.csv", 2, "FILE_EMPTY")]


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("a.PDF", PDF, FileType.PDF),
        ("a.png", PNG, FileType.PNG),
        ("a.jpg", b"\xff\xd8\xff\xe0", FileType.JPEG),
        ("a.jpeg", b"\xff\xd8\xff\xe1", FileType.JPEG),
        ("a.tiff", b"II*\0", FileType.TIFF),
        ("a.tif", b"MM\0*", FileType.TIFF),
        ("a.txt", "naïve\n".encode("latin-1"), FileType.TXT),
        ("a.txt", "naïve\n".encode("utf-16"), FileType.TXT),
    ],
)
def test_each_type_is_accepted(name: str, data: bytes, found: FileType, tmp_path: Path) -> None:
    lines = checked(tmp_path, named(name), {name: data}).lines
    assert [one.type for _, files in lines for one in files] == [found]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_a_report_has_no_cell_that_a_spreadsheet_runs(start: str) -> None:
    lines = list(as_csv([Problem(f"{start}HYPERLINK(1)", 3, "FILE_MISSING", f"{start}1")]))
    assert lines[0] == "file,line,rule,detail\r\n"
    assert lines[1].lstrip('"').startswith(f"'{start}")
    assert f",FILE_MISSING,'{start}1" in lines[1] or f",FILE_MISSING,\"'{start}1" in lines[1]


def test_problems_are_counted_beyond_those_that_are_kept() -> None:
    found = Problems()
    data = "case_id,files\n" + "x,\n" * (KEPT_MAX + 5)
    read_manifest(data.encode(), "cases.csv", LIMITS, found)
    assert (len(found.kept), found.found) == (KEPT_MAX, KEPT_MAX + 5)
    with pytest.raises(UploadRefused, match=f"There are {KEPT_MAX + 4} more problems"):
        found.raise_any()
