"""Verifies the audit's hash chain. SQL: verbs/audit.sql, reads/audit_chain.sql.

A cut end, or a chain that was written anew, is found only by a head that was noted outside the database (`noted`).
"""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from redrive.errors import InvalidValue
from redrive.store.reads.desk import audit_chain
from redrive.store.reads.messages import list_audit
from redrive.store.reads.models import ChainLink
from redrive.store.runtime.postgres import PostgresStore

__all__ = ["Head", "Verified", "list_audit", "verify"]

FAULTS_MAX: Final = 100  # that are reported; one is enough to know


class Head(NamedTuple):
    id: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.id}:{self.hash.hex()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        number, _, digest = text.partition(":")
        try:
            return cls(int(number), bytes.fromhex(digest))
        except ValueError:
            raise InvalidValue(f"{text!r} is no head of an audit; `redrive audit verify` prints one.") from None


@dataclass(frozen=True, slots=True)
class Fault:
    id: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """checked: how many acts there are. head: the last one; note it outside the database."""

    intact: bool
    checked: int
    head: str | None
    faults: Sequence[Fault]


async def verify(store: PostgresStore, *, noted: str | None = None) -> Verified:
    """noted: a head from earlier, which has to be in the chain."""
    checked, head, faults = 0, Head(0, b""), list[Fault]()
    wanted = Head.parse(noted) if noted else None
    seen_noted = wanted is None
    async with aclosing(audit_chain(store)) as chain:
        async for link in chain:
            checked += 1
            faults += list(_faults(link, head))[: FAULTS_MAX - len(faults)]
            head = Head(link.id, link.hash)
            seen_noted = seen_noted or head == wanted
    if not seen_noted and wanted is not None:
        faults.append(Fault(wanted.id, f"act {wanted.id} is not there with the hash that was noted"))
    return Verified(intact=not faults, checked=checked, head=str(head) if checked else None, faults=faults)


def _faults(link: ChainLink, before: Head) -> Iterator[Fault]:
    if link.id != before.id + 1:
        yield Fault(before.id + 1, f"act {before.id + 1} is missing")
    elif link.previous_hash != before.hash:
        yield Fault(link.id, f"act {link.id} does not follow act {before.id} as it is now")
    if link.hash != link.computed:
        yield Fault(link.id, f"act {link.id} is not what was written")
