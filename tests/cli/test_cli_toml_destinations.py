"""Destinations of a settings file: what Python can say it can say, with the same refusals, and never a secret."""

from __future__ import annotations

import base64
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from redrive.app import App
from redrive.errors import InvalidValue, SettingsError
from redrive.operate import toml_destinations
from redrive.policy import Backoff, Breaker, Policy
from redrive.relay.load_app import load_app
from redrive.settings import Settings
from redrive.transports import registry
from redrive.transports.http import HttpTransport
from tests.cli.conftest import NOWHERE, Redrive

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
PLAIN = 'transport = "http"\nurl = "https://crm.example/hooks"\n'


def app_of(text: str) -> App:
    Path("redrive.toml").write_text(text)
    return toml_destinations.app_from_file()


def table(lines: str) -> App:
    return app_of(f"[destinations.crm]\n{PLAIN}{lines}")


@pytest.mark.req("G-19")
def test_everything_that_a_transport_can_be_told_in_python_can_stand_in_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRM_SECRET", SECRET)
    monkeypatch.setenv("CRM_AUTH", "Bearer abc")
    Path("old").write_text(SECRET + "\n")
    app = app_of(
        """
        lease_seconds = 90

        [destinations.crm]
        transport = "http"
        url = "https://crm.example:8443/hooks"
        method = "PUT"
        headers = { X-Team = "shop" }
        headers_env = { Authorization = "CRM_AUTH" }
        signing_secrets_env = ["CRM_SECRET"]
        signing_secrets_file = ["old"]
        lookup_url = "https://crm.example:8443/hooks/{token}"
        reference_header = "X-Request-Id"
        cloudevents = { source = "/shop", mode = "structured" }
        connect_seconds = 2
        connections = 10
        concurrency = 5
        global_concurrency = 20
        rate = 12.5
        timeout_seconds = 10
        in_doubt = "lookup"
        on_dead = "continue"
        lookup_after_seconds = 5
        token_ttl_seconds = 3600
        money = true
        breaker = { failures = 3, codes = ["HTTP_503"] }
        policy = { attempts = 4, backoff = { initial_seconds = 1, max_seconds = 60, jitter = 0.2 } }
        egress = { allow = ["10.1.0.0/16"], schemes = ["https", "http"], ports = [8443] }

        [destinations.audit]
        transport = "http"
        url = "https://audit.example/"
        breaker = true
        """
    )
    assert list(app.destinations) == ["crm", "audit"]
    crm = app.destinations["crm"]
    assert (crm.concurrency, crm.global_concurrency, crm.rate, crm.timeout_seconds) == (5, 20, 12.5, 10)
    assert crm.rules.policy == Policy(attempts=4, backoff=Backoff(initial_seconds=1, max_seconds=60, jitter=0.2))
    assert (crm.rules.in_doubt, crm.rules.on_dead, crm.rules.money) == ("lookup", "continue", True)
    assert crm.breaker == Breaker(failures=3, codes=["HTTP_503"])
    assert app.destinations["audit"].breaker == Breaker()
    parts: Any = vars(crm.transport)
    assert parts["_headers"] == {"X-Team": "shop", "Authorization": "Bearer abc"}
    assert len(parts["_signer"].headers(id="a", timestamp=1, body=b"")["webhook-signature"].split()) == 2
    assert Settings.load().lease_seconds == 90


def test_a_url_that_is_a_secret_itself_is_named_like_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "https://chat.example/T0K3N")
    app = app_of('[destinations.chat]\ntransport = "http"\nurl_env = "HOOK"')
    assert vars(app.destinations["chat"].transport)["_url"] == "https://chat.example/T0K3N"


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    ("lines", "said", "advice"),
    [
        ("timeout_second = 5", "There is no key 'timeout_second'", "did you mean timeout_seconds?"),
        ("xyzzy = 5", "There is no key 'xyzzy'", "known are: absent_is_final, address, breaker, "),
        (f'signing_secret = "{SECRET}"', "There is no key 'signing_secret'", "did you mean signing_secrets_"),
        ("policy = { attempt = 3 }", "There is no key 'attempt' in policy; did you mean attempts?", ""),
        ('timeout_seconds = "5"', "timeout_seconds is '5'; it must be a number.", ""),
        ("concurrency = true", "concurrency is True; it must be a whole number.", ""),
        ("breaker = 5", "breaker is 5; it must be a table or true or false.", ""),
        ("headers = { X = 5 }", "headers is {'X': 5}; it must be a table of texts.", ""),
        ('egress = { ports = ["x"] }', "egress.ports[0] is 'x'; it must be a whole number.", ""),
        (
            "policy = { backoff = { jitter = true } }",
            "policy.backoff.jitter is True; it must be a text or a number.",
            "",
        ),
        (
            "signing_secrets_env = []\nsigning_secrets_file = [5]",
            "signing_secrets_file[0] is 5; it must be a text.",
            "",
        ),
        ('signing_secrets_env = ["NOT_THERE"]', "names the variable NOT_THERE, which is not set.", ""),
        ('signing_secrets_file = ["not/there"]', "names the file not/there, which cannot be read: No such file", ""),
        ('headers = { authorization = "Bearer x" }', "has 'authorization', a secret; name it in headers_env", ""),
        ("record = 5", "There is no key 'record'", ""),
    ],
)
def test_what_is_wrong_is_named_with_its_key_its_place_and_what_helps(lines: str, said: str, advice: str) -> None:
    with pytest.raises(SettingsError) as caught:
        table(lines)
    assert said in caught.value.message
    assert "[destinations.crm] in redrive.toml" in caught.value.message
    assert advice in caught.value.next
    assert SECRET not in str(caught.value)


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"rate": 0},
        {"timeout_seconds": 5000},
        {"in_doubt": "ask"},
        {"on_dead": "stop"},
        {"money": True, "in_doubt": "resend"},
        {"in_doubt": "lookup"},
    ],
    ids=str,
)
def test_a_refusal_is_the_one_of_the_python_interface(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as in_python:
        App().transport("crm", HttpTransport("https://crm.example/hooks"), **wrong)
    lines = [
        f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for key, value in wrong.items()
    ]
    with pytest.raises(SettingsError) as in_file:
        table("\n".join(lines))
    assert str(in_python.value) in in_file.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "No app is named, and no destination is declared"),
        ("destinations = 5", "must be tables"),
        ("[destinations]\ncrm = 5", "must be tables"),
        ('[destinations.crm]\nurl = "https://crm.example/"', "transport is None; it must be one of http"),
        ('[destinations.crm]\ntransport = "ftp"', "transport is 'ftp'; it must be one of http"),
        ('[destinations.crm]\ntransport = "htp"', "Did you mean http?"),
        ('[destinations.crm]\ntransport = "nowhere:Spool"', "there is no module 'nowhere' here or on the Python path"),
        ('[destinations.crm]\ntransport = "os:sep"', "transport is 'os:sep', which is a str; it must be a class"),
        ('[destinations.crm]\ntransport = "http"\nurl = "https://u:p@crm.example/"', "url of 'crm' has a password"),
        ('[destinations.crm]\ntransport = "http"', "url of 'crm' is missing; give url, url_env or url_file."),
        (
            '[destinations.crm]\ntransport = "http"\nurl = "http://10.0.0.1/"',
            "The URL of an HTTP destination is refused",
        ),
    ],
)
def test_a_file_that_declares_nothing_usable_is_refused(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        app_of(text)
    assert said in caught.value.message


SPOOL = """
from collections.abc import Mapping

class Spool:
    def __init__(self, host: str, *, port: int, options: Mapping[str, str] | None = None) -> None:
        self.given = (host, port, options)

    async def send(self, attempt):
        return None
"""


@pytest.mark.parametrize("how", ["module", "entry point"])
def test_a_transport_of_ones_own_can_be_named(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    Path("spools.py").write_text(SPOOL)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.setitem(sys.modules, "spools", None)
    monkeypatch.delitem(sys.modules, "spools")
    monkeypatch.setenv("SPOOL_HOST", "spool.internal")
    monkeypatch.setenv("SPOOL_PIN", "1234")
    name = "spools:Spool"
    if how == "entry point":
        point = metadata.EntryPoint("spool", name, registry.GROUP)
        monkeypatch.setattr(metadata, "entry_points", lambda *, group: [point] if group == registry.GROUP else [])
        name = "spool"
    app = app_of(
        f"""
        [destinations.labels]
        transport = "{name}"
        host_env = "SPOOL_HOST"
        port = 9100
        options = {{ tray = "2" }}
        options_env = {{ pin = "SPOOL_PIN" }}
        concurrency = 4
        """
    )
    labels: Any = app.destinations["labels"]
    assert labels.transport.given == ("spool.internal", 9100, {"tray": "2", "pin": "1234"})
    assert labels.concurrency == 4
    with pytest.raises(SettingsError, match="port of 'labels' is missing"):
        app_of(f'[destinations.labels]\ntransport = "{name}"\nhost = "spool.internal"')


def test_two_transports_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("http", "os:sep", registry.GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: [point] if group == registry.GROUP else [])
    with pytest.raises(SettingsError, match="Two installed packages offer a transport named 'http'"):
        app_of('[destinations.labels]\ntransport = "spool"')


def test_a_child_process_finds_what_is_declared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(f"[destinations.crm]\n{PLAIN}")
    monkeypatch.setenv("REDRIVE_CONFIG", str(tmp_path / "other.toml"))
    assert list(load_app(toml_destinations.SPEC).destinations) == ["crm"]
    assert "REDRIVE_CONFIG" in os.environ


def test_a_relay_without_an_app_and_without_a_declaration_says_what_to_write() -> None:
    result = Redrive(NOWHERE)("relay")
    assert result.exit_code == 2
    assert "No app is named" in result.stderr
    assert "[destinations.NAME]" in result.stderr
