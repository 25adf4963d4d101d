"""FastAPI dependencies: principal, permission, tenant store."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import HTTPConnection, Request

from redrive.errors import NotFound
from redrive.message import MessageId
from redrive.operate.web.authentication import Authenticator, Visitor
from redrive.operate.web.principal import LEAST_ROLE, Permission, Principal
from redrive.operate.web.problems import Refusal, not_logged_in
from redrive.store.reads.messages import find_messages
from redrive.store.runtime import access
from redrive.store.runtime.postgres import PostgresStore
from redrive.store.runtime.tenant_store import TenantStore


def authenticator(request: HTTPConnection) -> Authenticator:
    found: Authenticator = request.scope["redrive.authenticator"]
    return found


def current_principal(request: Request) -> Principal:
    """The caller. The middleware lets only authenticated requests reach a closed route."""
    visitor: Visitor = request.scope["redrive.visitor"]
    if visitor.principal is None:
        raise not_logged_in()
    return visitor.principal


@dataclass(frozen=True)
class Requirement:
    """A dependency that checks a permission. all_tenants: the route shows or changes what belongs to no tenant."""

    permission: Permission
    all_tenants: bool = False

    def __call__(self, request: Request) -> None:
        principal = current_principal(request)
        if not principal.may(self.permission):
            least = LEAST_ROLE[self.permission]
            detail = f"It needs the role {least} or above ({self.permission}); {principal.name} is {principal.role}."
            raise Refusal(403, "ROLE_TOO_LOW", detail, denied=True)
        if self.all_tenants and not principal.all_tenants:
            raise Refusal(
                403, "ONE_TENANT_ONLY", "It belongs to no tenant, and your access is limited to one.", denied=True
            )
        request.scope["redrive.checked"].append(self.permission)


def require(permission: Permission, *, all_tenants: bool = False) -> Any:
    """For `dependencies=[…]` of a route or a router. Every route needs one."""
    return Depends(Requirement(permission, all_tenants=all_tenants))


def scoped_store(request: Request) -> TenantStore:
    principal = current_principal(request)
    return TenantStore(authenticator(request).store, role=principal.database_role, tenant=principal.tenant)


CurrentPrincipal = Annotated[Principal, Depends(current_principal)]
ScopedStore = Annotated[TenantStore, Depends(scoped_store)]


async def require_visible(store: PostgresStore, id_: MessageId) -> None:
    """NotFound unless the caller may see the message: a verb acts by the id alone."""
    if id_ not in await find_messages(store, [id_]):
        raise NotFound.message_of(id_)


async def note_payload_read(request: Request, id_: MessageId, why: str) -> None:
    await access.note_access(
        authenticator(request).console_store,
        actor=current_principal(request).name,
        act="read_payload",
        subject=str(id_),
        reason=why,
        detail={},
    )


def url(request: HTTPConnection, path: str) -> str:
    return f"{request.scope.get('root_path', '')}{path}"
