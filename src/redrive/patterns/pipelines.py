"""One message through several stages, each a destination with attempts, slots and a timeout of its own.

    pipeline = Pipeline("videos")

    @pipeline.stage("transcode", policy=Policy(attempts=5), timeout_seconds=600)
    def transcode(message: Attempt, results: Mapping[str, Any]) -> dict[str, str]:
        return {"file": encoder.run(results["import"]["file"])}

A stage that is done is never repeated by a failure of a later one: its result is in the archive, and a requeue or
replay begins at the stage that failed. The destinations are named `videos.import`, `videos.transcode`, …; the engine
carries the message from one to the next by `Advance`. docs/how-to/run-stages.md has a whole example.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar, Unpack

from redrive import (
    Advance,
    App,
    Attempt,
    CannotTell,
    Delivered,
    Destination,
    Found,
    InvalidValue,
    Receipt,
    Settlement,
    Terminal,
    Unknown,
)
from redrive.kit.transport import (
    FIRST_STAGE,
    Answer,
    Classify,
    DestinationOptions,
    EnqueueOptions,
    LookupAnswer,
    Record,
)

__all__ = ["STAGE_UNKNOWN", "Pipeline", "Results", "StageHandler", "stage_done"]

Results = Mapping[str, Any]
StageHandler = Callable[[Attempt, Results], Any]
HandlerType = TypeVar("HandlerType", bound=StageHandler)
Ending = Callable[[Any], Any]

STAGE_UNKNOWN: Final = "STAGE_UNKNOWN"  # a requeue or replay has named a stage that the pipeline does not have
_NOT_FOR_A_STAGE: Final[Mapping[str, str]] = {
    "money": "what moves money has one stage: enqueue it in the `record` of a stage, as a message of its own",
    "staged": "the pipeline says it itself",
    "schema": "all stages have the same payload: give it to Pipeline",
}


class Pipeline:
    """Stages, in the order in which they are declared.

    name: 1 to 100 characters together with a dot and the longest stage's name. schema: the type of the payload, the
    same in every stage; None = any. Declare every stage before `destinations()` is called.
    """

    def __init__(self, name: str, *, schema: Any = None) -> None:
        self.name = name
        self._schema = schema
        self._app = App()
        self._stages: list[str] = []
        self._is_complete = False

    def stage(
        self,
        name: str,
        *,
        lookup: StageHandler | None = None,
        validate: StageHandler | None = None,
        classify: Classify | None = None,
        limit_key: Callable[[Attempt], str | None] | None = None,
        **options: Unpack[DestinationOptions],
    ) -> Callable[[HandlerType], HandlerType]:
        """Declare the next stage: `handler(message, results)`, `def` or `async def`.

        What it returns is the result of the stage, a JSON value; of the last stage, it ends the message. It fails by
        raising `Retryable`, `Terminal` or `Unknown`, as any handler does. results: of the stages before, by name.
        lookup, validate: called with the same arguments; a lookup answers `Found(result=…)` or `Delivered(result=…)`
        with the result of the stage. record: your writes in the transaction that settles the stage (`stage_done`).
        The other options are those of `App.destination`.
        """

        def declare(handler: HandlerType) -> HandlerType:
            self._declare(name, handler, lookup, validate, options, classify=classify, limit_key=limit_key)
            return handler

        return declare

    def removed(self, name: str) -> None:
        """Declare, at its old place, a stage that no longer exists: messages that wait there go on to the next one.

        Without it such messages stay where they are, and `redrive status` shows them as not handled.
        """
        self._declare(name, _nothing, None, None, {})

    def destinations(self) -> Sequence[Destination]:
        """For `App.add`, or the `destinations` of a `System`. No stage can be declared afterwards."""
        self._first()
        self._is_complete = True
        return list(self._app.destinations.values())

    def destination_name(self, stage: str) -> str:
        """Where the messages of a stage wait, such as for `redrive destinations pause`."""
        return f"{self.name}.{stage}"

    def start(self, conn: Any, payload: Any, **options: Unpack[EnqueueOptions]) -> Receipt:
        """Enqueue a message to the first stage, in the transaction of `conn`; the options are those of `enqueue`."""
        return self._app.enqueue(conn, self.destination_name(self._first()), payload, **options)

    async def astart(self, conn: Any, payload: Any, **options: Unpack[EnqueueOptions]) -> Receipt:
        """`start` for an asynchronous connection."""
        return await self._app.aenqueue(conn, self.destination_name(self._first()), payload, **options)

    def results(self, message: Attempt) -> Results:
        """The latest result of each stage that the message has behind it, by name. An edit keeps them."""
        return MappingProxyType(
            {self._named(e.stage): e.result for e in message.history() if e.settlement == "advance"}
        )

    # declaring

    def _declare(
        self,
        name: str,
        handler: StageHandler,
        lookup: StageHandler | None,
        validate: StageHandler | None,
        options: DestinationOptions,
        **transport: Any,
    ) -> None:
        self._check(name, options)
        given: DestinationOptions = {**options, "staged": lookup is not None, "schema": self._schema}
        if (record := options.get("record")) is not None:
            given["record"] = self._recorded(name, record)
        self._app.destination(
            self.destination_name(name),
            lookup=lookup and self._wrapped(name, lookup, self._found, self._another_lookup),
            validate=validate and self._wrapped(name, validate, _as_it_is, self._another_validate),
            **transport,
            **given,
        )(self._wrapped(name, handler, self._done, self._another))
        self._stages.append(name)

    def _check(self, name: str, options: Mapping[str, Any]) -> None:
        if self._is_complete:
            raise InvalidValue(
                f"Stage {name!r} of {self.name!r} comes too late: its destinations were asked for already."
            )
        if name == FIRST_STAGE and self._stages:
            raise InvalidValue(f"A stage behind others cannot be named {name!r}: so the engine names the first one.")
        for option, why in _NOT_FOR_A_STAGE.items():
            if options.get(option):
                raise InvalidValue(f"{option} is not for stage {name!r} of {self.name!r}: {why}.")
        record = options.get("record")
        if record is not None and not _is_async(record):
            raise InvalidValue(f"record of {name!r} must be an `async def` function: it runs in our transaction.")

    def _first(self) -> str:
        if not self._stages:
            raise InvalidValue(f"The pipeline {self.name!r} has no stages.")
        return self._stages[0]

    # the engine's names: its first stage is always `first`

    def _named(self, engine_stage: str) -> str:
        return self._stages[0] if engine_stage == FIRST_STAGE else engine_stage

    def _advance(self, stage: str, result: Any) -> Advance:
        engine_stage = FIRST_STAGE if stage == self._stages[0] else stage
        return Advance(engine_stage, result, self.destination_name(stage))

    def _is_here(self, stage: str, message: Attempt) -> bool:
        return message.stage == (FIRST_STAGE if stage == self._stages[0] else stage)

    def _before(self, stage: str, message: Attempt) -> Results:
        known = self.results(message)
        return MappingProxyType(
            {name: known[name] for name in self._stages[: self._stages.index(stage)] if name in known}
        )

    # what a requeue or a replay at another stage leads to: the message comes to the destination at which it failed

    def _another(self, stage: str, message: Attempt) -> Answer | None:
        if self._is_here(stage, message):
            return None
        wanted = self._named(message.stage)
        if wanted not in self._stages:
            return Terminal(STAGE_UNKNOWN, f"The pipeline has the stages {', '.join(self._stages)}.")
        return self._advance(wanted, self.results(message).get(wanted))

    def _another_lookup(self, stage: str, message: Attempt) -> Answer | LookupAnswer | None:
        another = self._another(stage, message)
        return CannotTell(STAGE_UNKNOWN) if isinstance(another, Terminal) else another

    def _another_validate(self, stage: str, message: Attempt) -> object:
        return None if self._is_here(stage, message) else _SKIPPED

    # what a handler or a lookup has answered, as the engine takes it

    def _wrapped(
        self,
        stage: str,
        function: StageHandler,
        end: Callable[[str, Any], Any],
        another: Callable[[str, Attempt], Any],
    ) -> Callable[[Attempt], Any]:
        async def ended(answer: Awaitable[Any]) -> Any:
            try:
                return end(stage, await answer)
            except (LookupAnswer, Delivered, Advance) as raised:
                return end(stage, raised)

        def run(message: Attempt) -> Any:
            instead = another(stage, message)
            if instead is not None:
                return None if instead is _SKIPPED else instead
            try:
                answer = function(message, self._before(stage, message))
            except (LookupAnswer, Delivered, Advance) as raised:
                answer = raised
            return ended(answer) if inspect.isawaitable(answer) else end(stage, answer)

        async def arun(message: Attempt) -> Any:
            answer = run(message)
            return await answer if inspect.isawaitable(answer) else answer

        return arun if _is_async(function) else run

    def _done(self, stage: str, answer: Any) -> Any:
        if isinstance(answer, Advance):
            return Unknown(
                "RETURN_INVALID", "A stage returns its result; the pipeline knows which stage is next.", bug=True
            )
        if isinstance(answer, Answer) and not isinstance(answer, Delivered):
            return answer
        if stage == self._stages[-1]:
            return answer
        following = self._stages[self._stages.index(stage) + 1]
        return self._advance(following, answer.result if isinstance(answer, Delivered) else answer)

    def _found(self, stage: str, answer: Any) -> Any:
        """`Found` without a result does not say with what the stage ended; the engine then holds the message."""
        if isinstance(answer, Found) and (answer.result is not None or stage == self._stages[-1]):
            return self._done(stage, Delivered(answer.reference, answer.result))
        return self._done(stage, answer) if isinstance(answer, Delivered) else answer

    def _recorded(self, stage: str, record: Record) -> Record:
        async def recorded(conn: Any, message: Attempt, settlement: Settlement) -> None:
            if self._is_here(stage, message):
                await record(conn, message, settlement)

        return recorded


_SKIPPED: Final = object()  # nothing is validated for another stage


def stage_done(settlement: Settlement) -> bool:
    """Whether a `record` was called because its stage is done. Its result is `settlement.answer.result`."""
    return settlement.stage is not None or settlement.closed == "delivered"


def _nothing(_: Attempt, __: Results) -> None:
    return None


def _as_it_is(_: str, answer: Any) -> Any:
    return answer


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
