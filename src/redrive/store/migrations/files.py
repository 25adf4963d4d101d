"""Reads migration sets from their directories; needs no database.

A set has `tables/NNN_{pre|post}_title.sql` (run once, in order of number) and `verbs/*.sql` (run again whenever the
content changed). Within one release every `pre` has a lower number than every `post`, and no numbered file calls a
verb. Comment lines at the top may say `-- redrive: no transaction` (tables) or `-- redrive: after other_file` (verbs).
A file that could break the runner's promises is refused before anything has run.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from itertools import pairwise
from typing import Literal, NamedTuple

from redrive.errors import InvalidValue, SchemaError
from redrive.store.migrations.statements import Statement, split

ENGINE = "redrive"
UNKNOWN_VERSION = "unknown"

FilePhase = Literal["pre", "post", "verb"]

_SET_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NUMBERED_NAME = re.compile(r"(?P<number>\d{3,6})_(?P<phase>pre|post)_[a-z0-9_]+\.sql")
_VERB_NAME = re.compile(r"[a-z][a-z0-9_]*\.sql")
_DIRECTIVE = re.compile(r"--\s*redrive:\s*(?P<directive>.*?)\s*")
_CONCURRENT_INDEX = re.compile(
    r"CREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+IF\s+NOT\s+EXISTS\s+"
    r'(?P<index>[\w$]+|"(?:[^"]|"")+")\s+ON\s+(?:ONLY\s+)?(?P<table>(?:[\w$.]+|"(?:[^"]|"")+")+)',
    re.IGNORECASE,
)
_TRANSACTION_WORDS = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"})


@dataclass(frozen=True, slots=True)
class MigrationSet:
    """A named directory of migrations."""

    name: str  # lower case, digits and underscores; the key in redrive.schema_version
    directory: Traversable  # holds tables/ and verbs/; a pathlib.Path or a package resource
    version: str = ""  # of the code that the set belongs to; empty means the version of Redrive


class ConcurrentIndex(NamedTuple):
    """Both names as written in the file."""

    name: str
    table: str


@dataclass(frozen=True, slots=True)
class MigrationFile:
    set_name: str
    name: str  # file name
    number: int | None  # None for a verb
    phase: FilePhase
    text: str  # newlines normalised
    transactional: bool
    after: tuple[str, ...]  # file names of the verbs that run before this one
    version: str  # of the set

    @property
    def key(self) -> str:
        """`redrive.schema_version.number_or_file`."""
        return self.name if self.number is None else f"{self.number:03d}"

    @property
    def label(self) -> str:
        return f"{self.set_name}/{'verbs' if self.number is None else 'tables'}/{self.name}"

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def statements(self) -> list[Statement]:
        return split(self.text)


@dataclass(frozen=True, slots=True)
class LoadedSet:
    """All files of a set, in the order in which they run."""

    name: str
    version: str
    numbered: tuple[MigrationFile, ...]
    verbs: tuple[MigrationFile, ...]


def engine_set() -> MigrationSet:
    return MigrationSet(ENGINE, resources.files("redrive.store") / "sql")


def load(sets: Iterable[MigrationSet] = ()) -> tuple[LoadedSet, ...]:
    """The engine's set, then the others; one of them named `redrive` stands in for the engine's own."""
    sets = tuple(sets)
    names = [one.name for one in sets]
    for name in names:
        if not _SET_NAME.fullmatch(name) or names.count(name) > 1:
            raise InvalidValue(f"A migration set is named {name!r}; it must be unique and match {_SET_NAME.pattern}.")
    engine = [one for one in sets if one.name == ENGINE] or [engine_set()]
    return tuple(_load_one(one) for one in (*engine, *(one for one in sets if one.name != ENGINE)))


def product_version() -> str:
    try:
        return metadata.version("redrive")
    except metadata.PackageNotFoundError:
        return UNKNOWN_VERSION


def _load_one(migrations: MigrationSet) -> LoadedSet:
    version = migrations.version or product_version()
    numbered = [_numbered(migrations.name, version, entry) for entry in _sql_files(migrations, "tables")]
    verbs = [_verb(migrations.name, version, entry) for entry in _sql_files(migrations, "verbs")]
    if not numbered and not verbs:
        # A wheel built without its .sql files would otherwise call every database current.
        raise SchemaError(f"The migration set {migrations.name} has no files in {migrations.directory}.")
    return LoadedSet(migrations.name, version, _by_number(numbered), _by_name_and_after(verbs))


def _sql_files(migrations: MigrationSet, folder: str) -> list[Traversable]:
    directory = migrations.directory / folder
    entries = directory.iterdir() if directory.is_dir() else ()
    return [entry for entry in entries if entry.name.endswith(".sql")]


def _numbered(set_name: str, version: str, entry: Traversable) -> MigrationFile:
    match = _NUMBERED_NAME.fullmatch(entry.name)
    if match is None:
        raise SchemaError(f"{set_name}/tables/{entry.name} is not named NNN_{{pre|post}}_title.sql.")
    text = _text(entry)
    directives = _directives(text)
    number, inside = int(match["number"]), "no transaction" not in directives
    phase: FilePhase = "pre" if match["phase"] == "pre" else "post"
    file = MigrationFile(set_name, entry.name, number, phase, text, inside, (), version)
    _refuse_unknown(file, [directive for directive in directives if directive != "no transaction"])
    _refuse_statements(file)
    return file


def _verb(set_name: str, version: str, entry: Traversable) -> MigrationFile:
    text = _text(entry)
    directives = _directives(text)
    others = [directive.removeprefix("after ") for directive in directives if directive.startswith("after ")]
    after = tuple(f"{other.strip().removesuffix('.sql')}.sql" for line in others for other in line.split(","))
    file = MigrationFile(set_name, entry.name, None, "verb", text, True, after, version)
    if not _VERB_NAME.fullmatch(entry.name):
        raise SchemaError(f"{file.label} is not named in lower case, digits and underscores.")
    _refuse_unknown(file, [directive for directive in directives if not directive.startswith("after ")])
    _refuse_statements(file)
    return file


def _text(entry: Traversable) -> str:
    text = entry.read_bytes().decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _directives(text: str) -> list[str]:
    """What the comment lines before the first statement say to the runner."""
    found: list[str] = []
    for line in text.split("\n"):
        if line.strip() and not line.startswith("--"):
            break
        if match := _DIRECTIVE.fullmatch(line):
            found.append(match["directive"])
    return found


def _refuse_unknown(file: MigrationFile, directives: Sequence[str]) -> None:
    if directives:
        raise SchemaError(f"{file.label} says '-- redrive: {directives[0]}', which means nothing there.")


def _refuse_statements(file: MigrationFile) -> None:
    """A transactional file may not end its own transaction; the others must be safe to run again."""
    try:
        statements = file.statements
    except ValueError as error:
        raise SchemaError(f"{file.label}, {error}.") from error
    for statement in statements:
        where = f"{file.label}, line {statement.line}"
        if statement.words[:1] and statement.words[0] in _TRANSACTION_WORDS:
            raise SchemaError(f"{where}: {statement.words[0]} is the runner's to say, not the file's.")
        if builds_concurrently(statement) and concurrent_index(statement) is None:
            raise SchemaError(
                f"{where}: write CREATE INDEX CONCURRENTLY IF NOT EXISTS name ON table, "
                "or a run that was interrupted could not be repeated."
            )


def builds_concurrently(statement: Statement) -> bool:
    return statement.words[:1] == ("CREATE",) and "CONCURRENTLY" in statement.words[:4]


def concurrent_index(statement: Statement) -> ConcurrentIndex | None:
    match = _CONCURRENT_INDEX.match(statement.text)
    return ConcurrentIndex(match["index"], match["table"]) if match else None


def concurrent_indexes(file: MigrationFile) -> list[ConcurrentIndex]:
    if file.transactional:
        return []
    return [index for statement in file.statements if (index := concurrent_index(statement))]


def _by_number(files: list[MigrationFile]) -> tuple[MigrationFile, ...]:
    ordered = sorted(files, key=lambda file: (file.number or 0, file.name))
    for one, other in pairwise(ordered):
        if one.number == other.number:
            raise SchemaError(f"{one.label} and {other.name} have the same number.")
    return tuple(ordered)


def _by_name_and_after(files: list[MigrationFile]) -> tuple[MigrationFile, ...]:
    waiting = {file.name: file for file in sorted(files, key=lambda file: file.name)}
    for file in waiting.values():
        if unknown := [name for name in file.after if name not in waiting]:
            raise SchemaError(f"{file.label} runs after {unknown[0]}, which does not exist.")
    ordered: list[MigrationFile] = []
    while waiting:
        ready = next((file for file in waiting.values() if not waiting.keys() & set(file.after)), None)
        if ready is None:
            raise SchemaError(f"These verbs wait for each other: {', '.join(waiting)}.")
        ordered.append(waiting.pop(ready.name))
    return tuple(ordered)
