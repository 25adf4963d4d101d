"""Who asks over HTTP, and what they may do. Plain values; the guard makes them, routes look at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from redrive.store.runtime.tenant_store import ALL_TENANTS


class Role(StrEnum):
    """Each may do all that the one before may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"


class Permission(StrEnum):
    """read: lists and details. payload: what a message carries. act: change something. audit: who did what.

    approve: let go what another person has made. admin: who may come in.
    """

    READ = "read"
    PAYLOAD = "payload"
    ACT = "act"
    AUDIT = "audit"
    APPROVE = "approve"
    ADMIN = "admin"


_ORDER: Final = tuple(Role)
LEAST_ROLE: Final[Mapping[Permission, Role]] = {
    Permission.READ: Role.VIEWER,
    Permission.PAYLOAD: Role.OPERATOR,
    Permission.ACT: Role.OPERATOR,
    Permission.AUDIT: Role.OPERATOR,
    Permission.APPROVE: Role.APPROVER,
    Permission.ADMIN: Role.ADMIN,
}


@dataclass(frozen=True, slots=True)
class Principal:
    """name: the actor of what they do. tenant: theirs, never one that a request names; '*' = all."""

    name: str
    role: Role
    tenant: str

    def may(self, permission: Permission) -> bool:
        return _ORDER.index(self.role) >= _ORDER.index(LEAST_ROLE[permission])

    @property
    def all_tenants(self) -> bool:
        return self.tenant == ALL_TENANTS

    @property
    def database_role(self) -> str:
        """Below row-level security in any case. The database itself refuses a viewer who acts, and a second person for
        what moves money who is no approver."""
        if self.may(Permission.APPROVE):
            return "redrive_approver"
        return "redrive_console" if self.may(Permission.ACT) else "redrive_viewer"
