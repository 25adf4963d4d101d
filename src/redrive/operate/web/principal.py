"""The caller of an HTTP request: role, permissions, tenant."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from redrive.store.runtime.tenant_store import ALL_TENANTS


class Role(StrEnum):
    """Each role includes the one before."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"


class Permission(StrEnum):
    """read: lists and details. payload: bodies of messages. act: change something. audit: read the audit.

    approve: the second person's approval. admin: manage tokens.
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
    """name: the actor in the audit. tenant: from the credential, never from the request; '*' = all."""

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
        """All obey row-level security. The database itself refuses an act of a viewer, and a second person's approval
        by a role that is no approver."""
        if self.may(Permission.APPROVE):
            return "redrive_approver"
        return "redrive_console" if self.may(Permission.ACT) else "redrive_viewer"
