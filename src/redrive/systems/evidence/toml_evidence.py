"""Evidence declared in `redrive.toml`, for relays and workers that no Python names.

    [evidence]
    storage = "s3://evidence/uploads"
    [evidence.case-api]
    url = "https://cases.example/v1"
    headers_env = "CASE_API_HEADERS"
    [evidence.bus]
    kind = "nats"                            # or "kafka", with bootstrap_servers
    url = "nats://nats.internal:4222"
    [evidence.mail]
    host = "smtp.example"
    sender = "evidence@example.com"
    [evidence.evidence-retry]                # what is left out has its default
    max-attempts = 3

Secrets are named, never written: `headers_env`, `password_file`, `url_env`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from redrive import System
from redrive.errors import InvalidValue, SettingsError
from redrive.kit.settings import Place, only_keys, read_table, subtable
from redrive.systems.evidence.bus import Bus, KafkaBus, NatsBus
from redrive.systems.evidence.case_api import CaseApi
from redrive.systems.evidence.configured import with_evidence
from redrive.systems.evidence.settings import EvidenceSettings, read_settings
from redrive.systems.evidence.storage import storage_of
from redrive.transports.http import Egress

_TABLES: Final = ("case-api", "bus", "mail", "webhooks", "evidence-retry", "storage-options")
_OPTIONS: Final = ("storage", "topics_by_category")
_BUSES: Final[Mapping[str, type[NatsBus | KafkaBus]]] = {"nats": NatsBus, "kafka": KafkaBus}


@dataclass(frozen=True, kw_only=True)
class _Mail:
    """As `SmtpTransport` takes them."""

    host: str
    sender: str
    port: int | None = None
    tls: Literal["starttls", "implicit", "none"] = "starttls"
    username: str | None = None
    password: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Webhooks:
    egress: Egress | None = None


def from_settings(table: Mapping[str, Any], file: Path) -> System:
    only_keys(table, "evidence", file, known=[*_OPTIONS, *_TABLES])
    storage = table.get("storage")
    if not isinstance(storage, str):
        raise SettingsError(
            f"storage of [evidence] in {file} is missing.", next='write storage = "file:///directory" or "s3://bucket"'
        )
    webhooks = read_table(_Webhooks, Place("webhooks", file, "evidence"), _table(table, "webhooks", file))
    return with_evidence(
        read_table(CaseApi, Place("case-api", file, "evidence"), _table(table, "case-api", file)),
        _bus(_table(table, "bus", file), file),
        storage_of(storage, _table(table, "storage-options", file)),
        mail=_mail(_table(table, "mail", file), file),
        webhooks=webhooks.egress,
        settings=_settings(_table(table, "evidence-retry", file), file),
        topics_by_category=bool(table.get("topics_by_category", False)),
    )


def _table(table: Mapping[str, Any], name: str, file: Path) -> Mapping[str, Any]:
    return subtable(table, Place(name, file, "evidence"))


def _bus(table: Mapping[str, Any], file: Path) -> Bus:
    kind = table.get("kind", "nats")
    if kind not in _BUSES:
        raise SettingsError(f"kind of [evidence.bus] in {file} is {kind!r}.", next='write kind = "nats" or "kafka"')
    options = {key: value for key, value in table.items() if key != "kind"}
    if kind == "kafka":
        _require("bus", options, file, "bootstrap_servers")
    return read_table(_BUSES[kind], Place("bus", file, "evidence"), options)


def _mail(table: Mapping[str, Any], file: Path) -> Any:
    if not table:
        return None
    from redrive.transports.smtp import SmtpTransport  # its library is needed only by those who send mail

    _require("mail", table, file, "host", "sender")
    mail = read_table(_Mail, Place("mail", file, "evidence"), table)
    return SmtpTransport(
        mail.host, sender=mail.sender, port=mail.port, tls=mail.tls, username=mail.username, password=mail.password
    )


def _require(name: str, table: Mapping[str, Any], file: Path, *keys: str) -> None:
    for key in keys:
        if key not in table:
            raise SettingsError(f"{key} of [evidence.{name}] in {file} is missing.", next=f"write {key} = ...")


def _settings(table: Mapping[str, Any], file: Path) -> EvidenceSettings:
    try:
        return read_settings(table)
    except InvalidValue as wrong:
        raise SettingsError(f"{wrong} (from [evidence.evidence-retry] in {file})") from None
