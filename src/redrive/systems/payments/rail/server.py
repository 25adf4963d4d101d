"""The rail's HTTP face: payments, questions about them, and the statement.

    POST /payments            GET /payments/{token}            GET /statement?after=CURSOR&limit=500
    PUT /script               what goes wrong from now on: a control of the simulator, which no rail has

What was accepted is in the ledger before an answer leaves; answers may be lost, effects are not. Also run as `python -m
redrive.systems.payments.rail.server` with its settings on standard input.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from redrive.errors import InvalidValue
from redrive.systems.payments.rail.ledger import PAGE_MAX, Effect, Ledger, Order
from redrive.systems.payments.rail.script import PAID_LATE, REFUSALS, Fault, LookupFault, Profile, Script

HOST: Final = "127.0.0.1"
BODY_BYTES_MAX: Final = 64 * 1024
_TEXTS: Final = ("instruction_id", "participant_id", "rail_type", "amount", "currency")


@dataclass(frozen=True, kw_only=True)
class RailSettings:
    """port: 0 = any that is free."""

    ledger: Path
    port: int = 0
    host: str = HOST
    profile: Profile = Profile.TOKEN_AND_LOOKUP
    script: Script = field(default_factory=Script)


class Rail:
    """What two requests of one token do is decided before either waits."""

    def __init__(self, settings: RailSettings) -> None:
        self._profile = settings.profile
        self._script = settings.script
        self._ledger = Ledger(settings.ledger)
        self._paying: set[str] = set()
        self._later: set[asyncio.Task[Effect]] = set()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.add_routes(
            [
                web.post("/payments", self._post),
                web.get("/payments/{token}", self._get),
                web.get("/statement", self._statement),
                web.put("/script", self._put_script),
            ]
        )
        app.on_startup.append(self._resume)
        app.on_cleanup.append(self._end)
        return app

    async def _resume(self, _: web.Application) -> None:
        """What was accepted before a kill is paid all the same."""
        for order, due_at in self._ledger.accepted():
            paying = self._pay_later(order, due_at)
            assert paying in self._later

    async def _end(self, _: web.Application) -> None:
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
        self._ledger.close()

    # a payment

    async def _post(self, request: web.Request) -> web.StreamResponse:
        try:
            order = _order(request.headers, await request.json())
        except (ValueError, KeyError, TypeError, InvalidOperation) as error:
            return _said(400, "INVALID_REQUEST", message=str(error))
        nth = self._ledger.asked("send", order.token) + 1
        fault = self._script.fault("send", token=order.token, instruction=order.instruction_id, nth=nth)
        noted = {name: getattr(order, name) for name in ("instruction_id", "participant_id", "sequence_id")}
        await self._ledger.request("send", order.token, **noted, fault=fault)
        return await self._known(order) or await self._met(request, order, fault)

    async def _known(self, order: Order) -> web.Response | None:
        """What a rail that knows tokens says to one that it has seen; None: it is new."""
        if not self._profile.knows_tokens:
            return None
        known = self._ledger.order_of(order.token)
        if known is not None and known != order:
            return _said(422, "TOKEN_REUSED", message="This token belongs to another payment.")
        effect = self._ledger.effect_of(order.token)
        if effect is not None and order.token not in self._paying:
            await self._ledger.note(log="repeat", token=order.token, reference=effect.reference)
            return _said(200, "DUPLICATE", reference=effect.reference)
        if self._ledger.is_accepted(order.token) or order.token in self._paying:
            return _said(409, "IN_PROGRESS", message="It is under way.")
        return None

    async def _met(self, request: web.Request, order: Order, fault: str | None) -> web.StreamResponse:
        match fault:
            case Fault.RESET:
                return _dropped(request)
            case Fault.THROTTLED:
                seconds = f"{self._script.retry_after_seconds:g}"
                return _said(429, "THROTTLED", headers={"Retry-After": seconds})
            case Fault.ERROR_BEFORE:
                return _said(500, "INTERNAL")
            case str() if fault in REFUSALS:
                return _said(REFUSALS[fault], fault.upper())
            case str() if fault in PAID_LATE:
                return await self._paid_late(request, order, fault)
        return await self._paid(request, order, fault)

    async def _paid_late(self, request: web.Request, order: Order, fault: str) -> web.StreamResponse:
        due_at = time.time() + self._script.lateness(order.token)
        await self._ledger.accept(order, due_at=due_at)
        paying = self._pay_later(order, due_at)
        match fault:
            case Fault.LATE:
                return _dropped(request)
            case Fault.REFUSED_LATE:
                return _said(402, "INSUFFICIENT_FUNDS")
            case Fault.SLOW_LATE:
                await asyncio.sleep(self._script.hang_seconds)
                effect = await paying
                return _said(201, "ACCEPTED", reference=effect.reference)
        return _said(202, "IN_PROGRESS")

    async def _paid(self, request: web.Request, order: Order, fault: str | None) -> web.StreamResponse:
        self._paying.add(order.token)
        try:
            if fault == Fault.SLOW:
                await asyncio.sleep(self._script.slow_seconds)
            effect = await self._ledger.pay(order)
        finally:
            self._paying.discard(order.token)
        match fault:
            case Fault.LOST_REPLY:
                return _dropped(request)
            case Fault.GARBAGE:
                return web.Response(status=200, body=b"\xff<html>it may have worked")
            case Fault.ERROR_AFTER:
                return _said(500, "INTERNAL")
            case Fault.ERROR_WITHOUT_CODE:
                return web.Response(status=500, text="Internal Server Error")
            case Fault.BAD_GATEWAY:
                return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")
            case Fault.DUPLICATE:
                return _said(200, "DUPLICATE", reference=effect.reference)
            case Fault.HANG:
                await asyncio.sleep(self._script.hang_seconds)
        return _said(201, "ACCEPTED", reference=effect.reference)

    def _pay_later(self, order: Order, due_at: float) -> asyncio.Task[Effect]:
        async def pay() -> Effect:
            await asyncio.sleep(max(0.0, due_at - time.time()))
            return await self._ledger.pay(order)

        task = asyncio.create_task(pay())
        self._later.add(task)
        task.add_done_callback(self._later.discard)
        return task

    # questions

    async def _get(self, request: web.Request) -> web.StreamResponse:
        token = request.match_info["token"]
        if not self._profile.can_be_asked:
            return _said(501, "NOT_SUPPORTED", message="This rail cannot be asked.")
        fault = self._script.fault("lookup", token=token, instruction="", nth=self._ledger.asked("lookup", token) + 1)
        await self._ledger.request("lookup", token, fault=fault)
        if fault == LookupFault.LOOKUP_LOST:
            return _dropped(request)
        if fault == LookupFault.CANNOT_TELL or token in self._paying:
            return _said(503, "UNAVAILABLE")
        effect = self._ledger.effect_of(token)
        # What was accepted and is not paid yet is not in its books: hence `settlement_lag_seconds`.
        await self._ledger.note(log="looked_up", token=token, found=effect is not None)
        if effect is None:
            return _said(404, "NOT_FOUND")
        return web.json_response({"code": "ACCEPTED", **_entry(effect)})

    async def _statement(self, request: web.Request) -> web.StreamResponse:
        try:
            after = int(request.query.get("after") or 0)
            limit = int(request.query.get("limit") or PAGE_MAX)
        except ValueError:
            return _said(400, "INVALID_REQUEST", message="after and limit are whole numbers.")
        if after < 0 or not 1 <= limit <= PAGE_MAX:
            return _said(400, "INVALID_REQUEST", message=f"after is at least 0, limit is 1 to {PAGE_MAX}.")
        page = self._ledger.page(after=after, limit=limit)
        following = str(page[-1].cursor) if len(page) == limit else None
        return web.json_response({"entries": [_entry(effect) for effect in page], "next": following})

    async def _put_script(self, request: web.Request) -> web.StreamResponse:
        try:
            self._script = script_of(await request.json())
        except (ValueError, TypeError, KeyError) as error:
            return _said(400, "INVALID_REQUEST", message=str(error))
        return _said(200, "DONE")


def _order(headers: Mapping[str, str], body: Any) -> Order:
    if not isinstance(body, dict):
        raise InvalidValue("The body is no JSON object.")
    token = body["token"]
    if headers.get("Idempotency-Key", "").strip('"') != token:
        raise InvalidValue("Idempotency-Key is not the token of the body.")
    for name in _TEXTS:
        if not isinstance(body[name], str) or not body[name]:
            raise InvalidValue(f"{name} is no text.")
    if not (amount := Decimal(body["amount"])).is_finite() or amount <= 0:
        raise InvalidValue(f"amount is {body['amount']!r}; it must be above 0.")
    return Order(
        token=str(token),
        sequence_id=int(body["sequence_id"]),
        destination=dict(body["destination"]),
        **{name: body[name] for name in _TEXTS},
    )


def _entry(effect: Effect) -> dict[str, Any]:
    return {**asdict(effect), "cursor": str(effect.cursor)}


def _said(
    status: int,
    code: str,
    *,
    reference: str | None = None,
    message: str = "",
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    return web.json_response({"code": code, "reference": reference, "message": message}, status=status, headers=headers)


def _dropped(request: web.Request) -> web.StreamResponse:
    """The connection ends without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def script_of(values: Mapping[str, Any]) -> Script:
    late = values.get("late_seconds")
    return Script(**{**values, **({"late_seconds": (float(late[0]), float(late[1]))} if late else {})})


async def serve(settings: RailSettings, *, started: asyncio.Future[str] | None = None) -> None:
    """Until cancelled; its address is printed on standard output, and is the result of `started`."""
    runner = web.AppRunner(Rail(settings).app(), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port, reuse_address=True)
        await site.start()
        host, port = runner.addresses[0][:2]
        print(f"http://{host}:{port}", flush=True)
        if started is not None:
            started.set_result(f"http://{host}:{port}")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def settings_of(values: Mapping[str, Any]) -> RailSettings:
    return RailSettings(
        ledger=Path(values["ledger"]),
        port=values.get("port", 0),
        profile=Profile(values.get("profile", Profile.TOKEN_AND_LOOKUP)),
        script=script_of(values.get("script", {})),
    )


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(settings_of(json.loads(sys.stdin.read()))))
