"""Relays of the proof that break a promise for some events: `redrive prove tenant` must say so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

from redrive.answers import Answer, Delivered
from redrive.message import Attempt
from redrive.systems.tenant.prove.app import app_of
from redrive.transports.http import HttpTransport


class Careless(HttpTransport):
    """Of the events with an order it says that it has sent some; others it sends twice, or to another tenant."""

    async def send(self, attempt: Attempt) -> Answer:
        event: dict[str, Any] = attempt.payload
        match event["version"] % 5 if event["order_by"] else None:
            case 0:
                return Delivered()
            case 1:
                await super().send(replace(attempt, stored_token=uuid4()))
            case 2:
                return await super().send(replace(attempt, tenant="tenant-01"))
        return await super().send(attempt)


app = app_of(transport=Careless)
