"""A rail's statement over HTTP: `GET {url}/statement?after=CURSOR&limit=100`, a page at a time.

Anything but a whole page is an error, never an empty page: missing entries would look like missing payments. Of
`destination` only the hash is kept.
"""

import hashlib
import json
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import quote, urlsplit

from redrive.errors import Unreachable
from redrive.kit.statements import canonical_json
from redrive.patterns.reconciliation import Page
from redrive.systems.payments.rails import Rail
from redrive.transports.http.client import Client, Request
from redrive.transports.http.egress import PORTS, EgressRefused

PAGE: Final = 100  # entries; a page must fit into what the client reads of a reply
_TEXTS: Final = ("cursor", "token", "instruction_id", "participant_id", "amount", "currency")


class Statement:
    def __init__(self, rail: Rail) -> None:
        self._rail = rail
        self._client = Client(rail.egress, connections=1, connect_seconds=5.0)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def page(self, after: str | None) -> Page:
        """Unreachable where the rail does not give it."""
        url = f"{self._rail.url.rstrip('/')}/statement?after={quote(after or '', safe='')}&limit={PAGE}"
        parts = urlsplit(url)
        try:
            self._rail.egress.check_url(url, ports={parts.port or PORTS.get(parts.scheme, 0)})
            reply = await self._client.ask(Request("GET", url, headers=self._rail.headers))
        except EgressRefused as refused:
            raise self._unreachable(str(refused)) from refused
        except Exception as error:  # whatever the network has to offer
            raise self._unreachable(type(error).__name__) from error
        if reply.status != 200 or not reply.is_whole:
            raise self._unreachable(f"it answered {reply.status}")
        return self._read(reply.body)

    def _read(self, body: bytes) -> Page:
        try:
            said = json.loads(body)
            entries = [_entry(entry) for entry in said["entries"]]
            following = said["next"]
        except (ValueError, KeyError, TypeError, InvalidOperation) as error:
            raise self._unreachable("what it answered is no page of a statement") from error
        return Page(entries, None if following is None else str(following))

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(f"The statement of rail {self._rail.rail_type} cannot be read: {why}.")


def _entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    for name in _TEXTS:
        if not isinstance(entry[name], str):
            raise TypeError(name)
    if not Decimal(entry["amount"]).is_finite():
        raise ValueError(entry["amount"])
    return {
        **{name: entry[name] for name in _TEXTS},
        "sequence_id": int(entry["sequence_id"]),
        "reference": entry.get("reference"),
        "effected_at": float(entry["effected_at"]),
        "destination_hash": None if entry.get("destination") is None else hash_of(entry["destination"]),
    }


def hash_of(destination: object) -> str:
    """As an instruction keeps it."""
    if not isinstance(destination, dict):
        raise TypeError("destination")
    return hashlib.sha256(canonical_json(destination)).hexdigest()
