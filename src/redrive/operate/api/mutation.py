"""What a route of the API needs: a permission, and for a change an Idempotency-Key."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends, Header

from redrive.operate.web.dependencies import require
from redrive.operate.web.principal import Permission

_Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="New for each change. Asked for again with the same one, the answer is the same.",
    ),
]


def _key(key: _Key) -> None:
    """`redrive.operate.web.idempotency` has looked at it already."""
    del key


KEY: Final = Depends(_key)


def changes(permission: Permission, *, all_tenants: bool = False) -> list[Any]:
    return [require(permission, all_tenants=all_tenants), KEY]


READS: Final = [require(Permission.READ)]
READS_ALL: Final = [require(Permission.READ, all_tenants=True)]
ACTS: Final = changes(Permission.ACT)
ACTS_ON_ALL: Final = changes(Permission.ACT, all_tenants=True)
