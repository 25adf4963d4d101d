"""Health is judged by what a relay does: its loop goes round, the database answers, nothing hinders the work."""

from __future__ import annotations

import asyncio
import json

import pytest

from redrive import App, Attempt
from redrive.errors import SettingsError
from redrive.events import Events
from redrive.operate.observe.health import Health, Verdict
from redrive.operate.observe.observing import observing
from redrive.operate.observe.server import answer_to
from redrive.settings import Address, Settings
from tests.observe.scrape import parsed
from tests.relay.harness import Seen, processing

pytestmark = pytest.mark.req("G-20")


class Relay:
    """Events of a relay, on a clock of the test's own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = Events()
        self.health = Health(stalled_seconds=90, monotonic=lambda: self.now)
        self.health.subscribe(self.events)

    def started(self) -> Relay:
        self.events.emit("relay.started", worker=1, destinations=["erp"])
        return self

    def asked(self, path: str) -> tuple[int, str]:
        request = f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()
        answer = answer_to(request, expose=lambda _: (b"", "text/plain"), health=self.health)
        return answer.status, answer.body.decode()


def test_a_relay_that_has_not_registered_is_live_and_not_ready() -> None:
    relay = Relay()
    assert relay.asked("/livez")[0] == 200
    assert relay.asked("/readyz") == (503, "[-]started failed: it has not registered yet\n")
    assert relay.started().asked("/readyz") == (200, "ok\n")


def test_a_loop_that_stands_still_is_not_live_though_it_beats() -> None:
    relay = Relay().started()
    relay.now = 60
    relay.events.emit("relay.looked", worker=1)
    relay.now = 149
    relay.events.emit("heartbeat.stop", worker=1)
    assert relay.asked("/livez")[0] == 200
    relay.now = 151
    assert relay.asked("/livez") == (503, "[-]loop failed: the loop has not gone round for 91 s\n")
    assert relay.health.verdict() is Verdict.UNHEALTHY


def test_a_relay_that_waits_for_its_database_is_live_and_not_ready() -> None:
    relay = Relay().started()
    for relay.now in range(0, 600, 30):
        relay.events.emit("relay.unreachable", during="claim", tries=0)
    assert relay.asked("/livez")[0] == 200
    assert relay.asked("/readyz") == (503, "[-]database failed: the database does not answer\n")
    relay.events.emit("claim.stop", worker=1, count=0)
    assert relay.asked("/readyz")[0] == 200


def test_a_relay_that_stops_takes_its_time_and_is_not_ready() -> None:
    relay = Relay().started()
    relay.events.emit("relay.stopping", worker=1)
    relay.now = 1000
    assert relay.asked("/livez")[0] == 200
    assert "it is stopping" in relay.asked("/readyz")[1]


@pytest.mark.parametrize(
    ("hinders", "helps", "reason"),
    [
        (("breaker.opened", "destination"), ("breaker.recovered", "destination"), "down: erp"),
        (("destination.paused", "destination"), ("destination.resumed", "destination"), "paused: erp"),
        (("duty.failed", "duty"), ("duty.stop", "duty"), "failed: erp"),
        (("listener.deaf", "worker"), ("listener.listening", "worker"), "it does not hear the doorbell, and polls"),
    ],
)
def test_what_hinders_it_degrades_it_until_that_is_over(
    hinders: tuple[str, str], helps: tuple[str, str], reason: str
) -> None:
    relay = Relay().started()
    relay.events.emit(hinders[0], **{hinders[1]: "erp"})
    status, body = relay.asked("/health")
    assert (status, json.loads(body)["status"], json.loads(body)["reasons"]) == (200, "degraded", [reason])
    assert relay.asked("/readyz")[0] == 200, "others are not helped by taking it out"
    assert reason in relay.asked("/readyz?verbose")[1]
    relay.events.emit(helps[0], **{helps[1]: "erp"})
    assert json.loads(relay.asked("/health")[1])["status"] == "healthy"


def test_an_unhealthy_relay_says_so_with_the_status_too() -> None:
    status, body = Relay().asked("/health")
    assert (status, json.loads(body)["status"]) == (503, "unhealthy")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /metrics HTTP/1.1", 200),
        ("HEAD /livez HTTP/1.1", 200),
        ("GET /nothing HTTP/1.1", 404),
        ("POST /metrics HTTP/1.1", 405),
        ("nonsense", 405),
    ],
)
def test_only_what_is_shown_can_be_asked_for(request_line: str, status: int) -> None:
    answer = answer_to(f"{request_line}\r\n\r\n".encode(), expose=lambda _: (b"", "text/plain"), health=Health())
    assert answer.status == status


@pytest.mark.parametrize(
    ("text", "address"),
    [("9464", ("127.0.0.1", 9464)), ("0.0.0.0:9464", ("0.0.0.0", 9464)), ("[::1]:0", ("::1", 0))],
)
def test_a_port_alone_is_one_of_this_machine(text: str, address: tuple[str, int]) -> None:
    parsed = Address.parsed(text)
    assert parsed == address
    assert Address.parsed(str(parsed)) == address
    assert Settings(console_listen=text).console_address == address


@pytest.mark.parametrize("text", ["", "nine", "here:", "1.2.3.4:70000", "-1", "127.0.0.1:", "x:y", "²"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    assert Address.parsed(text) is None
    for name in ("metrics_listen", "console_listen"):
        with pytest.raises(SettingsError, match=f"{name} is .*it must be a port from 0 to 65535, or HOST:PORT"):
            Settings(**{name: text})


async def test_a_real_relay_is_scraped_and_probed_over_http(database: str, app: App) -> None:
    @app.destination("shop")
    async def shop(message: Attempt) -> None: ...

    seen = Seen()
    async with observing(seen.events, database, Address("127.0.0.1", 0), every_seconds=1) as address:
        assert (await fetched(address, "/readyz"))[0] == 503
        async with processing(database, app, seen=seen):
            await seen.until("relay.idle")
            assert (await fetched(address, "/readyz"))[0] == 200
            while "redrive_relays_live 1" not in (await fetched(address, "/metrics"))[1]:
                await seen.next("relay.looked")
            status, text = await fetched(address, "/metrics")
        assert (status, parsed(text)["redrive_gauges_reader"][()]) == (200, 1)
        with pytest.raises(SettingsError, match="Nothing can listen"):
            async with observing(seen.events, database, address):
                raise AssertionError
    with pytest.raises(OSError, match="Connect"):
        await fetched(address, "/metrics")


async def fetched(address: Address, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body
