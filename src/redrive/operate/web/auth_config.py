"""How users log in, from the settings.

On this machine a one-time link is printed. On another address the console starts only with a token or a trusted proxy
to log in by, and with `console_origin` set.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, Self
from urllib.parse import urlsplit

from redrive.errors import SettingsError
from redrive.operate.web.principal import Principal, Role
from redrive.settings import Settings
from redrive.store.runtime.tenant_store import ALL_TENANTS

LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,100}")
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, kw_only=True)
class AuthConfig:
    """origin: as browsers see the console, `https://ops.example.com`; None: only under a name of this machine.

    root_path: the path prefix. proxy_peers: addresses whose `proxy_header` is trusted. proxy_users: accepted names.
    """

    origin: str | None = None
    root_path: str = ""
    proxy_peers: frozenset[str] = frozenset()
    proxy_header: str = "x-forwarded-user"
    proxy_users: Mapping[str, Principal] = field(default_factory=dict)
    session_seconds: float = 12 * 3600.0
    idle_seconds: float = 3600.0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(
            origin=_origin(settings.console_origin),
            root_path=_prefix(settings.console_root_path),
            proxy_peers=frozenset(_address(one) for one in (settings.console_proxy_peers or "").split()),
            proxy_header=_header(settings.console_proxy_header),
            proxy_users=dict(_user(one) for one in (settings.console_proxy_users or "").split()),
            session_seconds=settings.console_session_hours * 3600,
            idle_seconds=settings.console_idle_minutes * 60,
        )

    @property
    def has_proxy(self) -> bool:
        return bool(self.proxy_peers and self.proxy_users)

    @property
    def secure(self) -> bool:
        return self.origin is not None and self.origin.startswith("https://")

    def knows_host(self, host: str) -> bool:
        """Rejects foreign Host headers (DNS rebinding)."""
        name = host_name(host)
        return name is not None and (name in LOOPBACK_HOSTS or name == urlsplit(self.origin or "").hostname)

    def knows_origin(self, origin: str, *, scheme: str, host: str) -> bool:
        """The request comes from a page of this console. The host has passed `knows_host`."""
        return origin in {self.origin, f"{scheme}://{host}".lower()}


def require_login_method(auth: AuthConfig, host: str, *, has_token: bool) -> None:
    """SettingsError if the console would listen beyond this machine without a safe way to log in."""
    if is_loopback(host):
        return
    if not has_token and not auth.has_proxy:
        raise SettingsError(
            f"The console would listen on {host}, beyond this machine, without a token or a proxy to log in by.",
            next="redrive tokens create NAME --role operator, or console_proxy_peers and console_proxy_users",
        )
    if auth.origin is None:
        raise SettingsError(
            f"The console would listen on {host}, beyond this machine, and does not know its own address.",
            next='console_origin = "https://ops.example.com", as browsers see it',
        )


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_name(host: str) -> str | None:
    """The name in `name`, `name:port` or `[address]:port`; None if it is no host."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    plain = not (parts.path or parts.query or parts.fragment or parts.username is not None)
    return parts.hostname if plain else None


def _origin(text: str | None) -> str | None:
    if text is None:
        return None
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or f"{parts.scheme}://{parts.netloc}" != text:
        raise SettingsError(
            f"console_origin is {text!r}; it must be a scheme and a host.",
            next='console_origin = "https://ops.example.com"; a path belongs into console_root_path',
        )
    return text.lower()


def _prefix(text: str) -> str:
    prefix = text.rstrip("/")
    if not _PREFIX.fullmatch(prefix):
        raise SettingsError(f"console_root_path is {text!r}; it must look like /redrive.", next="/redrive")
    return prefix


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise SettingsError(
            f"console_proxy_peers has {text!r}, which is no address.", next='console_proxy_peers = "10.0.0.5"'
        ) from None


def _header(text: str) -> str:
    if not _HEADER.fullmatch(text) or text.lower() in {"authorization", "cookie", "host"}:
        raise SettingsError(
            f"console_proxy_header is {text!r}, which cannot carry a user name.", next="X-Forwarded-User"
        )
    return text.lower()


def _user(text: str) -> tuple[str, Principal]:
    """`anna=operator` or `ben=viewer:acme`."""
    name, _, rest = text.rpartition("=")
    role, _, tenant = rest.partition(":")
    if not name or role not in set(Role) or (":" in rest and not tenant):
        raise SettingsError(
            f"console_proxy_users has {text!r}; one looks like NAME=ROLE or NAME=ROLE:TENANT.",
            next=f"a role is one of {', '.join(Role)}",
        )
    return name, Principal(name, Role(role), tenant or ALL_TENANTS)
