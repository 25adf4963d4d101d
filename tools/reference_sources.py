"""Reference pages that are read from the sources: events from the Python files, functions and tables from the SQL.

Nothing is run: what a step or a fact carries is what its call in the code names. Used by `tools.reference`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from redrive.events import FACTS, INNER_STEPS, STEPS
from redrive.operate import logs
from redrive.store.migrations.script import BOOTSTRAP
from tools.reference_text import paragraph, table, words

SOURCE: Final = Path(__file__).parents[1] / "src" / "redrive"
SQL: Final = SOURCE / "store" / "sql"

_FUNCTION: Final = re.compile(
    r"((?:^--[^\n]*\n)*)^CREATE OR REPLACE FUNCTION redrive\.(\w+_\d+)(\(.*?)\s*(?:LANGUAGE)", re.MULTILINE | re.DOTALL
)
_TABLE: Final = re.compile(
    r"((?:^--[^\n]*\n)*)^CREATE (UNLOGGED )?(TABLE|TYPE) redrive\.(\w+) (?:AS )?\(\n(.*?)\n\)", re.MULTILINE | re.DOTALL
)
_COLUMN: Final = re.compile(r"^ {4}([a-z_0-9]+) +(.+?),?$", re.MULTILINE)
# Rulings and requirements that a comment names are for those who change the code.
_MARKS: Final = re.compile(r" \((?:ruling \d+|[GI]-?\d+[^)]*)\)")
_GRANT: Final = re.compile(r"GRANT EXECUTE ON FUNCTION(.*?)TO (.*?);", re.DOTALL)


# events


class Carried(NamedTuple):
    """What an event carries: from its beginning, and added at its end."""

    values: set[str]
    added: set[str]


def events_page() -> Iterator[str]:
    carried = carried_values()
    yield "# Events"
    yield from paragraph(
        """`redrive.events.Events.subscribe(function, *names)` calls `function(name, values)`; values are plain, never
        of the payload. A subscriber must not block and must not raise. A relay writes events to its log: each step at
        level debug, the facts at the level given below."""
    )
    yield from ("", "## Steps")
    yield from paragraph(
        """A step emits `<step>.start`, then `<step>.stop` or `<step>.exception` (with `error`, the type of the
        exception). *Added* is in `.stop` only."""
    )
    yield ""
    rows = [(f"`{step}`{_inner(step)}", words(carried[step].values), words(carried[step].added)) for step in STEPS]
    yield from table(("step", "values", "added"), rows)
    yield ""
    yield "¹ inside the one transaction of `settle_one`: a start and no end of its own."
    yield from ("", "## Facts", "")
    yield from table(("fact", "values", "log level"), [_fact(name, carried[name]) for name in FACTS])


def _inner(step: str) -> str:
    return " ¹" if step in INNER_STEPS else ""


def _fact(name: str, carried: Carried) -> tuple[str, ...]:
    levels = {10: "debug", 20: "info", 30: "warning", 40: "error"}
    return f"`{name}`", words(carried.values), levels[logs.level_of(name)]


def carried_values() -> dict[str, Carried]:
    """For each step and fact, the names that its calls pass; empty for one that is emitted nowhere."""
    found = {name: Carried(set(), set()) for name in (*STEPS, *FACTS)}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for scope in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            for name, carried in _calls(scope, tree):
                found[name].values.update(carried.values)
                found[name].added.update(carried.added)
    return found


def emitted() -> set[str]:
    """Steps and facts that some call in the code names."""
    found: set[str] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for scope in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            found |= {name for name, _ in _calls(scope, tree)}
    return found


def _calls(scope: ast.AST, module: ast.AST) -> Iterator[tuple[str, Carried]]:
    added = _added(scope)
    for call in (node for node in ast.walk(scope) if isinstance(node, ast.Call)):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method in {"step", "emit"} and call.args:
            values = {keyword.arg for keyword in call.keywords if keyword.arg}
            for name in _named(call.args[0], scope, module):
                yield name, Carried(values, added.get(name, set()) if method == "step" else set())


def _named(argument: ast.expr, scope: ast.AST, module: ast.AST) -> set[str]:
    """The events that the first argument may name: a constant, or a variable that takes one of the module's facts."""
    known = {*STEPS, *FACTS}
    if isinstance(argument, ast.Constant):
        return {str(argument.value)} & known
    if isinstance(argument, ast.Name):
        return (_strings(scope) | _strings_of_tables(module)) & set(FACTS)
    return set()


def _strings(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def _strings_of_tables(module: ast.AST) -> set[str]:
    return set().union(*(_strings(one.value) for one in ast.iter_child_nodes(module) if isinstance(one, ast.Assign)))


def _added(scope: ast.AST) -> dict[str, set[str]]:
    """Step to what its block puts into the dictionary that `step` yields."""
    found: dict[str, set[str]] = {}
    for node in (one for one in ast.walk(scope) if isinstance(one, ast.With)):
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and call.args and isinstance(item.optional_vars, ast.Name):
                for name in _named(call.args[0], scope, scope):
                    found[name] = _put_into(item.optional_vars.id, node)
    return found


def _put_into(variable: str, block: ast.AST) -> set[str]:
    keys: set[str] = set()
    for node in ast.walk(block):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))) if name == variable:
                keys.add(key)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update")) if name == variable:
                keys |= {keyword.arg for keyword in node.keywords if keyword.arg}
    return keys


# SQL


def sql_page() -> Iterator[str]:
    grants = _grants()
    yield "# Functions"
    yield from paragraph(
        """Every verb is one function, versioned in its name: a changed contract is a new number beside the old one.
        Call them with named arguments; `p_now` is for tests and is left out. Who is named may call it; the owner may
        call all."""
    )
    for path in sorted((SQL / "verbs").glob("*.sql")):
        found = _FUNCTION.findall(path.read_text(encoding="utf-8"))
        for comment, name, signature in found:
            roles = words(grants[name]) if name in grants else "the owner only"
            yield from ("", f"## {name}", "", _comment(comment) or f"Goes with `{found[0][1]}`.", "")
            yield from (f"May call it: {roles}.", "", "```sql", f"redrive.{name}{signature}", "```")


def _grants() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    text = (SQL / "verbs" / "zz_grants.sql").read_text(encoding="utf-8")
    for functions, roles in _GRANT.findall(text):
        for name in re.findall(r"redrive\.(\w+)", functions):
            found.setdefault(name, []).extend(re.findall(r"\w+", roles))
    return found


def _comment(lines: str) -> str:
    """Comment lines as a paragraph; directives to the migrator are left out, an empty comment line begins a new one."""
    said = [line.removeprefix("--").strip() for line in lines.splitlines() if not line.startswith("-- redrive:")]
    return _MARKS.sub("", "\n".join(said))


def tables_page() -> Iterator[str]:
    yield "# Tables"
    yield from paragraph(
        """Schema `redrive`. Programs call [functions](sql.md) and people read the views `messages`, `history` and
        `conservation`; only the owner writes to a table. The words are in the [glossary](../glossary.md)."""
    )
    for text in (*_migrations(), _migrators_own()):
        for comment, unlogged, sort, name, body in _TABLE.findall(text):
            said = " ".join([*_kind(sort, bool(unlogged)), _comment(comment)]).strip()
            yield from ("", f"## {name}", "", said or "See the table before it.", "")
            columns = [*_columns(body), *_added_columns(name)]
            yield from table(("column", "type"), [(f"`{column}`", _plain(kind)) for column, kind in columns])


def _added_columns(name: str) -> list[tuple[str, str]]:
    """Columns that a later migration adds to a table, or attributes to a type."""
    what = r"(?:COLUMN|ATTRIBUTE)(?: IF NOT EXISTS)?"
    added = re.compile(rf"^ALTER (?:TABLE|TYPE) redrive\.{name} ADD {what} (\w+) ([^;]*);", re.MULTILINE)
    return [found for text in _migrations() for found in added.findall(text)]


def _migrations() -> Iterator[str]:
    yield from (path.read_text(encoding="utf-8") for path in sorted((SQL / "tables").glob("*.sql")))


def _migrators_own() -> str:
    """The one table that is there before any file was applied."""
    said = re.search(r"COMMENT ON TABLE redrive.schema_version IS\s+'(.*?)';", BOOTSTRAP)
    assert said is not None
    return re.sub(r"^ {8}CREATE", f"-- {said.group(1)}\nCREATE", BOOTSTRAP, flags=re.MULTILINE).replace(
        "\n        ", "\n"
    )


def _kind(sort: str, unlogged: bool) -> list[str]:
    return ["A type."] if sort == "TYPE" else ["Unlogged."] if unlogged else []


def _columns(body: str) -> list[tuple[str, str]]:
    words = {"constraint", "primary", "unique", "check"}
    return [(name, kind) for name, kind in _COLUMN.findall(body) if name not in words]


def _plain(kind: str) -> str:
    return f"`{' '.join(kind.split())}`"
