"""The API below /api/v1: a file per noun, over the same operations as the command line (G-21).

The actor is the principal of the request. A change needs an `Idempotency-Key`; an error is a problem as RFC 9457
describes it. What belongs to no tenant (groups, destinations, relays, the audit, tokens) needs access to all tenants.
"""

from fastapi import APIRouter

from redrive.operate.api import audit, dead, destinations, groups, keys, messages, replays, status, tokens

router = APIRouter()
for part in (messages, dead, groups, replays, status, destinations, keys, audit, tokens):
    router.include_router(part.router)
