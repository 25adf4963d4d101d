"""The outbox as `redrive.toml` declares it: events are posted, secrets are named, mistakes are refused (T-03)."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

import redrive
from redrive.errors import SettingsError
from redrive.operate.toml_destinations import app_from_file
from redrive.systems import tenant
from redrive.testing import adrain
from tests.systems.tenant.conftest import TYPES, published
from tests.transports.servers import serving

pytestmark = pytest.mark.req("T-03")
LOCAL = 'egress = { allow = ["127.0.0.0/8"], schemes = ["http"] }'


def declared(place: Path, text: str) -> redrive.App:
    file = place / "redrive.toml"
    file.write_text(f"[tenant]\n{text}\n", encoding="utf-8")
    return app_from_file(file)


async def test_events_are_posted_to_the_url_with_the_named_secret(
    outbox_database: str, acme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTS_AUTHORIZATION", "Bearer 7")
    async with serving() as subscriber, await psycopg.AsyncConnection.connect(outbox_database) as conn:
        headers = 'headers_env = { Authorization = "EVENTS_AUTHORIZATION" }'
        app = declared(tmp_path, f'url = "{subscriber.url}/in"\n{headers}\n{LOCAL}')
        added = await tenant.OutboxWriter(event_types=TYPES).aadd(conn, acme, published())
        assert (await adrain(conn, app)).delivered == [added.id]
        await getattr(app.destinations["tenant.events"].transport, "aclose")()  # noqa: B009 - not every transport has one
        await conn.rollback()
    (asked,) = subscriber.asked
    assert (asked.method, asked.path, asked.body) == ("POST", "/in", b'{"definition":"d-1"}')
    assert asked.headers["Authorization"] == "Bearer 7"
    assert asked.headers["Idempotency-Key"] == f'"{added.id}"'


def test_options_have_either_name_and_reach_destination_and_relay(tmp_path: Path) -> None:
    url = 'url = "https://events.example/in"'
    app = declared(tmp_path, f'{url}\noutbox = "audit"\nMaxRetries = 8\nbatch_size = 9\nMaxErrorTextLength = 300')
    destination = app.destinations["tenant.audit"]
    assert (destination.rules.policy.attempts, destination.error_text_max) == (8, 300)
    assert app.systems["tenant"].relay_settings == {"poll_seconds": 5.0, "claim_max": 9}


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("MaxRetries = 8", "url of 'outbox' is missing"),
        ('url = "https://events.example"\nMaxRetry = 8', "There is no outbox option 'MaxRetry'"),
        ('url = "https://events.example"\nMaxRetries = 101', "MaxRetries (max_retries) is 101"),
        ('url = "https://events.example"\nconcurrency = "two"', "concurrency is 'two'; it must be a whole number"),
        ('url = "https://me:secret@events.example"', "has a password; name it in url_env or url_file"),
        ('url = "https://events.example"\nheaders = { Authorization = "x" }', "a secret; name it in headers_env"),
        ('url_env = "NOT_SET_ANYWHERE"', "names the variable NOT_SET_ANYWHERE, which is not set"),
    ],
)
def test_a_mistake_in_the_file_is_refused_with_its_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        declared(tmp_path, text)
    assert said in str(refused.value)
    assert "secret@" not in str(refused.value)
