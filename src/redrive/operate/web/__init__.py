"""Authentication, permissions, CSRF and idempotency, shared by the API and the console's pages.

FastAPI and Starlette are loaded when a name is first used, so that `redrive tokens` needs neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.lazy import loader, modules_of

if TYPE_CHECKING:
    from redrive.operate.web.csrf import csrf_field as csrf_field
    from redrive.operate.web.csrf import csrf_token as csrf_token
    from redrive.operate.web.dependencies import CurrentPrincipal as CurrentPrincipal
    from redrive.operate.web.dependencies import ScopedStore as ScopedStore
    from redrive.operate.web.dependencies import authenticator as authenticator
    from redrive.operate.web.dependencies import current_principal as current_principal
    from redrive.operate.web.dependencies import note_payload_read as note_payload_read
    from redrive.operate.web.dependencies import own_ids as own_ids
    from redrive.operate.web.dependencies import require as require
    from redrive.operate.web.dependencies import scoped_store as scoped_store
    from redrive.operate.web.dependencies import url as url
    from redrive.operate.web.principal import Permission as Permission
    from redrive.operate.web.principal import Principal as Principal
    from redrive.operate.web.principal import Role as Role
    from redrive.operate.web.problems import Refusal as Refusal

_MODULE_OF = modules_of(
    {
        "redrive.operate.web.dependencies": "CurrentPrincipal ScopedStore authenticator current_principal"
        " note_payload_read own_ids require scoped_store url",
        "redrive.operate.web.csrf": "csrf_field csrf_token",
        "redrive.operate.web.principal": "Permission Principal Role",
        "redrive.operate.web.problems": "Refusal",
    }
)

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - one list of names, not two

if not TYPE_CHECKING:
    __getattr__ = loader(__name__, _MODULE_OF)
