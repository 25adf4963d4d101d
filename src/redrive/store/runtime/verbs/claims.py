"""Claim, check, renew and hand back in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from redrive.message import Fence, WorkerId
from redrive.ports import Claimed, ClaimRequest, ClaimState, LowWaterMark, Now, Place, PutOff
from redrive.store.runtime import wire
from redrive.store.runtime.verbs.settling import PostgresSettling


class PostgresClaims(PostgresSettling):
    """`redrive.ports.ClaimVerbs`."""

    async def claim(
        self, worker: WorkerId, claim_requests: Sequence[ClaimRequest], *, lease_seconds: float, now: Now = None
    ) -> Claimed:
        destinations, levels, amounts, since = wire.columns(claim_requests, 4)
        rows = await self.rows(
            "SELECT * FROM redrive.claim_1(%s, %s::text[], %s::smallint[], %s::integer[], %s, %s::timestamptz[], %s,"
            " true)",
            [worker, destinations, levels, amounts, lease_seconds, since, now],
        )
        return wire.claimed(await self._readable(worker, rows, lease_seconds), lease_seconds, alone=False)

    async def low_water(
        self, places: Sequence[tuple[Place, datetime | None]], *, now: Now = None
    ) -> Sequence[LowWaterMark]:
        destinations, levels, since = wire.columns([(*place, since) for place, since in places], 3)
        rows = await self.rows(
            "SELECT * FROM redrive.low_water_1(%s::text[], %s::smallint[], %s::timestamptz[], %s)",
            [destinations, levels, since, now],
        )
        return [LowWaterMark(Place(row.destination, row.level), row.since, row.walked_seconds) for row in rows]

    async def claim_suspect(
        self, worker: WorkerId, destinations: Sequence[str], *, lease_seconds: float, now: Now = None
    ) -> Claimed:
        rows = await self.rows(
            "SELECT * FROM redrive.claim_suspect_1(%s, %s::text[], %s, %s, true)",
            [worker, wire.array(destinations), lease_seconds, now],
        )
        return wire.claimed(await self._readable(worker, rows, lease_seconds), lease_seconds, alone=True)

    async def suspect_destinations(
        self, destinations: Sequence[str], *, after: str = "", limit: int = 100, now: Now = None
    ) -> Sequence[str]:
        found: list[str] = await self._value(
            "SELECT redrive.suspect_destinations_1(%s::text[], %s, %s, %s)",
            [wire.array(destinations), after, limit, now],
        )
        return found

    async def check_claims(self, worker: WorkerId, fences: Sequence[Fence], *, now: Now = None) -> Sequence[ClaimState]:
        ids, attempts = wire.columns(fences, 2)
        rows = await self.rows(
            "SELECT * FROM redrive.check_claims_1(%s, %s::uuid[], %s::integer[], %s)", [worker, ids, attempts, now]
        )
        return [
            ClaimState(Fence(row.id, row.attempt), row.cancel_requested, row.expired, row.has_evidence) for row in rows
        ]

    async def renew(
        self, worker: WorkerId, fences: Sequence[Fence], *, lease_seconds: float, now: Now = None
    ) -> Sequence[Fence]:
        ids, attempts = wire.columns(fences, 2)
        rows = await self.rows(
            "SELECT * FROM redrive.renew_1(%s, %s::uuid[], %s::integer[], %s, %s)",
            [worker, ids, attempts, lease_seconds, now],
        )
        return wire.objects(Fence, rows)

    async def hand_back(
        self,
        worker: WorkerId,
        fences: Sequence[Fence],
        *,
        suspect: bool = False,
        wait: bool = True,
        put_off: Mapping[Fence, PutOff] | None = None,
        now: Now = None,
    ) -> Sequence[Fence]:
        ids, attempts = wire.columns(dict.fromkeys(fences), 2)
        later = [None if put_off is None else put_off.get(fence) for fence in dict.fromkeys(fences)]
        seconds = [None if one is None else one.seconds for one in later]
        keys = [None if one is None else one.key for one in later]
        rows = await self.rows(
            "SELECT * FROM redrive.hand_back_1(%s, %s::uuid[], %s::integer[], %s, %s, %s, %s::float8[], %s::text[])",
            [worker, ids, attempts, now, wait, suspect, seconds if put_off else None, keys if put_off else None],
        )
        return wire.objects(Fence, rows)

    async def leases_of(self, worker: WorkerId) -> Sequence[Fence]:
        return wire.objects(Fence, await self.rows("SELECT * FROM redrive.leases_1(%s)", [worker]))

    async def is_leased(self, fence: Fence) -> bool:
        return bool(await self._value("SELECT redrive.is_leased_1(%s, %s)", list(fence)))
