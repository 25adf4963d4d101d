"""Creates, lists and revokes tokens, for the command line and the API. A secret is shown once, to its creator."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final
from uuid import UUID

from redrive.errors import InvalidValue
from redrive.operate import cursors
from redrive.operate.web.principal import Role
from redrive.operate.web.secrets import TOKEN_PREFIX, hash_of, new_secret
from redrive.store.runtime import access
from redrive.store.runtime.access import Bearer, TokenView
from redrive.store.runtime.postgres import PostgresStore
from redrive.store.runtime.tenant_store import ALL_TENANTS, TenantStore
from redrive.who import Who

NAME_MAX: Final = 100
DAYS_MAX: Final = 3660.0
DAYS_DEFAULT: Final = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """name: the actor in the audit. tenant: '*' = all. days: how long it is valid."""

    name: str
    role: Role
    tenant: str = ALL_TENANTS
    days: float = DAYS_DEFAULT

    def __post_init__(self) -> None:
        for what, value in (("name", self.name), ("tenant", self.tenant)):
            if not 1 <= len(value) <= NAME_MAX or not value.isprintable() or value != value.strip():
                raise InvalidValue(f"The {what} of a token has 1 to {NAME_MAX} printable characters; it is {value!r}.")
        if not 0 < self.days <= DAYS_MAX:
            raise InvalidValue(f"A token is good for {self.days:g} days; it must be above 0 and at most {DAYS_MAX:g}.")


def console_store(store: PostgresStore) -> TenantStore:
    return TenantStore(store, role="redrive_console", tenant=ALL_TENANTS)


async def create(store: PostgresStore, wanted: NewToken, who: Who) -> tuple[UUID, str]:
    secret = new_secret(TOKEN_PREFIX)
    bearer = Bearer(wanted.name, wanted.role, wanted.tenant)
    seconds = wanted.days * 86_400
    id_ = await access.create_token(
        console_store(store), bearer, hash_of(secret), kind="token", valid_seconds=seconds, **asdict(who)
    )
    return id_, secret


async def revoke(store: PostgresStore, id_: UUID, who: Who) -> bool:
    """True if the token was valid until now. NotFound."""
    return await access.revoke_token(console_store(store), id_, **asdict(who))


@dataclass(frozen=True, slots=True)
class Tokens:
    """A page, latest first. next: the cursor of the following one."""

    items: Sequence[TokenView]
    next: str | None


async def listed(store: PostgresStore, *, before: UUID | None = None, limit: int = 50) -> Tokens:
    found = await access.list_tokens(console_store(store), before=before, limit=limit)
    return Tokens(found, cursors.encode(found[-1].id) if len(found) == limit else None)
