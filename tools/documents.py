"""The documents that `--json` prints, and their JSON Schemas in `docs/json/`.

Every document that a test of the command line sees is compared with the schema that it names. The schemas were drawn
from such documents: `REDRIVE_TEST_DOCUMENTS=FILE ./test tests/cli` collects them, and `python -m
tools.documents FILE` writes the schemas of those that have none yet. A schema is a promise: fields may be added
to a `v1`, none may be taken away.
"""

from __future__ import annotations

import json
import os
import pkgutil
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from jsonschema import Draft202012Validator

import redrive.operate
import redrive.store
from tools.reference_text import paragraph, table, words

ROOT: Final = Path(__file__).parents[1]
SCHEMAS: Final = ROOT / "docs" / "json"
COLLECT: Final = "REDRIVE_TEST_DOCUMENTS"
# Whatever a message, a handler or a person said: JSON of any shape, or names that are data.
ANYTHING: Final = frozenset({"result", "before", "after", "kept_answer", "payload", "value"})
OPEN: Final = frozenset(
    {
        "headers",
        "context",
        "counts",
        "brokers",
        "faults",
        "destination_faults",
        "points",
        "settings",
        "server",
        "values",
        "filter",
        "skipped",
    }
)
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\Z")
_NAMED: Final = re.compile(r'(?:output\.document\(|show_page\(call, |show_rows\(\s*call, |_prove\(|_end\()\s*"([^"]+)"')


def names() -> set[str]:
    """Of every document that a command can print."""
    sources = (ROOT / "src" / "redrive").rglob("*.py")
    return {name for path in sources for name in _NAMED.findall(path.read_text(encoding="utf-8"))}


def path_of(name: str) -> Path:
    return SCHEMAS / f"{name}.v1.json"


@cache
def schema_of(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(path_of(name).read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(found)
    return found


def seen(name: str, document: Mapping[str, Any]) -> None:
    """Compare it, or collect it."""
    file = os.environ.get(COLLECT)
    if file:
        with Path(file).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps([name, document]) + "\n")
    if path_of(name).exists():
        check(name, document)


def check(name: str, document: Mapping[str, Any]) -> None:
    wrong = next(Draft202012Validator(schema_of(name)).iter_errors(document), None)
    assert wrong is None, f"{path_of(name).name}: {wrong.json_path}: {wrong.message}"


def page() -> Iterator[str]:
    """The reference page."""
    yield "# JSON documents"
    yield from paragraph(
        """With `--json` a command prints one document on stdout. Its `schema` says what to expect: a name and a
        version. A field may be added to a version; none is taken away, and none gets another meaning. The
        [REST API](http.md) shows the same document for the same noun, without `schema`. An error is one
        object on stderr instead, a problem as RFC 9457 has it: `type`, `title`, `detail`, `code` and `next`, the
        command that helps. The schemas are [JSON Schema](https://json-schema.org), and every document that a test sees
        is compared with its own."""
    )
    yield ""
    rows = [(_link(name), words(set(schema_of(name)["properties"]) - {"schema"})) for name in sorted(known())]
    yield from table(("schema", "fields"), rows)


def known() -> set[str]:
    """Documents that have a schema."""
    return {path.name.removesuffix(".v1.json") for path in SCHEMAS.glob("*.v1.json")}


def _link(name: str) -> str:
    return f"[`redrive.{name}/v1`](../json/{path_of(name).name})"


# drawing a schema from documents


@dataclass
class Shape:
    """What was seen at one place."""

    types: set[str] = field(default_factory=set)
    objects: int = 0
    fields: dict[str, Shape] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    items: Shape | None = None
    only_moments: bool = True

    def add(self, value: Any) -> None:
        self.types.add(_type(value))
        if isinstance(value, dict):
            self.objects += 1
            for name, member in value.items():
                self.times[name] += 1
                self.fields.setdefault(name, Shape()).add(member)
        elif isinstance(value, list):
            self.items = self.items or Shape()
            for member in value:
                self.items.add(member)
        elif isinstance(value, str):
            self.only_moments = self.only_moments and bool(_MOMENT.match(value))

    def schema(self, name: str = "") -> dict[str, Any]:
        types = self.types - ({"integer"} if "number" in self.types else set())
        if name in ANYTHING or types <= {"null"}:
            return {}
        made: dict[str, Any] = {"type": sorted(types) if len(types) > 1 else next(iter(types))}
        if "object" in types and name not in OPEN:
            made["properties"] = {name: shape.schema(name) for name, shape in sorted(self.fields.items())}
            made["required"] = sorted(name for name, times in self.times.items() if times == self.objects)
            made["additionalProperties"] = False
        if name in may_be_null() and "null" not in types:
            made["type"] = sorted({*types, "null"})
        if self.items is not None:
            made["items"] = self.items.schema()
        if "string" in types and self.only_moments:
            made["format"] = "date-time"
        return made


@cache
def may_be_null() -> frozenset[str]:
    """Fields of what is read from the store or told by an operation that can be None wherever they are, seen or not."""
    found, never = set(), set()
    for part in (redrive.store, redrive.operate):
        for module in pkgutil.walk_packages(part.__path__, f"{part.__name__}."):
            for kind in vars(import_module(module.name)).values():
                if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.name:
                    hints = get_type_hints(kind)
                    names = {one.name for one in fields(kind)}
                    optional = {name for name in names if type(None) in get_args(hints[name])}
                    found |= optional
                    never |= names - optional
    return frozenset(found - never)


def _type(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def drawn(name: str, documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    shape = Shape()
    for document in documents:
        shape.add(document)
    made = shape.schema()
    made["properties"]["schema"] = {"const": f"redrive.{name}/v1"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"redrive.{name}/v1", **made}


def main(file: str) -> None:
    found: dict[str, list[Any]] = defaultdict(list)
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        name, document = json.loads(line)
        found[name].append(document)
    SCHEMAS.mkdir(exist_ok=True)
    for name, documents in found.items():
        if not path_of(name).exists():
            text = json.dumps(drawn(name, documents), indent=2, ensure_ascii=False)
            path_of(name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
