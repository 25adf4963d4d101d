"""The JSON Patch that leads from one value to another.

It fits more messages than the one it was made from: a member is set by `add`, which also fits where it is missing; a
list that grew or shrank is set as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redrive.operate.desk.json_patch import same

Operation = dict[str, Any]


def difference(before: Any, after: Any) -> list[Operation]:
    return list(_changes(before, after, ""))


def _changes(before: Any, after: Any, path: str, *, sets: str = "add") -> Iterator[Operation]:
    """sets: how a value is put there; in a list `add` would push the others on."""
    if same(before, after):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _members(before, after, path)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changes(old, new, f"{path}/{at}", sets="replace")
    else:
        yield {"op": sets if path else "replace", "path": path, "value": after}


def _members(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[Operation]:
    for name, old in before.items():
        place = f"{path}/{_escaped(name)}"
        if name not in after:
            yield {"op": "remove", "path": place}
        else:
            yield from _changes(old, after[name], place)
    for name, new in after.items():
        if name not in before:
            yield {"op": "add", "path": f"{path}/{_escaped(name)}", "value": new}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
