"""Decides, without a database, what state a schema is in and which files come next.

Files run strictly in order of number. A numbered file that changed after it was applied is an error; a newer database
is not, because old and new relays run side by side while a release rolls out.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, NamedTuple

from redrive.errors import SchemaError
from redrive.store.migrations.files import ENGINE, LoadedSet, MigrationFile, MigrationSet, load

UPGRADE = "redrive db upgrade"
READ_VERSIONS = "SELECT set_name, number_or_file, phase, checksum, product_version FROM redrive.schema_version"

Phase = Literal["all", "pre", "post"]
State = Literal["invalid", "changed", "absent", "behind", "behind_post", "ahead", "current"]

# From worst to best: several sets together are as good as the worst of them.
_SEVERITY: tuple[State, ...] = ("invalid", "changed", "absent", "behind", "behind_post", "ahead", "current")
_OTHER_VERSION = "install the version of Redrive that this database belongs to"
USABLE: frozenset[State] = frozenset({"current", "behind_post", "ahead"})


class Applied(NamedTuple):
    """A row of `READ_VERSIONS`."""

    set_name: str
    number_or_file: str
    phase: str
    checksum: str
    product_version: str


@dataclass(frozen=True, slots=True)
class Checked:
    state: State
    pending: tuple[str, ...]  # labels of the files that an upgrade would run, in order
    detail: str  # a sentence for every set that is not current
    next: str  # the command that helps; empty if nothing needs to be done


@dataclass(frozen=True, slots=True)
class Judged:
    """One set against its rows."""

    loaded: LoadedSet
    state: State
    detail: str = ""
    next: str = ""
    numbered: tuple[MigrationFile, ...] = ()  # pending, in order of number
    verbs: tuple[MigrationFile, ...] = ()  # pending, in order
    fresh: bool = False  # nothing of this set was ever applied, so no older code can be using it


def compare(rows: Iterable[Sequence[str]] | None, sets: Iterable[MigrationSet] = ()) -> Checked:
    """The state of all sets together. rows: None if the table does not exist."""
    judged = judge_all(rows, load(sets))
    state = min((one.state for one in judged), key=_SEVERITY.index)
    worst = next(one for one in judged if one.state == state)
    pending = tuple(file.label for one in judged for file in _in_order(one))
    detail = " ".join(one.detail for one in judged if one.detail) or "The schema is current."
    return Checked(state, pending, detail, worst.next)


def judge_all(rows: Iterable[Sequence[str]] | None, loaded: Iterable[LoadedSet]) -> list[Judged]:
    applied = [Applied(*row) for row in rows or ()]
    return [_judge(one, {row.number_or_file: row for row in applied if row.set_name == one.name}) for one in loaded]


def _judge(loaded: LoadedSet, applied: dict[str, Applied]) -> Judged:
    if not applied:
        detail = f"Nothing of the set {loaded.name} is in this database."
        state: State = "absent" if loaded.name == ENGINE else "behind"
        return Judged(loaded, state, detail, UPGRADE, loaded.numbered, loaded.verbs, fresh=True)
    return _changed(loaded, applied) or _out_of_order(loaded, applied) or _progress(loaded, applied)


def _changed(loaded: LoadedSet, applied: dict[str, Applied]) -> Judged | None:
    for file in loaded.numbered:
        row = applied.get(file.key)
        if row and (row.checksum, row.phase) != (file.checksum, file.phase):
            detail = (
                f"{file.label} is not the file that version {row.product_version} applied as {file.key}: "
                f"{row.phase} with checksum {row.checksum[:12]} there, "
                f"{file.phase} with checksum {file.checksum[:12]} here."
            )
            advice = f"restore {file.name} as it was released and write the change as a new numbered file"
            return Judged(loaded, "changed", detail, advice)
    return None


def _out_of_order(loaded: LoadedSet, applied: dict[str, Applied]) -> Judged | None:
    """Only higher numbers may be unknown to us, and no pending file may have been overtaken."""
    known = {file.number or 0 for file in loaded.numbered}
    there = {int(key) for key in applied if key.isdigit()}
    if strangers := sorted(number for number in there - known if number < max(known, default=0)):
        detail = f"The database has {loaded.name} {strangers[0]:03d}, which this version never had."
        return Judged(loaded, "invalid", detail, _OTHER_VERSION)
    if overtaken := sorted(number for number in known - there if number < max(there, default=0)):
        missed, last = f"{overtaken[0]:03d}", f"{max(there):03d}"
        detail = f"{loaded.name} {missed} was never applied although {last} was, and files run in order."
        return Judged(loaded, "invalid", detail, f"give {missed} a number above {last}")
    return None


def _progress(loaded: LoadedSet, applied: dict[str, Applied]) -> Judged:
    numbered = tuple(file for file in loaded.numbered if file.key not in applied)
    higher = [key for key in applied if key.isdigit() and int(key) > _highest(loaded)]
    other = [file for file in loaded.verbs if not _is_same(applied.get(file.name), file)]
    newer = [file for file in other if _is_newer(applied.get(file.name), file, higher_numbers=bool(higher))]
    verbs = tuple(file for file in other if file not in newer)
    if higher and verbs:
        detail = f"A newer version made this database without {verbs[0].label}, which this version needs."
        return Judged(loaded, "invalid", detail, _OTHER_VERSION)
    if higher or (newer and not numbered and not verbs):
        return Judged(loaded, "ahead", f"The set {loaded.name} in this database is newer than this program.")
    return _behind(loaded, numbered, verbs)


def _behind(loaded: LoadedSet, numbered: tuple[MigrationFile, ...], verbs: tuple[MigrationFile, ...]) -> Judged:
    if not numbered and not verbs:
        return Judged(loaded, "current")
    count = len(numbered) + len(verbs)
    if verbs or any(file.phase == "pre" for file in numbered):
        detail = f"Files of the set {loaded.name} that are not applied: {count}."
        return Judged(loaded, "behind", detail, UPGRADE, numbered, verbs)
    detail = f"{numbered[0].label} waits until no older version runs any more."
    return Judged(loaded, "behind_post", detail, f"{UPGRADE} --phase post", numbered)


def _highest(loaded: LoadedSet) -> int:
    return max((file.number or 0 for file in loaded.numbered), default=0)


def _is_same(row: Applied | None, file: MigrationFile) -> bool:
    return row is not None and row.checksum == file.checksum


def _is_newer(row: Applied | None, file: MigrationFile, *, higher_numbers: bool) -> bool:
    """A later version applied this verb's other content: ours must not replace it."""
    return row is not None and (higher_numbers or _later(row.product_version, file.version))


def _later(one: str, other: str) -> bool:
    theirs, ours = _version_order(one), _version_order(other)
    return theirs is not None and ours is not None and theirs > ours


def _version_order(version: str) -> tuple[tuple[int, ...], bool, str] | None:
    """Release numbers first; 1.2rc1 and 1.2.dev3 come before 1.2. None if it is no version."""
    match = re.fullmatch(r"v?(\d+(?:\.\d+)*)(.*)", version)
    if match is None:
        return None
    release = tuple(int(part) for part in re.sub(r"(\.0+)+$", "", match[1]).split("."))
    return release, not re.match(r"[._-]?(a|b|rc|dev)", match[2]), match[2]


def plan(judged: Judged, phase: Phase) -> list[MigrationFile]:
    """The files of one set that an upgrade runs now, in order. Raises if the phase may not run yet."""
    if judged.state in ("changed", "invalid"):
        raise SchemaError(judged.detail, next=judged.next)
    leading, trailing = _around_verbs(judged.numbered)
    match phase:
        case "all":
            return _in_order(judged)
        case "pre":
            _refuse_overdue(judged, leading)
            return [*leading, *judged.verbs]
        case "post":
            overdue = list(takewhile(lambda file: file.phase == "post", leading))
            _refuse_early(judged, leading, overdue)
            return overdue or trailing


def _in_order(judged: Judged) -> list[MigrationFile]:
    leading, trailing = _around_verbs(judged.numbered)
    return [*leading, *judged.verbs, *trailing]


def _around_verbs(numbered: Sequence[MigrationFile]) -> tuple[list[MigrationFile], list[MigrationFile]]:
    """Up to the last pending pre, and the posts behind it: those may take away what the old verbs needed."""
    trailing = list(takewhile(lambda file: file.phase == "post", reversed(numbered)))[::-1]
    return list(numbered[: len(numbered) - len(trailing)]), trailing


def _refuse_overdue(judged: Judged, leading: Sequence[MigrationFile]) -> None:
    overdue = next((file for file in leading if file.phase == "post"), None)
    if overdue and not judged.fresh:
        raise SchemaError(
            f"{overdue.label} of an earlier release was never applied, and later files are built on it.",
            next=f"{UPGRADE} --phase post, then --phase pre",
        )


def _refuse_early(judged: Judged, leading: Sequence[MigrationFile], overdue: Sequence[MigrationFile]) -> None:
    first = next(iter((*leading, *judged.verbs)), None)
    if first and not overdue:
        raise SchemaError(
            f"{first.label} has to be applied before the files of the post phase.",
            next=f"{UPGRADE} --phase pre",
        )
