"""Reviews declared in `redrive.toml`: `[reviews]`, with repositories, a critic and providers.

    [reviews.repositories]
    shop = "/srv/git/shop.git"
    [reviews.critic]                       # left out: the rules of Redrive
    url = "https://models.example/v1"
    model = "critic-1"
    api_key_env = "MODELS_KEY"
    [reviews.providers.email]
    kind = "smtp"                          # or "http"

Secrets are named, never written: `api_key_env`, `password_file`, `headers_env`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from redrive import System
from redrive.errors import SettingsError
from redrive.kit.settings import Place, only_keys, read_table, subtable
from redrive.systems.reviews.chat import ChatCritic
from redrive.systems.reviews.configured import with_reviews
from redrive.systems.reviews.providers import HttpProvider, Provider, SmtpProvider
from redrive.transports.http import Egress

_TABLES: Final = ("repositories", "critic", "providers")
_OPTIONS: Final = ("diff_bytes_max", "reconcile_every_seconds")
_KINDS: Final[Mapping[str, type[Provider]]] = {"http": HttpProvider, "smtp": SmtpProvider}


@dataclass(frozen=True, kw_only=True)
class _Chat:
    url: str
    model: str
    api_key: str | None = None
    egress: Egress = field(default_factory=Egress)


def from_settings(table: Mapping[str, Any], file: Path) -> System:
    only_keys(table, "reviews", file, known=[*_TABLES, *_OPTIONS])
    repositories = _table(table, "repositories", file)
    for name, path in repositories.items():
        if not isinstance(path, str):
            raise SettingsError(f"reviews.repositories.{name} in {file} must be a path.")
    critic = _table(table, "critic", file)
    return with_reviews(
        {name: file.parent / path for name, path in repositories.items()},
        providers=[_provider(name, one, file) for name, one in _table(table, "providers", file).items()],
        critic=_critic(critic, file) if critic else None,
        **{name: table[name] for name in _OPTIONS if name in table},
    )


def _table(table: Mapping[str, Any], name: str, file: Path) -> Mapping[str, Any]:
    return subtable(table, Place(name, file, "reviews"))


def _critic(table: Mapping[str, Any], file: Path) -> ChatCritic:
    chat = read_table(_Chat, Place("critic", file, "reviews"), table)
    return ChatCritic(url=chat.url, model=chat.model, api_key=chat.api_key, egress=chat.egress)


def _provider(name: str, table: object, file: Path) -> Provider:
    kind = table.get("kind") if isinstance(table, dict) else None
    if not isinstance(table, dict) or not isinstance(kind, str) or kind not in _KINDS:
        raise SettingsError(
            f"reviews.providers.{name} in {file} must be a table with a kind.", next='write kind = "smtp" or "http"'
        )
    place = Place(name, file, "reviews.providers")
    options = {key: value for key, value in table.items() if key != "kind"}
    return read_table(_KINDS[kind], place, options, name=name)
