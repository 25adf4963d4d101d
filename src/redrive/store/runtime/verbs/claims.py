"""Claim, check, renew and hand back in PostgreSQL."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from redrive.message import Fence, WorkerId
from redrive.ports import Claimed, ClaimRequest, ClaimState, ClaimVerbs, LowWaterMark, Now, Place, PutOff
from redrive.store.runtime import wire
from redrive.store.runtime.verbs import from_port
from redrive.store.runtime.verbs.settling import PostgresSettling


class PostgresClaims(PostgresSettling):
    """`redrive.ports.ClaimVerbs`."""

    async def claim(
        self, worker: WorkerId, claim_requests: Sequence[ClaimRequest], *, lease_seconds: float, now: Now = None
    ) -> Claimed:
        destinations, levels, amounts, since = wire.columns(claim_requests, 4)
        rows = await self.call("claim_1", worker, destinations, levels, amounts, lease_seconds, since, now, True)
        return wire.claimed(await self._readable(worker, rows, lease_seconds), lease_seconds, alone=False)

    async def low_water(
        self, places: Sequence[tuple[Place, datetime | None]], *, now: Now = None
    ) -> Sequence[LowWaterMark]:
        columns = wire.columns([(*place, since) for place, since in places], 3)
        rows = await self.call("low_water_1", *columns, now)
        return [LowWaterMark(Place(row.destination, row.level), row.since, row.walked_seconds) for row in rows]

    async def claim_suspect(
        self, worker: WorkerId, destinations: Sequence[str], *, lease_seconds: float, now: Now = None
    ) -> Claimed:
        rows = await self.call("claim_suspect_1", worker, wire.array(destinations), lease_seconds, now, True)
        return wire.claimed(await self._readable(worker, rows, lease_seconds), lease_seconds, alone=True)

    suspect_destinations = from_port.value(ClaimVerbs.suspect_destinations)

    async def check_claims(self, worker: WorkerId, fences: Sequence[Fence], *, now: Now = None) -> Sequence[ClaimState]:
        rows = await self.call("check_claims_1", worker, *wire.columns(fences, 2), now)
        return [
            ClaimState(Fence(row.id, row.attempt), row.cancel_requested, row.expired, row.has_evidence) for row in rows
        ]

    async def renew(
        self, worker: WorkerId, fences: Sequence[Fence], *, lease_seconds: float, now: Now = None
    ) -> Sequence[Fence]:
        return wire.objects(Fence, await self.call("renew_1", worker, *wire.columns(fences, 2), lease_seconds, now))

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
        later = [(put_off or {}).get(fence) or (None, None) for fence in dict.fromkeys(fences)]
        seconds, keys = wire.columns(later, 2)
        rows = await self.call("hand_back_1", worker, ids, attempts, now, wait, suspect, seconds, keys)
        return wire.objects(Fence, rows)

    async def leases_of(self, worker: WorkerId) -> Sequence[Fence]:
        return wire.objects(Fence, await self.call("leases_1", worker))

    async def is_leased(self, fence: Fence) -> bool:
        return bool(await self.value("is_leased_1", *fence))
