"""JSON Patch (RFC 6902), applied and made from two values. docs/dependencies.md says why this is no library.

A message of an error names the place and never a value, because it is shown on screens and kept in the audit.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from redrive.errors import InvalidValue
from redrive.produce.payload import BYTES_MAX

OPERATIONS_MAX: Final = 1000
_INDEX: Final = re.compile(r"0|[1-9][0-9]*\Z")
_NOT_THERE: Final = object()

Pointer = tuple[str, ...]


def apply(document: Any, patch: Any) -> Any:
    """All of it, on a copy; InvalidValue where any operation does not fit."""
    if not isinstance(patch, list) or not 1 <= len(patch) <= OPERATIONS_MAX:
        raise InvalidValue(f"A JSON Patch is a list of 1 to {OPERATIONS_MAX} operations.")
    patched, room = copy.deepcopy(document), BYTES_MAX
    for number, operation in enumerate(patch):
        try:
            room -= _copied_bytes(patched, operation)
            if room < 0:
                raise InvalidValue(f"the patch copies more than {BYTES_MAX:,} bytes, which no payload may have.")
            patched = _apply_one(patched, operation)
        except InvalidValue as error:
            raise InvalidValue(f"Operation {number} of the patch: {error}") from None
    return patched


def value_at(document: Any, path: str) -> Any:
    return _get(document, _pointer({"path": path}, "path"))


def paths(patch: Sequence[Mapping[str, Any]]) -> list[str]:
    """`replace /amount`: what a patch does where, without the values."""
    return [f"{operation['op']} {operation['path']}" for operation in patch]


def _copied_bytes(document: Any, operation: Any) -> int:
    """Each copy may double the document: unbounded, twenty of them make a million values of one."""
    if not isinstance(operation, Mapping) or operation.get("op") != "copy":
        return 0
    return len(json.dumps(_get(document, _pointer(operation, "from"))))


def _apply_one(document: Any, operation: Any) -> Any:
    if not isinstance(operation, Mapping) or operation.get("op") not in _OPERATIONS:
        raise InvalidValue(f"op must be one of {', '.join(_OPERATIONS)}.")
    return _OPERATIONS[operation["op"]](document, operation)


def _replace(document: Any, operation: Mapping[str, Any]) -> Any:
    path = _pointer(operation, "path")
    _get(document, path)
    return _put(_taken(document, path) if path else document, path, _value(operation))


def _move(document: Any, operation: Mapping[str, Any]) -> Any:
    source, path = _pointer(operation, "from"), _pointer(operation, "path")
    if path[: len(source)] == source and path != source:
        raise InvalidValue("a value cannot be moved into itself.")
    value = _get(document, source)
    return document if path == source else _put(_taken(document, source), path, value)


def _copy(document: Any, operation: Mapping[str, Any]) -> Any:
    value = copy.deepcopy(_get(document, _pointer(operation, "from")))
    return _put(document, _pointer(operation, "path"), value)


def _test(document: Any, operation: Mapping[str, Any]) -> Any:
    if not same(_get(document, _pointer(operation, "path")), _value(operation)):
        raise InvalidValue(f"{operation['path']!r} has another value than the test expects.")
    return document


_OPERATIONS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], Any]]] = {
    "add": lambda document, operation: _put(document, _pointer(operation, "path"), _value(operation)),
    "remove": lambda document, operation: _taken(document, _pointer(operation, "path")),
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _value(operation: Mapping[str, Any]) -> Any:
    if "value" not in operation:
        raise InvalidValue(f"{operation['op']} needs a value.")
    return copy.deepcopy(operation["value"])


def _pointer(operation: Mapping[str, Any], name: str) -> Pointer:
    text = operation.get(name)
    if not isinstance(text, str) or (text and not text.startswith("/")) or re.search(r"~(?![01])", text):
        raise InvalidValue(f"{name} must be a JSON Pointer, such as /items/0/amount.")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:])


def _get(document: Any, path: Pointer) -> Any:
    for depth, part in enumerate(path):
        document = _member(document, part)
        if document is _NOT_THERE:
            raise _nothing_at(path[: depth + 1])
    return document


def _member(container: Any, part: str) -> Any:
    if isinstance(container, dict):
        return container.get(part, _NOT_THERE)
    if isinstance(container, list) and _INDEX.fullmatch(part) and int(part) < len(container):
        return container[int(part)]
    return _NOT_THERE


def _put(document: Any, path: Pointer, value: Any) -> Any:
    if not path:
        return value
    container, part = _get(document, path[:-1]), path[-1]
    if isinstance(container, dict):
        container[part] = value
    elif isinstance(container, list) and (part == "-" or (_INDEX.fullmatch(part) and int(part) <= len(container))):
        container.insert(len(container) if part == "-" else int(part), value)
    else:
        raise _nothing_at(path)
    return document


def _taken(document: Any, path: Pointer) -> Any:
    _get(document, path)
    if not path:
        return None
    container, part = _get(document, path[:-1]), path[-1]
    if isinstance(container, dict):
        del container[part]
    else:
        del container[int(part)]
    return document


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _nothing_at(path: Pointer) -> InvalidValue:
    place = "".join(f"/{_escaped(part)}" for part in path)
    return InvalidValue(f"there is nothing at {place!r}.")


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def difference(before: Any, after: Any) -> list[dict[str, Any]]:
    """The patch that leads from one value to the other.

    It fits more messages than the one it was made from: a member is set by `add`, which also fits where it is missing;
    a list that grew or shrank is set as a whole.
    """
    return list(_changes(before, after, ""))


def _changes(before: Any, after: Any, path: str, *, sets: str = "add") -> Iterator[dict[str, Any]]:
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


def _members(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[dict[str, Any]]:
    for name, old in before.items():
        place = f"{path}/{_escaped(name)}"
        if name not in after:
            yield {"op": "remove", "path": place}
        else:
            yield from _changes(old, after[name], place)
    for name, new in after.items():
        if name not in before:
            yield {"op": "add", "path": f"{path}/{_escaped(name)}", "value": new}
