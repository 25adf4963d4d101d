"""Dependencies of a route in a system's router: the principal, the permission it needs, the store of its tenant."""

from redrive.operate.web.dependencies import CurrentPrincipal, ScopedStore, require
from redrive.operate.web.principal import Permission
from redrive.operate.web.problems import Refusal

__all__ = ["CurrentPrincipal", "Permission", "Refusal", "ScopedStore", "require"]
