"""Where a request may go: no form of an address of ours is reached, whoever wrote the URL."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from redrive.answers import Retryable, Terminal
from redrive.errors import InvalidValue
from redrive.transports.http import Egress, EgressRefused, HttpTransport
from tests.support import messages as m
from tests.transports.servers import HERE, listening, serving, status

LOOPBACK = [
    "127.0.0.1",
    "127.0.0.2",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "0177.0.0.01",
    "00000177.0.0.1",
    "0x7f.0.0.1",
    "0x7f000001",
    "0x7F.1",
    "0x7f.0x0.0x0.0x1",
    "127.0.0x0.1",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "0",
    "0.0.0.0",
    "00.0",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[::7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::1]",
    "[2001:0:7f00:1::1]",
    "[::1%25lo]",
    "[::ffff:0:127.0.0.1]",
]
PRIVATE = [
    "10.0.0.1",
    "10.255.255.255",
    "012.0.0.1",
    "0xa.1",
    "167772161",
    "172.16.0.1",
    "172.31.255.254",
    "192.168.0.1",
    "0xc0a80001",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "0xa9fea9fe",
    "2852039166",
    "0251.0376.0251.0376",
    "169.254.1",
    "168.63.129.16",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "[fe80::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[100::1]",
    "[5f00::1]",
    "[2002:a9fe:a9fe::1]",
    "[2002:a00:1::1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b::10.0.0.1]",
    "[::ffff:100.100.100.200]",
    "[::ffff:169.254.169.254]",
    "[::ffff:10.0.0.1]",
    "[::ffff:a8.3f.81.10]",
]
URLS = [
    "file:///etc/passwd",
    "ftp://example.com/",
    "gopher://example.com/",
    "//example.com/",
    "example.com",
    "",
    "https://",
    "https:///path",
    "https://user@example.com/",
    "https://user:secret@example.com/",
    "https://example.com@127.0.0.1/",
    "https://example.com:secret@[::1]/",
    "https://@example.com/",
    "https://example.com:22/",
    "https://example.com:65536/",
    "https://example.com:-1/",
    "https://example.com:port/",
    "https://exa mple.com/",
    "https://example.com\\@127.0.0.1/",
    "https://example.com\r\nHost: inside/",
    "https://example.com/\x00",
    "https://ⓛocalhost/",
    "https://127。0。0。1/",
    "https://[::1/",
    f"https://example.com/{'x' * 2000}",
]


def test_there_are_at_least_eighty_forms() -> None:
    assert len({*LOOPBACK, *PRIVATE, *URLS}) == len([*LOOPBACK, *PRIVATE, *URLS]) >= 80


@pytest.mark.parametrize("host", [*LOOPBACK, *PRIVATE])
async def test_no_form_of_an_address_of_ours_is_connected_to(host: str) -> None:
    async with listening() as (port, came):
        everything = Egress(schemes=frozenset({"http", "https"}), ports=frozenset({port, 443}))
        for url in (f"http://{host}:{port}/", f"https://{host}:{port}/"):
            transport = HttpTransport(lambda _, url=url: url, egress=everything)  # type: ignore[misc]
            answer = await transport.send(m.attempt())
            await transport.aclose()
            assert isinstance(answer, Terminal | Retryable)
            assert answer.code in {"EGRESS_REFUSED", "NAME_NOT_RESOLVED"}
        await asyncio.sleep(0)
        assert came == []


@pytest.mark.parametrize("host", LOOPBACK[:1])
async def test_the_listener_would_have_noticed(host: str) -> None:
    async with listening() as (port, came):
        transport = HttpTransport(lambda _: f"http://{host}:{port}/", egress=allowing(port))
        await transport.send(m.attempt())
        await transport.aclose()
        assert len(came) == 1


def allowing(port: int) -> Egress:
    return Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}), ports=frozenset({port}))


@pytest.mark.parametrize("url", URLS)
async def test_a_url_in_a_form_that_is_not_wanted_is_refused_for_good(url: str) -> None:
    transport = HttpTransport(lambda _: url)
    answer = await transport.send(m.attempt())
    await transport.aclose()
    assert isinstance(answer, Terminal)
    assert answer.code == "EGRESS_REFUSED"
    assert "secret" not in answer.text


@pytest.mark.parametrize("url", ["https://10.0.0.1/", "http://example.com/", "https://user:x@example.com/"])
def test_a_fixed_url_is_refused_when_it_is_declared_with_what_to_write(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"egress=Egress\(allow="):
        HttpTransport(url)


def test_the_port_of_a_fixed_url_is_meant() -> None:
    HttpTransport("https://example.com:8443/hooks")
    with pytest.raises(EgressRefused, match="Port 8443"):
        Egress().check_url("https://example.com:8443/hooks")


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822", "::ffff:93.184.216.34"]
)
def test_a_public_address_is_allowed_in_every_form_that_leads_to_it(address: str) -> None:
    Egress().check_address(address)


def test_an_allowed_network_is_allowed_and_its_neighbour_is_not() -> None:
    egress = Egress(allow=["10.1.0.0/16"])
    egress.check_address("10.1.2.3")
    egress.check_address("::ffff:10.1.2.3")
    with pytest.raises(EgressRefused):
        egress.check_address("10.2.0.1")


@pytest.mark.parametrize("values", [{"allow": "10.0.0.0/8"}, {"allow": ["ten"]}, {"schemes": {"ftp"}}])
def test_nonsense_is_refused_where_it_is_declared(values: Any) -> None:
    with pytest.raises(InvalidValue):
        Egress(**values)


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """A name server that answers differently each time; returns the names it was asked for."""
    asked: list[str] = []

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        addresses = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return asked


async def test_a_name_is_looked_up_once_so_that_its_second_answer_cannot_lead_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with listening() as (port, came):
        asked = resolving(monkeypatch, ["203.0.113.9"], ["127.0.0.1"])
        egress = Egress(allow=["203.0.113.0/24"], schemes=frozenset({"http"}), ports=frozenset({port}))
        transport = HttpTransport(lambda _: f"http://rebinding.example:{port}/", egress=egress, connect_seconds=0.2)
        answer = await transport.send(m.attempt())
        await transport.aclose()
        assert asked == ["rebinding.example"]
        assert isinstance(answer, Retryable)
        assert answer.destination_down
        assert came == []


async def test_a_name_with_one_address_of_ours_among_others_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["93.184.216.34", "127.0.0.1"])
    transport = HttpTransport(lambda _: "https://mixed.example/")
    answer = await transport.send(m.attempt())
    await transport.aclose()
    assert isinstance(answer, Retryable)
    assert answer.code == "EGRESS_REFUSED"
    assert not answer.destination_down


async def test_no_socket_is_opened_to_an_address_that_was_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the look at the name had been forgotten."""
    from redrive.transports.http import client

    async def unjudged(_: Egress, __: str, ___: int) -> list[tuple[int, str]]:
        return [(socket.AF_INET, "127.0.0.1")]

    monkeypatch.setattr(client, "resolve", unjudged)
    async with listening() as (port, came):
        egress = Egress(schemes=frozenset({"http"}), ports=frozenset({port}))
        transport = HttpTransport(lambda _: f"http://careless.example:{port}/", egress=egress)
        answer = await transport.send(m.attempt())
        await transport.aclose()
        assert isinstance(answer, Retryable)
        assert answer.code == "EGRESS_REFUSED"
        assert came == []


async def test_a_redirect_is_not_followed() -> None:
    async with listening() as (port, came), serving(status(302, Location=f"http://127.0.0.1:{port}/")) as destination:
        transport = HttpTransport(destination.url, egress=HERE)
        answer = await transport.send(m.attempt())
        await transport.aclose()
        assert answer == Terminal("HTTP_302")
        assert came == []


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as (port, came), serving() as destination:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        transport = HttpTransport(destination.url, egress=HERE)
        await transport.send(m.attempt())
        await transport.aclose()
        assert len(destination.asked) == 1
        assert came == []
