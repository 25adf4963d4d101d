"""What a user declares: destinations, duties, systems. A relay runs it; producers do not need it.

    app = redrive.App()

    @app.destination("welcome-mail")
    async def welcome(message: redrive.Attempt) -> None: ...

A wrong declaration is refused when its module is imported, not at the first message.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack, get_args

from redrive import redact
from redrive.consume.consumer import PREFETCH_DEFAULT, Consumer, Order, Types, declared_types
from redrive.consume.event import Event
from redrive.errors import InvalidPayload, InvalidValue, NotFound, SettingsError
from redrive.events import Events
from redrive.message import Attempt, EnqueueOptions, NewMessage, Receipt
from redrive.policy import Breaker, InDoubt, OnDead, Policy, Rules, address_of, in_doubt_default
from redrive.ports import Record, Store, Transport
from redrive.ports.sources import Source
from redrive.produce import api, bounds
from redrive.schemas import Schema
from redrive.system import System
from redrive.transports.functions import Classify, FunctionTransport, Handler

if TYPE_CHECKING:
    from redrive.settings import Settings

HandlerType = TypeVar("HandlerType", bound=Handler)
ConsumerType = TypeVar("ConsumerType", bound=Callable[[Any, Event], Any])


CONCURRENCY_DEFAULT = 10
CONCURRENCY_MAX = 1000
GLOBAL_CONCURRENCY_MAX = 100_000
ERROR_TEXT_MIN = 100  # characters
RATE_MIN, RATE_MAX = 0.001, 100_000.0  # messages per second
TIMEOUT_SECONDS_DEFAULT = 30.0
TIMEOUT_SECONDS_MAX = 3000.0
CONSUMER_MARGIN_SECONDS = 15.0  # to end the handler and the transaction of a consumer
DESTINATIONS_MAX = 1000
NAME_MAX = 100
SPAN_SECONDS_MAX = 30 * 86_400.0
# Names of `redrive.recover.engine_duties`: a second duty of the same name would take every other turn of the first.
ENGINE_DUTIES: Final = frozenset(
    {"reap", "expire", "partitions", "forget_relays", "retire", "mend_lanes", "vacuum", "fold_failures", "replay"}
    | {"forget_inbox"}
)


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where messages of one name go, and by which rules.

    concurrency: sends at a time in one relay process. timeout_seconds: for one send; cut off after it, it is Unknown.
    A lookup and a validation before the send have as long each, whatever the others left of theirs; so a dispatch takes
    at most three times as long.
    global_concurrency: messages in flight over all relays, 1 to 100,000; None = no limit.
    rate: messages per second over all relays, 0.001 to 100,000; None = no limit. With limit keys: of each key.
    key_concurrency: of these sends at most so many to one limit key; None = half of `concurrency`, at least one.
    breaker: when it is taken to be down, and left alone; None = it has none.
    schema: the type of its payloads; None = any.
    staged: it answers `Advance`, so that a lookup has to say how a stage ended. With a lookup it must be declared.
    record: your writes inside the settle transaction; None = outcomes are settled in bulk.
    error_text_max: so many characters of a failure's text are kept, 100 to 65,536.
    """

    name: str
    transport: Transport
    rules: Rules = field(default_factory=Rules)
    concurrency: int = CONCURRENCY_DEFAULT
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
    record: Record | None = None
    global_concurrency: int | None = None
    rate: float | None = None
    breaker: Breaker | None = None
    schema: Schema | None = None
    staged: bool = False
    key_concurrency: int | None = None
    error_text_max: int = redact.TEXT_MAX

    @property
    def limit_key(self) -> Callable[[Attempt], str | None] | None:
        """Names the part of the destination that a message goes to; None where there are no parts, or money moves."""
        return None if self.rules.money else getattr(self.transport, "limit_key", None)

    @property
    def slots_per_key(self) -> int:
        return self.key_concurrency or max(self.concurrency // 2, 1)

    def __post_init__(self) -> None:
        bounds.name("destination", self.name)
        _check_whole(self.name, "concurrency", self.concurrency, CONCURRENCY_MAX)
        _check_whole(self.name, "key_concurrency", self.key_concurrency, CONCURRENCY_MAX, optional=True)
        _check_whole(self.name, "global_concurrency", self.global_concurrency, GLOBAL_CONCURRENCY_MAX, optional=True)
        _check_whole(self.name, "error_text_max", self.error_text_max, redact.LONG_TEXT_MAX, least=ERROR_TEXT_MIN)
        if self.rate is not None and (type(self.rate) not in (int, float) or not RATE_MIN <= self.rate <= RATE_MAX):
            allowed = f"between {RATE_MIN} and {RATE_MAX:.0f} per second, or None"
            raise InvalidValue(f"rate of {self.name!r} is {self.rate!r}; it must be {allowed}.")
        # What is free of charge while a destination is down is bounded by its breaker: neither without the other.
        object.__setattr__(self, "rules", replace(self.rules, has_breaker=self.breaker is not None))
        _check_span(self.name, "timeout_seconds", self.timeout_seconds, above_zero=True, most=TIMEOUT_SECONDS_MAX)
        _check_rules(self.name, self.rules, can_look_up=getattr(self.transport, "lookup", None) is not None)
        if self.record is not None and not _is_async(self.record):
            raise InvalidValue(f"record of {self.name!r} must be an `async def` function: it runs in our transaction.")


class DestinationOptions(TypedDict, total=False):
    """The keywords of `App.destination` and `App.transport`; `Destination` and `Rules` explain them.

    lookup_after_seconds: None = 0, and for money the timeout plus settlement_lag_seconds.
    address: where it sends and as whom; None = the transport's own, if it has one. Where money moves, a relay refuses
    another one while something is in doubt.
    """

    policy: Policy | None
    concurrency: int
    global_concurrency: int | None
    rate: float | None
    breaker: Breaker | bool
    timeout_seconds: float
    schema: Any
    record: Record | None
    in_doubt: InDoubt | None
    on_dead: OnDead
    lookup_after_seconds: float | None
    lookups_are_immediate: bool
    settlement_lag_seconds: float
    absent_is_final: bool
    token_ttl_seconds: float | None
    money: bool
    address: str | None
    staged: bool
    key_concurrency: int | None
    error_text_max: int


def _declared(name: str, transport: Transport, options: DestinationOptions) -> Destination:
    others: dict[str, Any] = dict(options)
    rules = {option: others.pop(option) for option in Rules.__dataclass_fields__ if option in others}
    schema, breaker, address = others.pop("schema", None), others.pop("breaker", False), rules.pop("address", None)
    return Destination(
        name=name,
        transport=transport,
        rules=rules_of(
            name,
            can_look_up=getattr(transport, "lookup", None) is not None,
            timeout_seconds=others.get("timeout_seconds", TIMEOUT_SECONDS_DEFAULT),
            address=getattr(transport, "address", None) if address is None else address_of(address),
            **rules,
        ),
        breaker=_breaker(name, breaker),
        schema=None if schema is None else Schema(name, schema),
        **others,
    )


def rules_of(
    name: str,
    *,
    can_look_up: bool,
    timeout_seconds: float,
    policy: Policy | None = None,
    in_doubt: InDoubt | None = None,
    lookup_after_seconds: float | None = None,
    **options: Any,
) -> Rules:
    """With the defaults that depend on others."""
    rules = Rules(policy=policy or Policy(), **options)
    doubt = in_doubt or in_doubt_default(
        can_look_up=can_look_up, money=rules.money, token_ttl_seconds=rules.token_ttl_seconds
    )
    asks = rules.money and doubt == "lookup"
    seconds = _lookup_after(name, lookup_after_seconds, rules, asks=asks, timeout_seconds=timeout_seconds)
    return replace(rules, in_doubt=doubt, lookup_after_seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class Duty:
    """Periodic work, once at a time over all machines: bounded, safe to run twice, says in a few words what it did."""

    name: str
    every_seconds: float
    run_once: Callable[[Store], Awaitable[object]]

    def __post_init__(self) -> None:
        bounds.name("duty", self.name)
        if not 0 < self.every_seconds <= SPAN_SECONDS_MAX:
            raise InvalidValue(
                f"every_seconds of duty {self.name!r} is {self.every_seconds};"
                f" it must be above 0 and at most {SPAN_SECONDS_MAX:.0f}."
            )


def _check_whole(
    name: str, option: str, value: int | None, most: int, *, optional: bool = False, least: int = 1
) -> None:
    if optional and value is None:
        return
    if type(value) is not int or not least <= value <= most:
        allowed = f"a whole number from {least} to {most}{', or None' if optional else ''}"
        raise InvalidValue(f"{option} of {name!r} is {value!r}; it must be {allowed}.")


def _check_rules(name: str, rules: Rules, *, can_look_up: bool) -> None:
    for option, choices in (("in_doubt", get_args(InDoubt)), ("on_dead", get_args(OnDead))):
        if getattr(rules, option) not in choices:
            raise InvalidValue(
                f"{option} of {name!r} is {getattr(rules, option)!r}; it must be one of {', '.join(choices)}."
            )
    if rules.in_doubt == "lookup" and not can_look_up:
        raise InvalidValue(f'{name!r} has in_doubt="lookup" but no lookup; give one, or choose "resend" or "hold".')
    if rules.money and rules.in_doubt == "resend" and rules.token_ttl_seconds is None:
        raise InvalidValue(
            f"{name!r} is money without token_ttl_seconds, and so is never sent twice:"
            f' in_doubt must be "lookup" or "hold".'
        )
    _check_span(name, "settlement_lag_seconds", rules.settlement_lag_seconds)
    _check_span(name, "lookup_after_seconds", rules.lookup_after_seconds)
    if rules.money and rules.in_doubt == "lookup":
        _check_immediate(name, rules.lookup_after_seconds, immediate=rules.lookups_are_immediate)
    if rules.token_ttl_seconds is not None:
        _check_span(name, "token_ttl_seconds", rules.token_ttl_seconds, above_zero=True)


def _lookup_after(name: str, seconds: float | None, rules: Rules, *, asks: bool, timeout_seconds: float) -> float:
    """The default: "absent" is believed at once; where money is asked about (`asks`) only when a request that has begun
    must have shown its effect.
    """
    immediate = rules.lookups_are_immediate
    if seconds is None:
        return 0.0 if immediate or not asks else timeout_seconds + rules.settlement_lag_seconds
    if immediate and seconds > 0:
        raise InvalidValue(
            f"{name!r} has lookups_are_immediate, and lookup_after_seconds={seconds}; only one of them can be true."
        )
    if asks:
        _check_immediate(name, seconds, immediate=immediate)
    return seconds


def _check_immediate(name: str, lookup_after_seconds: float, *, immediate: bool) -> None:
    if lookup_after_seconds == 0 and not immediate:
        raise InvalidValue(
            f'{name!r} moves money and has lookup_after_seconds=0: "absent" would be believed while the request may'
            " still take effect. Leave lookup_after_seconds out (timeout_seconds + settlement_lag_seconds), or say"
            " lookups_are_immediate=True where a lookup sees an effect at once."
        )


def _check_span(
    name: str, option: str, seconds: float, *, above_zero: bool = False, most: float = SPAN_SECONDS_MAX
) -> None:
    if not 0 <= seconds <= most or (above_zero and seconds == 0):
        low = "above 0" if above_zero else "at least 0"
        raise InvalidValue(f"{option} of {name!r} is {seconds}; it must be {low} and at most {most:.0f}.")


def _breaker(name: str, breaker: Breaker | bool) -> Breaker | None:
    if isinstance(breaker, bool):
        return Breaker() if breaker else None
    if not isinstance(breaker, Breaker):
        raise InvalidValue(f"breaker of {name!r} is a {type(breaker).__name__}; it must be True, False or a Breaker.")
    return breaker


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


class App:
    """The destinations and duties of one program."""

    def __init__(self) -> None:
        self.destinations: dict[str, Destination] = {}
        self.duties: dict[str, Duty] = {}
        self.systems: dict[str, System] = {}
        self.consumers: dict[str, Consumer] = {}

    def consumer(
        self,
        name: str,
        *,
        source: Source | Callable[[], Source],
        types: Types | None = None,
        order: Order | None = None,
        prefetch: int = PREFETCH_DEFAULT,
        **options: Unpack[DestinationOptions],
    ) -> Callable[[ConsumerType], ConsumerType]:
        """Declare a handler (`def` or `async def`) of the events that a broker delivers: `handler(conn, event)`.

        Its writes and enqueues on `conn` commit together with the inbox row; then the broker gets its acknowledgement.
        What it cannot process becomes a message to the destination of the same name, and a relay runs the same handler:
        the options are those of a destination. source: a Source, or a function that makes one in the worker.
        types: the accepted types of events, or a mapping of types to schemas of their data; None = all.
        order: "subject", or a function of the event that returns its ordering key; None = no order.
        prefetch: messages that a worker has in hand.
        """

        def declare(handler: ConsumerType) -> ConsumerType:
            from redrive.consume.transport import ConsumerTransport

            seconds = options.get("timeout_seconds", TIMEOUT_SECONDS_DEFAULT)
            one = Consumer(
                name=name,
                source=source,
                handler=handler,
                types=declared_types(name, types),
                order=order,
                timeout_seconds=seconds,
                concurrency=options.get("concurrency", CONCURRENCY_DEFAULT),
                prefetch=prefetch,
            )
            # The transport ends a handler that takes too long itself, and knows then that nothing happened.
            longer = min(seconds + CONSUMER_MARGIN_SECONDS, TIMEOUT_SECONDS_MAX)
            rules: DestinationOptions = {"in_doubt": "resend", **options, "timeout_seconds": longer}
            self.transport(name, ConsumerTransport(one), **rules)
            self.consumers[name] = one
            return handler

        return declare

    def destination(
        self,
        name: str,
        *,
        lookup: Handler | None = None,
        validate: Handler | None = None,
        classify: Classify | None = None,
        limit_key: Callable[[Attempt], str | None] | None = None,
        **options: Unpack[DestinationOptions],
    ) -> Callable[[HandlerType], HandlerType]:
        """Declare a handler (`def` or `async def`) for a destination. Returning means delivered.

        A returned value that is JSON is kept as the result; one that is not is a bug, and pauses the destination.
        limit_key: names the part of the destination that a message goes to, such as its tenant or its host; breaker,
        rests, rate and the bug breaker then apply to that part, and not to the others. Not for money.
        """

        def declare(handler: HandlerType) -> HandlerType:
            concurrency = options.get("concurrency", CONCURRENCY_DEFAULT)
            _check_whole(name, "concurrency", concurrency, CONCURRENCY_MAX)  # before that many threads are started
            for what, given in (("handler", handler), ("validate", validate), ("lookup", lookup)):
                if given is not None and not callable(given):
                    raise InvalidValue(f"{what} of {name!r} is a {type(given).__name__}; it must be a function.")
            transport = FunctionTransport(
                handler, validate=validate, lookup=lookup, classify=classify, limit_key=limit_key, threads=concurrency
            )
            self.transport(name, transport, **options)
            return handler

        return declare

    def transport(self, name: str, transport: Transport, **options: Unpack[DestinationOptions]) -> None:
        """Declare that messages for a destination go through a transport, such as `HttpTransport`."""
        self.add(_declared(name, transport, options))

    def add(self, destination: Destination) -> None:
        self._check_new(destination)
        if len(self.destinations) >= DESTINATIONS_MAX:
            raise InvalidValue(
                f"There are {DESTINATIONS_MAX} destinations already, which is the most one app can have."
            )
        self.destinations[destination.name] = destination

    def enqueue(self, conn: Any, destination: str, payload: Any, **options: Unpack[EnqueueOptions]) -> Receipt:
        """`redrive.enqueue` to a destination of this app: a name that it does not have and a payload that does not fit
        its schema are refused before anything is written. The payload may be of the schema's type.
        """
        return api.enqueue(conn, destination, self._written(destination, payload), **options)

    async def aenqueue(self, conn: Any, destination: str, payload: Any, **options: Unpack[EnqueueOptions]) -> Receipt:
        """`enqueue` for an asynchronous connection."""
        return await api.aenqueue(conn, destination, self._written(destination, payload), **options)

    def enqueue_many(self, conn: Any, messages: Iterable[NewMessage]) -> list[Receipt]:
        """`redrive.enqueue_many`, with the same refusals."""
        return api.enqueue_many(conn, self._all_written(messages))

    async def aenqueue_many(self, conn: Any, messages: Iterable[NewMessage]) -> list[Receipt]:
        """`enqueue_many` for an asynchronous connection."""
        return await api.aenqueue_many(conn, self._all_written(messages))

    def _all_written(self, messages: Iterable[NewMessage]) -> list[NewMessage]:
        written = []
        for place, message in enumerate(messages):
            try:
                written.append(replace(message, payload=self._written(message.destination, message.payload)))
            except (InvalidPayload, InvalidValue) as error:
                raise type(error)(f"messages[{place}]: {error}") from error
        return written

    def _written(self, destination: str, payload: Any) -> Any:
        if destination not in self.destinations:
            near = get_close_matches(str(destination), self.destinations, n=1)
            advice = (
                f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(sorted(self.destinations)) or 'none'}."
            )
            raise InvalidValue(f"Destination {destination!r} is not declared in this app; {advice}")
        schema = self.destinations[destination].schema
        return payload if schema is None else schema.write(payload)

    def duty(self, name: str, *, every_seconds: float) -> Callable[[Callable[[Store], Awaitable[Any]]], Any]:
        """Declare periodic work."""

        def declare(run_once: Callable[[Store], Awaitable[Any]]) -> Callable[[Store], Awaitable[Any]]:
            self.add_duty(Duty(name=name, every_seconds=every_seconds, run_once=run_once))
            return run_once

        return declare

    def add_duty(self, duty: Duty) -> None:
        self._check_new(duty)
        self.duties[duty.name] = duty

    def _check_new(self, declared: Destination | Duty) -> None:
        known = self.destinations if isinstance(declared, Destination) else self.duties
        if declared.name in known:
            raise InvalidValue(f"{type(declared).__name__} {declared.name!r} is declared twice.")
        if isinstance(declared, Duty) and declared.name in ENGINE_DUTIES:
            raise InvalidValue(f"The duty {declared.name!r} is the engine's own; choose another name.")

    def include(self, system: System) -> None:
        """Plug in a system: its destinations, consumers and duties become this app's."""
        if system.name in self.systems:
            raise InvalidValue(f"System {system.name!r} is included twice.")
        declared: list[Destination | Duty] = [*system.destinations, *system.duties]
        for one in declared:
            self._check_new(one)  # all of it, before anything is changed
        for destination in system.destinations:
            self.add(destination)
        for duty in system.duties:
            self.add_duty(duty)
        self.consumers |= {one.name: one for one in system.consumers}
        self.systems[system.name] = system

    def running(
        self,
        dsn: str | None = None,
        *,
        settings: Settings | None = None,
        only: Iterable[str] = (),
        name: str = "",
        events: Events | None = None,
    ) -> AbstractAsyncContextManager[None]:
        """A relay in this program, while an `async with` block runs; for a process of its own there is `redrive relay`.

        dsn: None = that of the settings. settings: None = the defaults; `Settings.load()` reads the environment and
        redrive.toml as `redrive relay` does; `log_*` is left to the program. only: these destinations, all unless
        named. name: shown in `status`.
        """
        from redrive.operate.observe.observing import observed
        from redrive.relay.in_process import running
        from redrive.relay.process import RelayProcess
        from redrive.settings import Settings

        settings, events = settings or Settings(), events or Events()
        if (dsn := dsn or settings.dsn) is None:
            raise SettingsError("No database is named.", next="app.running(dsn), or settings with a dsn")
        process = RelayProcess.of(settings, app=self, dsn=dsn, only=tuple(only), name=name)
        return running(process, events=events, beside=observed(events, process, settings))

    def only(self, names: Iterable[str]) -> dict[str, Destination]:
        """The destinations that a relay shall handle; all when none is named. An unknown one is refused."""
        wanted = list(names)
        unknown = [name for name in wanted if name not in self.destinations]
        if unknown:
            known = ", ".join(sorted(self.destinations)) or "none"
            raise NotFound(f"Destination {unknown[0]!r} is not declared in this app; it has: {known}.")
        return {name: self.destinations[name] for name in wanted} if wanted else dict(self.destinations)
