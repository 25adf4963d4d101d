"""Every route of the API."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from redrive.operate.web import CurrentPrincipal, Permission, require

router = APIRouter()


@router.get("/me", dependencies=[require(Permission.READ)])
async def me(principal: CurrentPrincipal) -> dict[str, Any]:
    """Who asks, and what they may."""
    permissions = [one for one in Permission if principal.may(one)]
    return {"name": principal.name, "role": principal.role, "tenant": principal.tenant, "permissions": permissions}


@router.get("/tokens", dependencies=[require(Permission.ADMIN, all_tenants=True)])
async def list_tokens() -> dict[str, Any]:
    """Who may come in."""
    return {}
