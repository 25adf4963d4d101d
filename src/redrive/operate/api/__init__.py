"""The API below /api/v1: what the command line can do, over the same operations (G-21).

Who acts is who asks. A change needs an `Idempotency-Key`; what is wrong is a problem as RFC 9457 has it. What belongs
to no tenant (groups, destinations, relays, the audit, tokens) is for those who see all of them.
"""

from __future__ import annotations

from fastapi import APIRouter

from redrive.operate.api import desk, messages, operating

router = APIRouter()
for part in (messages.router, desk.router, operating.router):
    router.include_router(part)
