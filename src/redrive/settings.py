"""The one table of settings: type, default, bounds, unit and help of each.

A setting is one field of `RelayLimits` or `Settings`; `TABLE` lists them for the environment (`REDRIVE_*`),
`redrive.toml`, the command line, `redrive config show` and docs/reference/settings.md. `Settings.load(...)` also reads
the environment and the file. Unknown names, values out of bounds and contradictions raise SettingsError.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, get_args

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from redrive import settings_sources as sources

HEALS_WITHIN_SECONDS: Final = 120.0  # G-14: what the defaults promise
HEARTBEATS_PER_LEASE: Final = 3  # two heartbeats may be lost before a lease runs out
RENEWALS_PER_LEASE: Final = 3  # two renewals may fail before a lease runs out
LEASE_SECONDS_ADVISED: Final = 5.0  # a process may pause for seconds: swapping, a suspended machine
LOOPBACK: Final = "127.0.0.1"

Wakeup = Literal["notify", "poll"]
AsynchronousCommit = Literal["refuse", "warn"]
LogFormat = Literal["auto", "console", "json", "logfmt"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]
ReadBy = Literal["relay", "console", "process"]


def _setting(
    default: Any,
    help: str,  # noqa: A002 - the column's name
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    read_by: ReadBy = "relay",
    option: bool = False,
    secret: bool = False,
) -> Any:
    """One row. read_by: who uses it. option: `redrive relay` and `redrive up` have an option for it."""
    row: Any = {"low": low, "high": high, "unit": unit, "read_by": read_by, "option": option, "secret": secret}
    bounds: dict[str, Any] = {} if low is None else {"ge": low, "le": high}
    return Field(default=default, repr=not secret, description=help, json_schema_extra=row, **bounds)


class RelayLimits(BaseSettings):
    """How much one relay process takes on, and how it keeps time. The bounds are what the engine can keep."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix=sources.PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", allow_inf_nan=False
    )

    lease_seconds: float = _setting(
        60.0,
        "How long a claim lasts without renewal; messages of a crashed relay wait this long.",
        unit="s",
        low=1,
        high=3600,
        option=True,
    )
    reap_every_seconds: float = _setting(
        15.0, "How often a relay looks for leases that ran out.", unit="s", low=0.1, high=600
    )
    # A relay that was not seen for 30 s counts as stale.
    heartbeat_seconds: float = _setting(
        5.0,
        "How often a relay or a worker reports that it lives; a relay also asks which destinations are paused.",
        unit="s",
        low=0.1,
        high=30,
    )
    record_timeout_seconds: float = _setting(
        10.0,
        "How long one `record` may take; half of `lease_seconds` at most, because its claim is not renewed meanwhile.",
        unit="s",
        low=0.1,
        high=600,
    )
    concurrency: int = _setting(
        100, "Sends at a time in one relay process.", unit="sends", low=1, high=10_000, option=True
    )
    claim_max: int = _setting(
        1000, "Most messages that a relay holds claims on, per destination.", unit="messages", low=1, high=5000
    )
    horizon_seconds: float = _setting(
        0.5,
        "How far ahead of its free slots a relay claims, measured in the observed time of a send.",
        unit="s",
        low=0,
        high=10,
    )
    poll_seconds: float = _setting(
        0.25, "Longest pause between two looks for work while there is none.", unit="s", low=0.05, high=300, option=True
    )
    stop_seconds: float = _setting(
        20.0,
        "How long a graceful stop waits for running sends. 0: they are cut off at once.",
        unit="s",
        low=0,
        high=3600,
        option=True,
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    def __init__(self, **values: Any) -> None:
        origins: dict[str, str] = values.pop("_origins", {})
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise sources.explain(error.errors()[0], origins, type(self).table()) from None
        self._origins = {name: origins.get(name, sources.ARGUMENT) for name in values}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        *_: Any,
        **__: Any,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the arguments: `Settings.load` reads the rest itself, so that it knows the origin of each value."""
        return (init_settings,)

    @classmethod
    def table(cls) -> dict[str, Setting]:
        return {name: Setting.of(name, field) for name, field in cls.model_fields.items()}

    @property
    def record_seconds(self) -> float:
        """How long a `record` gets: were its lease reaped meanwhile, the message would be sent again."""
        return min(self.record_timeout_seconds, self.lease_seconds / 2)

    @property
    def renew_every_seconds(self) -> float:
        return self.lease_seconds / RENEWALS_PER_LEASE

    @property
    def heals_within_seconds(self) -> float:
        """Messages of a crashed relay are pending again within this time."""
        return self.lease_seconds + self.reap_every_seconds

    def limits(self) -> dict[str, Any]:
        """As JSON for a child process."""
        return self.model_dump(include=set(RelayLimits.model_fields))

    @field_validator("*", mode="before")
    @classmethod
    def _plain_value(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise PydanticCustomError("truth", "a truth value is neither a number nor a text")
        if isinstance(value, str) and value.strip().lower() == "none":
            return None
        return value

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


class Settings(RelayLimits):
    """All settings. Frozen: a process that needs others starts again."""

    wakeup: Wakeup = _setting(
        "notify", "How a relay learns of new work. notify: it listens, and polls besides. poll: it only polls."
    )
    listen_dsn: str | None = _setting(
        None,
        "Where a relay listens: a direct connection to the same database, if the DSN leads to a pooler that shares"
        " connections between transactions. None: the DSN itself.",
        secret=True,
    )
    state_directory: Path | None = _setting(
        None,
        "Where a relay remembers, over restarts, the last money that it sent, so that a restored database is noticed."
        " Each machine needs its own; it is never part of a backup. None: the user's state directory.",
    )
    asynchronous_commit: AsynchronousCommit = _setting(
        "refuse",
        "What a relay that moves money does where `synchronous_commit` is off for its login, so that a crash of the"
        " database could lose what was committed. refuse: it does not start. warn: it starts and logs it.",
    )
    partition_days: int = _setting(7, "Width of one partition of messages and attempts.", unit="days", low=1, high=366)
    partitions_ahead: int = _setting(4, "Partitions that exist ahead of time.", unit="partitions", low=1, high=100)
    retention_days: int | None = _setting(
        None,
        "Age at which closed messages are retired. None: they are kept for good.",
        unit="days",
        low=1,
        high=36_500,
    )
    inbox_retention_days: int | None = _setting(
        30,
        "Age at which the inbox forgets what a consumer received. A message that the broker redelivers later is"
        " processed again, so it must be longer than the broker keeps messages. None: nothing is forgotten.",
        unit="days",
        low=1,
        high=36_500,
    )
    metrics_listen: str | None = _setting(
        None,
        "Where a relay serves /metrics, /livez, /readyz and /health: a port of this machine (9464), or HOST:PORT; 0"
        " chooses a port. There is no authentication. None: nowhere. Needs the extra `metrics`.",
        option=True,
    )
    metrics_every_seconds: float = _setting(
        15.0, "How often one of the relays reads the values of the database for /metrics.", unit="s", low=1, high=300
    )
    stalled_seconds: float = _setting(
        90.0, "A relay whose loop has not gone round for this long is not live (/livez).", unit="s", low=5, high=3600
    )

    dsn: str | None = _setting(
        None,
        "The database, as a PostgreSQL URI or key=value string. Also taken from REDRIVE_DSN_FILE (a file that holds"
        " it), DATABASE_URL, or libpq's own PG* variables. None: the embedded server.",
        read_by="process",
        secret=True,
    )
    data_dir: Path | None = _setting(
        None, "Where the embedded server keeps its data. None: the user's data directory.", read_by="process"
    )
    log_format: LogFormat = _setting(
        "auto",
        "Rendering of log lines. auto: console on a terminal, json elsewhere.",
        read_by="process",
        option=True,
    )
    log_level: LogLevel = _setting("info", "Lines below this level are left out.", read_by="process", option=True)

    console_listen: str = _setting(
        f"{LOOPBACK}:8321",
        "Where the console listens: a port of this machine, or HOST:PORT; 0 chooses a port. It starts beyond this"
        " machine only if a login is possible. Needs the extra `console`.",
        read_by="console",
    )
    console_origin: str | None = _setting(
        None,
        "The address under which browsers see the console, such as https://ops.example.com. None: only under a name of"
        " this machine.",
        read_by="console",
    )
    console_root_path: str = _setting(
        "",
        "The prefix below which the console lies, such as /redrive; the proxy may cut it off.",
        read_by="console",
    )
    console_proxy_peers: str | None = _setting(
        None,
        "Addresses of the proxies that are trusted to name the user, separated by spaces. None: no proxy is trusted.",
        read_by="console",
    )
    console_proxy_header: str = _setting(
        "X-Forwarded-User", "The header in which such a proxy names the user.", read_by="console"
    )
    console_proxy_users: str | None = _setting(
        None,
        "Users that may log in through such a proxy, by exact name: `anna=operator ben=viewer:acme`, a role and, if it"
        " is limited to one tenant, the tenant. None: no user.",
        read_by="console",
    )
    console_session_hours: float = _setting(
        12.0, "How long a login to the console lasts.", unit="h", low=0.1, high=168, read_by="console"
    )
    console_idle_minutes: float = _setting(
        60.0, "How long an unused login lasts.", unit="min", low=1, high=1440, read_by="console"
    )

    def __init__(self, **values: Any) -> None:  # or type checkers would refuse `**values` of a mapping
        super().__init__(**values)

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

    def with_defaults(self, values: Mapping[str, float], *, origin: str) -> Self:
        """With these where nothing else was set: no flag, variable or file."""
        unset = {name: value for name, value in values.items() if name not in self._origins}
        if not unset:
            return self
        given = {name: getattr(self, name) for name in self._origins}
        return type(self)(**given, **unset, _origins={**self._origins, **dict.fromkeys(unset, origin)})

    def origins(self) -> dict[str, str]:
        """Where each value came from: a flag, a variable, a file, or `default`."""
        return {name: self._origins.get(name, "default") for name in TABLE}

    def advice(self) -> list[str]:
        """What is allowed but perhaps not meant; a relay logs it when it starts."""
        advice = []
        if self.lease_seconds < LEASE_SECONDS_ADVISED:
            advice.append(
                f"lease_seconds is {self.lease_seconds:g}: when a relay pauses for longer, its messages are taken for"
                f" crashed and sent again; outside of tests let it be at least {LEASE_SECONDS_ADVISED:g}."
            )
        if self.heals_within_seconds > HEALS_WITHIN_SECONDS:
            advice.append(
                f"Messages of a crashed relay come back only after up to {self.heals_within_seconds:g} s"
                f" (lease_seconds {self.lease_seconds:g} + reap_every_seconds {self.reap_every_seconds:g});"
                f" to heal within {HEALS_WITHIN_SECONDS:g} s, lower one of them."
            )
        return advice

    @property
    def console_address(self) -> Address:
        address = Address.parsed(self.console_listen)
        assert address is not None  # checked by `_listen`
        return address

    @property
    def relay_state_directory(self) -> Path | None:
        """`state_directory`, or the user's own (XDG_STATE_HOME, ~/.local/state); None without a home."""
        if self.state_directory is not None:
            return self.state_directory
        named = os.environ.get("XDG_STATE_HOME", "")
        if named.startswith("/"):
            return Path(named) / "redrive"
        try:
            return Path.home() / ".local" / "state" / "redrive"
        except RuntimeError:
            return None

    @field_validator("dsn", "listen_dsn")
    @classmethod
    def _plain_dsn(cls, value: str | None) -> str | None:
        """SQLAlchemy's URLs name a driver, which PostgreSQL's do not."""
        return None if value is None else re.sub(r"\Apostgres(ql)?\+\w+://", "postgresql://", value)

    @field_validator("metrics_listen", "console_listen", mode="before")
    @classmethod
    def _listen(cls, value: Any) -> Any:
        """A port may be written as a number."""
        text = str(value) if type(value) is int else value
        if isinstance(text, str) and text.strip().lower() != "none" and Address.parsed(text) is None:
            raise PydanticCustomError("address", "no address")
        return text


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    @classmethod
    def parsed(cls, text: str) -> Address | None:
        """`9464` is this machine only; `0.0.0.0:9464` and `[::]:9464` are all addresses of it. None: it is neither."""
        host, _, port = text.strip().rpartition(":")
        if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
            return None
        return cls(host.strip("[]") or LOOPBACK, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One row of the table. low, high: both included; None: it is no number. choices: empty = any. default: None = no
    value.
    """

    name: str
    kind: type
    default: Any
    help: str
    unit: str
    low: float | None
    high: float | None
    read_by: ReadBy
    option: bool
    secret: bool
    choices: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, field: FieldInfo) -> Self:
        extra: Any = field.json_schema_extra
        words = tuple(word for word in get_args(field.annotation) if isinstance(word, str))
        kinds = [kind for kind in (int, float, Path) if kind in (field.annotation, *get_args(field.annotation))]
        kind = kinds[0] if kinds else str
        return cls(name=name, kind=kind, default=field.default, help=field.description or "", choices=words, **extra)

    @property
    def variable(self) -> str:
        return f"{sources.PREFIX}{self.name.upper()}"

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def bounds(self) -> str:
        """`1 to 3600`, or the words that it accepts."""
        return ", ".join(self.choices) if self.low is None else f"{self.low} to {self.high}"

    @property
    def allowed(self) -> str:
        """For the end of a sentence."""
        if self.low is not None:
            kind = "a whole number" if self.kind is int else "a number"
            return f"{kind} from {self.bounds} ({self.unit})" + (", or none" if self.default is None else "")
        if self.name.endswith("_listen"):
            return "a port from 0 to 65535, or HOST:PORT"
        return f"one of {self.bounds}" if self.choices else "a text"


TABLE: Final[Mapping[str, Setting]] = Settings.table()
assert Settings().heals_within_seconds <= HEALS_WITHIN_SECONDS
