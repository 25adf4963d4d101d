"""Deterministic idempotency keys: the same parts give the same UUID on every machine and version (G-04).

Only tenant, category and kind are case-folded (ASCII letters only): two entity ids that differ in case are two
entities. Each part is hashed with its length in UTF-8 bytes, so that `a:b` + `c` is not `a` + `b:c`:

    11:redrive.key,1:1,7:default,5:order,2:42,7:created,1:3,        (the absent version is a lone `-,`)
"""

from __future__ import annotations

import hashlib
import string
from typing import Final, Literal
from uuid import UUID, uuid5

from redrive.errors import InvalidValue
from redrive.produce.bounds import whole_characters

Algorithm = Literal["sha256", "uuid5", "seed003"]

NAMESPACE: Final = UUID("5b0a9d3e-4c1f-5e57-9c9e-0f6a3c1d7e42")
PART_MAX: Final = 1000

_FORMAT: Final = ("redrive.key", "1")
_FOLD: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def key(
    *,
    category: str,
    entity: str | int | UUID,
    tenant: str = "default",
    kind: str = "",
    version: str | int | None = None,
    algorithm: Algorithm = "sha256",
) -> str:
    """A key for `enqueue`, as the text of a UUID.

    category: what kind of thing it is about, such as `order`. entity: its id; the text counts, so 7 and "7" agree.
    kind: what happened to it. version: number, revision or time bucket; None = there is only one.
    algorithm: `sha256`, the default: the first 16 bytes of the digest. `uuid5`: a name-based UUID of the same text.
    `seed003`: `tenant:category:entity:kind:version` in lower case, absent version 0, the digest's first 16 bytes as
    .NET's `Guid(byte[])` reads them; for producers in other languages, ambiguous where a part has a colon.
    """
    parts = (
        _text("tenant", tenant),
        _text("category", category),
        _text("entity", entity),
        _text("kind", kind, may_be_empty=True),
    )
    last = None if version is None else _text("version", version, may_be_empty=True)
    match algorithm:
        case "sha256":
            return str(UUID(bytes=_digest(_unambiguous(parts, last))))
        case "uuid5":
            return str(uuid5(NAMESPACE, _unambiguous(parts, last)))
        case "seed003":
            return str(UUID(bytes_le=_digest(_seed003(parts, last))))
    raise InvalidValue(f"algorithm is {algorithm!r}; it must be one of sha256, uuid5, seed003.")


def _unambiguous(parts: tuple[str, str, str, str], version: str | None) -> str:
    tenant, category, entity, kind = parts
    named = (*_FORMAT, tenant.translate(_FOLD), category.translate(_FOLD), entity, kind.translate(_FOLD))
    return "".join(map(_with_length, named)) + ("-," if version is None else _with_length(version))


def _with_length(part: str) -> str:
    return f"{len(part.encode())}:{part},"


def _seed003(parts: tuple[str, str, str, str], version: str | None) -> str:
    return "".join(map(_lower, ":".join((*parts, "0" if version is None else version))))


def _lower(character: str) -> str:
    """One character for one, as .NET's invariant culture does; str.lower() knows final sigmas and dotted capitals."""
    lowered = character.lower()
    return lowered if len(lowered) == 1 else character


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


def _text(what: str, value: object, *, may_be_empty: bool = False) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | UUID):
        raise InvalidValue(f"{what} is of type {type(value).__name__}; it must be text, an integer or a UUID.")
    text = str.__str__(value) if isinstance(value, str) else str(value)
    if not text and not may_be_empty:
        raise InvalidValue(f"{what} is empty; the key would be the same for everything without one.")
    if len(text) > PART_MAX:
        raise InvalidValue(f"{what} has {len(text):,} characters; at most {PART_MAX:,} are allowed.")
    return whole_characters(what, text)
