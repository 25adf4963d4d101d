"""Relays of the proof that do not tell tenants apart: the hostile one delays its neighbours."""

from __future__ import annotations

from redrive.systems.tenant.prove.app import app_of

app = app_of(limit_by=None)
