"""Every setting, with its unit, default and bounds; read from flags, environment, file, in that order.

`Settings(...)` takes what it is given and the defaults; `Settings.load(**flags)` also reads `REDRIVE_*` and
`redrive.toml`. A key that nobody knows, a value out of bounds and two values that contradict each other are a
`SettingsError` that names the key, the value, where it came from, the bound and what to do. No value is ever
adjusted silently. Called by whatever starts a process: the command line, `redrive up`, a relay.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from redrive.operate import settings_sources as sources

HEALS_WITHIN_SECONDS: Final = 120.0  # G-14: what the defaults promise
HEARTBEATS_PER_LEASE: Final = 3  # two heartbeats may be lost before a lease runs out

Wakeup = Literal["notify", "poll"]
AsynchronousCommit = Literal["refuse", "warn"]
LogFormat = Literal["auto", "console", "json", "logfmt"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]


def _number(default: float | None, low: float, high: float, unit: str, description: str) -> Any:
    return Field(
        default=default,
        ge=low,
        le=high,
        allow_inf_nan=False,
        description=description,
        json_schema_extra={"low": low, "high": high, "unit": unit},
    )


def _count(default: int | None, low: int, high: int, unit: str, description: str) -> Any:
    return Field(
        default=default,
        ge=low,
        le=high,
        description=description,
        json_schema_extra={"low": low, "high": high, "unit": unit},
    )


class Settings(BaseSettings):
    """All settings. Frozen: a process that needs others starts again."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix=sources.PREFIX, env_ignore_empty=True, frozen=True, extra="forbid"
    )

    dsn: str | None = Field(
        default=None,
        repr=False,
        description="The database, as a PostgreSQL URI or key=value string. Also taken from REDRIVE_DSN_FILE (a"
        " file that holds it), DATABASE_URL, or libpq's own PG* variables. None: the embedded server.",
    )
    data_dir: Path | None = Field(
        default=None,
        description="Where the embedded server keeps its data. None: the user's data directory.",
    )
    state_directory: Path | None = Field(
        default=None,
        description="Where a relay remembers, over restarts, the last money that it sent, so that a restored database"
        " is noticed. Its own for each machine, never part of a backup. None: the user's state directory.",
    )
    lease_seconds: float = _number(
        60.0, 5, 3600, "s", "How long a claim lasts without renewal; messages of a crashed relay wait this long."
    )
    record_timeout_seconds: float = _number(10.0, 0.1, 600, "s", "How long one `record` may take.")
    concurrency: int = _count(100, 1, 10_000, "dispatches", "Dispatches at a time in one relay process.")
    claim_max: int = _count(1000, 1, 5000, "messages", "Most messages in hand per destination.")
    poll_seconds: float = _number(0.25, 0.05, 60, "s", "Longest pause between two looks for work while there is none.")
    wakeup: Wakeup = Field(
        default="notify",
        description="How a relay hears of new work. notify: it listens, and polls besides. poll: it only polls.",
    )
    listen_dsn: str | None = Field(
        default=None,
        repr=False,
        description="Where a relay listens: a direct connection to the same database, if the DSN leads to a pooler that"
        " shares connections between transactions. None: the DSN itself.",
    )
    stop_seconds: float = _number(
        20.0, 0, 3600, "s", "How long a graceful stop waits for what runs. 0: cut it off at once."
    )
    reap_every_seconds: float = _number(15.0, 1, 600, "s", "How often leases that ran out are looked for.")
    heartbeat_seconds: float = _number(
        5.0, 0.1, 60, "s", "How often a relay says that it lives and asks which destinations are paused."
    )
    partition_days: int = _count(7, 1, 366, "days", "Width of one partition of messages and attempts.")
    partitions_ahead: int = _count(4, 1, 100, "partitions", "Partitions that exist ahead of time.")
    retention_days: int | None = _count(
        None, 1, 36_500, "days", "Age at which closed messages are retired. None: they are kept for good."
    )
    asynchronous_commit: AsynchronousCommit = Field(
        default="refuse",
        description="What a relay that moves money does where `synchronous_commit` is off for its login, so that a"
        " crash of the database could lose what was committed. refuse: it does not start. warn: it starts and logs it.",
    )
    log_format: LogFormat = Field(
        default="auto", description="Rendering of log lines. auto: console on a terminal, json elsewhere."
    )
    log_level: LogLevel = Field(default="info", description="Lines below this level are left out.")

    metrics_listen: str | None = Field(
        default=None,
        description="Where a relay shows /metrics, /livez, /readyz and /health: a port of this machine (9464), or"
        " HOST:PORT; 0 chooses a port. There is no authentication. None: nowhere. Needs the extra `metrics`.",
    )
    metrics_every_seconds: float = _number(
        15.0, 1, 300, "s", "How often the one relay that reads the values of the database for /metrics does so."
    )
    stalled_seconds: float = _number(
        90.0, 5, 3600, "s", "A relay whose loop has not gone round for so long is not live (/livez)."
    )

    console_listen: str = Field(
        default="127.0.0.1:8321",
        description="Where the console listens: a port of this machine, or HOST:PORT; 0 chooses a port. Beyond this"
        " machine it starts only if somebody could log in. Needs the extra `console`.",
    )
    console_origin: str | None = Field(
        default=None,
        description="The address under which browsers see the console, such as https://ops.example.com. None: only"
        " under a name of this machine.",
    )
    console_root_path: str = Field(
        default="", description="The prefix below which the console lies, such as /redrive; the proxy may cut it off."
    )
    console_proxy_peers: str | None = Field(
        default=None,
        description="Addresses of the proxies that say who asks, separated by spaces. None: nobody is believed.",
    )
    console_proxy_header: str = Field(
        default="X-Forwarded-User", description="The header in which such a proxy names who asks."
    )
    console_proxy_users: str | None = Field(
        default=None,
        description="Who may come through such a proxy, by exact name: `anna=operator ben=viewer:acme`, a role and, if"
        " it is one tenant's, the tenant. None: nobody.",
    )
    console_session_hours: float = _number(12.0, 0.1, 168, "h", "How long a login to the console lasts.")
    console_idle_minutes: float = _number(60.0, 1, 1440, "min", "How long a login lasts that is not used.")

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    def __init__(self, **values: Any) -> None:
        origins: dict[str, str] = values.pop("_origins", {})
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise sources.explain(error.errors()[0], origins, type(self).model_fields) from None
        self._origins = {name: origins.get(name, sources.ARGUMENT) for name in values}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is passed: `load` reads the rest, so that each value's origin is known."""
        return (init_settings,)

    @classmethod
    def load(cls, *, config: Path | str | None = None, **flags: Any) -> Self:
        """Flags that are not None, then `REDRIVE_*`, then the file, then the defaults."""
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        # From the weakest to the strongest.
        for found in (
            sources.from_elsewhere(),
            sources.from_file(config),
            sources.from_environment(cls),
            sources.from_flags(flags),
        ):
            values |= found.values
            origins |= found.origins
        return cls(**values, _origins=origins)

    def origins(self) -> dict[str, str]:
        """Where each value came from: a flag, a variable, a file, or `default`."""
        return {name: self._origins.get(name, "default") for name in type(self).model_fields}

    @property
    def heals_within_seconds(self) -> float:
        """After a crash its messages are pending again within this time."""
        return self.lease_seconds + self.reap_every_seconds

    def advice(self) -> list[str]:
        """What is allowed but perhaps not meant; a relay logs it when it starts."""
        if self.heals_within_seconds <= HEALS_WITHIN_SECONDS:
            return []
        advice = (
            f"Messages of a crashed relay come back only after up to {self.heals_within_seconds:g} s"
            f" (lease_seconds {self.lease_seconds:g} + reap_every_seconds {self.reap_every_seconds:g});"
            f" to heal within {HEALS_WITHIN_SECONDS:g} s, lower one of them."
        )
        return [advice]

    @field_validator("*", mode="before")
    @classmethod
    def _plain_value(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise PydanticCustomError("truth", "a truth value is neither a number nor a text")
        if isinstance(value, str) and value.strip().lower() == "none":
            return None
        return value

    @field_validator("dsn", "listen_dsn")
    @classmethod
    def _plain_dsn(cls, value: str | None) -> str | None:
        """SQLAlchemy's URLs name a driver, which PostgreSQL's do not."""
        return None if value is None else re.sub(r"\Apostgres(ql)?\+\w+://", "postgresql://", value)

    @model_validator(mode="after")
    def _relations(self) -> Self:
        least = HEARTBEATS_PER_LEASE * self.heartbeat_seconds
        if self.lease_seconds < least:
            raise PydanticCustomError(
                "contradiction",
                "lease_seconds is {lease} and heartbeat_seconds is {heartbeat}; a lease must be at least"
                " {factor} heartbeats ({least} s), so that a relay can miss two of them",
                {
                    "lease": f"{self.lease_seconds:g}",
                    "heartbeat": f"{self.heartbeat_seconds:g}",
                    "factor": HEARTBEATS_PER_LEASE,
                    "least": f"{least:g}",
                    "next": f"raise lease_seconds to {math.ceil(least)} or lower heartbeat_seconds",
                },
            )
        return self
