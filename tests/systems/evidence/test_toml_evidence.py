"""Evidence in `redrive.toml` (E-11): an app with all its destinations, consumers, duties and metrics, or a refusal."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import redrive
from redrive.errors import SettingsError
from redrive.systems.evidence import system
from redrive.systems.evidence.metrics import METRICS

FILE = Path("redrive.toml")
WHOLE = """
storage = "file://{directory}"
topics_by_category = true
[case-api]
url = "https://cases.example/v1"
concurrency = 3
[bus]
kind = "nats"
url = "nats://127.0.0.1:4222"
[mail]
host = "127.0.0.1"
sender = "evidence@example.org"
tls = "none"
[webhooks]
egress = {{ allow = ["10.0.0.0/8"] }}
[evidence-retry]
max-attempts = 2
batch_size_rows = 50
backoff = {{ initial-delay = "10s" }}
"""


def read(text: str) -> redrive.System:
    assert system.from_settings is not None
    return system.from_settings(tomllib.loads(text), FILE)


@pytest.mark.req("E-08", "E-11")
def test_a_settings_file_is_enough_for_relays_and_workers(tmp_path: Path) -> None:
    app = redrive.App()
    app.include(read(WHOLE.format(directory=tmp_path)))
    assert {"case-api", "evidence.notice.mail", "evidence.notice.webhook"} <= set(app.destinations)
    assert {"evidence.attach.requests", "evidence.failed.requests", "evidence.attach.results"} <= set(app.destinations)
    assert set(app.consumers) == {"evidence.attach", "evidence.retry", "evidence.results"}
    assert set(app.duties) == {"evidence.scheduler", "evidence.gates", "evidence.sweep"}
    assert app.systems["evidence"].metrics == METRICS
    assert app.destinations["case-api"].concurrency == 3


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("storage =", "store =", "no key 'store'"),
        ('"file://{directory}"', '"ftp://x"', "address that is not known"),
        ("[case-api]\nurl", "[case-api]\nuri", "uri"),
        ('kind = "nats"', 'kind = "carrier"', "kind of"),
        ("max-attempts = 2", "max-attempts = 5", "max_attempts is 5"),
        ("max-attempts = 2", "tries = 2", "no setting 'tries'"),
        ("storage =", "storage-options = 1\nstorage =", "evidence.storage-options in redrive.toml must be a table"),
        ('host = "127.0.0.1"', "", "host of .evidence.mail. in redrive.toml is missing"),
        ('kind = "nats"\nurl = "nats://127.0.0.1:4222"', 'kind = "kafka"', "bootstrap_servers of .evidence.bus."),
    ],
)
def test_what_is_wrong_in_it_is_said(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in WHOLE
    with pytest.raises(SettingsError, match=said):
        read(WHOLE.replace(before, after).format(directory=tmp_path))
