"""Where a request may go: the guard against URLs that lead into your own network (SSRF).

A URL that a customer chose may name a private address, a metadata service, or a name that resolves to one, today or
at the second look. So the URL is checked first, then every address of its name after one lookup, and the socket is
opened only to an address that was checked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from redrive.errors import InvalidValue

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

URL_CHARACTERS_MAX: Final = 2000
_ENDS_IN_A_NUMBER: Final = re.compile(r"(?:^|\.)(?:[0-9]+|0[xX][0-9a-fA-F]*)\.?$")
PORTS: Final = {"https": 443, "http": 80}


class EgressRefused(Exception):
    """A request that must not be made. is_fixed: the URL itself is refused, which no later look will change."""

    def __init__(self, text: str, *, is_fixed: bool) -> None:
        super().__init__(text)
        self.is_fixed = is_fixed


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


# What `ipaddress` takes for public although it is unreachable from outside, or reachable inside.
_NOT_PUBLIC: Final = _networks(
    "0.0.0.0/8",
    "100.64.0.0/10",  # carrier-grade NAT; one cloud's metadata service is at 100.100.100.200
    "168.63.129.16/32",  # the platform service of Azure
    "192.0.0.0/24",
    "192.88.99.0/24",  # relays of 6to4
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "64:ff9b:1::/48",  # translation inside one network
    "100::/64",
    "2001::/23",  # Teredo and other experiments
    "2001:db8::/32",
    "2002::/16",  # 6to4: an IPv4 address inside, reached through any 6to4 relay
    "3fff::/20",
    "5f00::/16",
)
_UNICAST: Final = ipaddress.ip_network("2000::/3")
_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")  # NAT64: how an IPv6-only network reaches IPv4


@dataclass(frozen=True, kw_only=True)
class Egress:
    """What outgoing requests are allowed.

    allow: networks that are reachable although they are not public, such as "10.1.0.0/16".
    schemes: "https", or "http" too. ports: None = the ports of the schemes, and the one that a fixed URL names.
    """

    allow: Sequence[str] = ()
    schemes: frozenset[str] = frozenset({"https"})
    ports: frozenset[int] | None = None
    _allowed: tuple[Network, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        if isinstance(self.allow, str):
            raise InvalidValue(f"allow is {self.allow!r}; it must be a list of networks.")
        try:
            networks = tuple(ipaddress.ip_network(text) for text in self.allow)
        except ValueError as error:
            raise InvalidValue(f"allow has no network there: {error}.") from error
        unknown = set(self.schemes) - PORTS.keys()
        if unknown:
            raise InvalidValue(f"schemes has {sorted(unknown)}; they may be https and http.")
        object.__setattr__(self, "schemes", frozenset(self.schemes))
        object.__setattr__(self, "_allowed", networks)

    def check_url(self, url: str, *, ports: Iterable[int] = ()) -> None:
        """Everything that can be checked without resolving a name. ports: these are allowed too."""
        if len(url) > URL_CHARACTERS_MAX or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
            raise _fixed(
                f"A URL has at most {URL_CHARACTERS_MAX} printable ASCII characters, no space and no backslash."
            )
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _fixed("The URL cannot be read.") from error
        if parts.scheme not in self.schemes:
            raise _fixed(f"The scheme {parts.scheme[:20]!r} is not allowed; {_listed(self.schemes)} are.")
        if parts.username is not None or parts.password is not None or "@" in parts.netloc:
            raise _fixed("A URL must not hold a user or a password.")
        if not host:
            raise _fixed("The URL names no host.")
        allowed = {*(self.ports or {PORTS[scheme] for scheme in self.schemes}), *ports}
        if (port or PORTS[parts.scheme]) not in allowed:
            raise _fixed(f"Port {port} is not allowed; {_listed(map(str, sorted(allowed)))} are.")
        self._check_literal(host)

    def check_address(self, text: str, *, is_fixed: bool = False) -> None:
        address = _unwrapped(ipaddress.ip_address(text.partition("%")[0]))
        if any(address in network for network in self._allowed if network.version == address.version):
            return
        if not _is_public(address):
            raise EgressRefused(f"{address} is no public address, and no network of `allow` has it.", is_fixed=is_fixed)

    def _check_literal(self, host: str) -> None:
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            if _ENDS_IN_A_NUMBER.search(host):  # what resolvers read as an address: 0x7f.1, 2130706433, 0177.0.0.1
                raise _fixed("An address must be written as four decimal numbers, or as IPv6 in brackets.") from None
            return  # a name: judged when the resolver has answered
        self.check_address(host, is_fixed=True)


async def resolve(egress: Egress, host: str, port: int) -> list[tuple[int, str]]:
    """Family and address, looked up once. All must be allowed: a name that also leads to one of ours is not trusted."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    addresses = list(dict.fromkeys((int(family), str(sockaddr[0])) for family, _, _, _, sockaddr in found))
    for _, address in addresses:
        egress.check_address(address)
    return addresses


def _is_public(address: Address) -> bool:
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    return address.is_global if address.version == 4 else address.is_global and address in _UNICAST


def _unwrapped(address: Address) -> Address:
    """The IPv4 address in an IPv6 one, where a gateway on the way would extract it."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _TRANSLATED:
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _fixed(text: str) -> EgressRefused:
    return EgressRefused(text, is_fixed=True)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words)) or "none"
