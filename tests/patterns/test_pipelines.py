"""A pipeline: stages with budgets of their own, results that stay, and a replay at the stage that failed (G-12)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import psycopg
import pytest

import redrive
from redrive.app import App
from redrive.message import MessageId
from redrive.operate.desk import workflow
from redrive.operate.desk.causes import Cause
from redrive.patterns.pipelines import Pipeline, Results, stage_done
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who
from tests.relay.harness import Running, relaying, states

pytestmark = pytest.mark.req("G-12")

AT_ONCE = redrive.Backoff(initial_seconds=0)
FIVE = redrive.Policy(attempts=5, backoff=AT_ONCE)
BY: dict[str, Any] = {"actor": "ada", "reason": "mended"}


class Videos:
    """import, transcode, publish; each counts its runs, and fails as long as it is told to."""

    def __init__(self, app: App, **publish: Any) -> None:
        self.runs: Counter[str] = Counter()
        self.failing: dict[str, BaseException] = {}
        self.seen: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, set[str]] = {}
        self.returns: dict[str, Any] = {"import": {"file": "raw.mov"}, "transcode": {"file": "small.mp4"}, "publish": 1}
        self.pipeline = Pipeline("videos")
        for name, options in (("import", {}), ("transcode", {}), ("publish", publish)):
            self._declare(name, **options)
        for destination in self.pipeline.destinations():
            app.add(destination)

    def _declare(self, name: str, **options: Any) -> None:
        given = {"policy": FIVE, **options}

        @self.pipeline.stage(name, **given)
        def run(message: redrive.Attempt, results: Results) -> Any:
            self.runs[name] += 1
            self.seen[name] = dict(results)
            self.tokens.setdefault(name, set()).add(message.token)
            if name in self.failing:
                raise self.failing[name]
            return self.returns[name]


def start(dsn: str, pipeline: Pipeline, payload: Any = None, **options: Any) -> MessageId:
    with psycopg.connect(dsn) as conn:
        return pipeline.start(conn, payload or {"video": 7}, **options).id


async def parked(relay: Running, store: PostgresStore, count: int = 1) -> None:
    await relay.seen.until("message.parked", count=count)
    assert sum((await states(store)).values()) >= 1


async def parked_row(store: PostgresStore) -> tuple[Any, ...]:
    (row,) = await store.rows("SELECT reason, destination, stage, error_class, spent FROM redrive.parked", [])
    return tuple(row)


async def test_the_stages_run_one_after_the_other_and_each_has_the_results_of_those_before(
    database: str, store: PostgresStore, app: App
) -> None:
    videos = Videos(app)
    id = start(database, videos.pipeline, key="video:7")
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered")
    assert videos.seen == {
        "import": {},
        "transcode": {"import": {"file": "raw.mov"}},
        "publish": {"import": {"file": "raw.mov"}, "transcode": {"file": "small.mp4"}},
    }
    rows = [(entry.stage, entry.settlement, entry.result) for entry in await store.history(id)]
    assert rows == [
        ("first", "advance", {"file": "raw.mov"}),
        ("transcode", "advance", {"file": "small.mp4"}),
        ("publish", "close", 1),
    ]
    assert start(database, videos.pipeline, key="video:7") == id


async def test_five_failures_of_the_third_stage_leave_the_first_two_at_one_attempt_each(
    database: str, store: PostgresStore, app: App
) -> None:
    videos = Videos(app)
    videos.failing["publish"] = redrive.Retryable("HTTP_503")
    start(database, videos.pipeline)
    async with relaying(store, app) as relay:
        await parked(relay, store)
    assert videos.runs == {"import": 1, "transcode": 1, "publish": 5}
    assert await parked_row(store) == ("dead", "videos.publish", "publish", "HTTP_503", 5)


async def test_each_stage_has_a_budget_of_its_own(database: str, store: PostgresStore, app: App) -> None:
    videos = Videos(app, policy=redrive.Policy(attempts=2, backoff=AT_ONCE))
    videos.failing["import"] = redrive.Retryable("HTTP_503")
    start(database, videos.pipeline)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.retried", count=4)
        await relay.seen.that(lambda: videos.runs["import"] == 5, what="five attempts")
        await parked(relay, store)
        del videos.failing["import"]
        videos.failing["publish"] = redrive.Retryable("HTTP_503")
        (row,) = await store.rows("SELECT id FROM redrive.parked", [])
        await store.requeue(row[0], **BY)
        await parked(relay, store, 2)
    assert videos.runs == {"import": 6, "transcode": 1, "publish": 2}


async def test_a_requeue_begins_at_the_failed_stage_with_the_results_and_the_token_that_it_had(
    database: str, store: PostgresStore, app: App
) -> None:
    videos = Videos(app)
    videos.failing["publish"] = redrive.Terminal("HTTP_422")
    id = start(database, videos.pipeline)
    async with relaying(store, app) as relay:
        await parked(relay, store)
        videos.failing.clear()
        await store.requeue(id, **BY)
        await relay.seen.until("message.delivered")
    assert videos.runs == {"import": 1, "transcode": 1, "publish": 2}
    assert videos.seen["publish"]["transcode"] == {"file": "small.mp4"}
    assert {name: len(tokens) for name, tokens in videos.tokens.items()} == dict.fromkeys(videos.runs, 1)


@pytest.mark.parametrize(
    ("stage", "runs"),
    [
        ("first", {"import": 2, "transcode": 2, "publish": 2}),
        ("import", {"import": 2, "transcode": 2, "publish": 2}),
        ("transcode", {"import": 1, "transcode": 2, "publish": 2}),
        ("publish", {"import": 1, "transcode": 1, "publish": 2}),
    ],
)
async def test_a_requeue_may_name_an_earlier_stage_and_uses_its_token_again(
    database: str, store: PostgresStore, app: App, stage: str, runs: dict[str, int]
) -> None:
    videos = Videos(app)
    videos.failing["publish"] = redrive.Terminal("HTTP_422")
    id = start(database, videos.pipeline)
    async with relaying(store, app) as relay:
        await parked(relay, store)
        videos.failing.clear()
        await store.requeue(id, stage=stage, **BY)
        await relay.seen.until("message.delivered")
    assert videos.runs == runs
    assert {name: len(tokens) for name, tokens in videos.tokens.items()} == dict.fromkeys(runs, 1)
    assert videos.seen["publish"] == {"import": {"file": "raw.mov"}, "transcode": {"file": "small.mp4"}}


async def test_a_stage_that_does_not_exist_parks_the_message_and_runs_nothing(
    database: str, store: PostgresStore, app: App
) -> None:
    videos = Videos(app)
    videos.failing["publish"] = redrive.Terminal("HTTP_422")
    id = start(database, videos.pipeline)
    async with relaying(store, app) as relay:
        await parked(relay, store)
        videos.failing.clear()
        await store.requeue(id, stage="translate", **BY)
        await parked(relay, store, 2)
    assert videos.runs == {"import": 1, "transcode": 1, "publish": 1}
    assert (await parked_row(store))[2:4] == ("translate", "STAGE_UNKNOWN")


async def test_results_are_there_after_more_attempts_than_the_history_shows(
    database: str, store: PostgresStore, app: App
) -> None:
    videos = Videos(app, policy=redrive.Policy(attempts=61, backoff=AT_ONCE))
    videos.failing["publish"] = redrive.Retryable("HTTP_503")
    start(database, videos.pipeline)
    async with relaying(store, app) as relay:
        await parked(relay, store)
    assert videos.runs["publish"] == 61
    assert videos.seen["publish"] == {"import": {"file": "raw.mov"}, "transcode": {"file": "small.mp4"}}


async def test_an_edit_of_the_payload_keeps_the_results_of_the_stages_before(
    database: str, store: PostgresStore, app: App
) -> None:
    videos = Videos(app)
    videos.failing["publish"] = redrive.Terminal("HTTP_422")
    id = start(database, videos.pipeline)
    who = Who(actor="ada", reason="mended")
    async with relaying(store, app) as relay:
        await parked(relay, store)
        videos.failing.clear()
        await workflow.triage(store, [id], Cause.DATA, who)
        await workflow.edit(store, [id], [{"op": "add", "path": "/title", "value": "Seven"}], who)
        await store.requeue(id, **BY)
        await relay.seen.until("message.delivered")
    assert videos.runs == {"import": 1, "transcode": 1, "publish": 2}
    assert videos.seen["publish"] == {"import": {"file": "raw.mov"}, "transcode": {"file": "small.mp4"}}
    assert [entry.version for entry in await store.history(id) if entry.settlement == "close"] == [2]


@pytest.mark.parametrize("stage", ["import", "publish"])
@pytest.mark.parametrize(
    ("returned", "code"), [({"a", "set"}, "RETURN_INVALID"), (redrive.Advance("publish"), "RETURN_INVALID")]
)
async def test_a_result_that_cannot_be_kept_parks_the_message_and_starts_no_later_stage(
    database: str, store: PostgresStore, app: App, stage: str, returned: Any, code: str
) -> None:
    videos = Videos(app)
    videos.returns[stage] = returned
    start(database, videos.pipeline)
    async with relaying(store, app) as relay:
        await parked(relay, store)
    assert videos.runs[stage] == 1
    assert videos.runs["transcode"] == (stage == "publish")
    assert (await parked_row(store))[1:4] == (
        f"videos.{stage}",
        "first" if stage == "import" else stage,
        code,
    )


async def test_a_delivered_that_is_raised_ends_the_stage_and_not_the_message(
    database: str, store: PostgresStore, app: App
) -> None:
    videos = Videos(app)
    videos.failing["transcode"] = redrive.Delivered(result={"file": "other.mp4"})
    start(database, videos.pipeline)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered")
    assert videos.seen["publish"]["transcode"] == {"file": "other.mp4"}


async def test_handlers_may_be_async_and_hide_it(database: str, store: PostgresStore, app: App) -> None:
    pipeline = Pipeline("p")
    seen: list[Any] = []

    async def later(results: Results) -> Any:
        await asyncio.sleep(0)
        return {"n": len(results) + 1}

    @pipeline.stage("one")
    async def one(message: redrive.Attempt, results: Results) -> Any:
        return await later(results)

    @pipeline.stage("two")
    def two(message: redrive.Attempt, results: Results) -> Any:
        return later(results)

    @pipeline.stage("three")
    def three(message: redrive.Attempt, results: Results) -> None:
        seen.append(dict(results))

    for destination in pipeline.destinations():
        app.add(destination)
    async with await psycopg.AsyncConnection.connect(database) as conn:
        await pipeline.astart(conn, {})
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered")
    assert seen == [{"one": {"n": 1}, "two": {"n": 2}}]


class Asked:
    """Two stages; the effect of the first is there, its reply was lost, and a lookup answers as told."""

    def __init__(self, app: App, found: Any) -> None:
        self.sent: Counter[str] = Counter()
        self.results: dict[str, Any] = {}
        self.pipeline = Pipeline("asked")

        def look_up(message: redrive.Attempt, results: Results) -> Any:
            if isinstance(found, BaseException) and self.raises:
                raise found
            return found

        self.raises = False

        @self.pipeline.stage("upload", lookup=look_up, policy=FIVE)
        async def upload(message: redrive.Attempt, results: Results) -> Any:
            self.sent["upload"] += 1
            raise redrive.Unknown("REPLY_LOST")

        @self.pipeline.stage("publish", policy=FIVE)
        async def publish(message: redrive.Attempt, results: Results) -> None:
            self.sent["publish"] += 1
            self.results = dict(results)

        for destination in self.pipeline.destinations():
            app.add(destination)


@pytest.mark.req("G-13")
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize(
    ("found", "result"),
    [
        (redrive.Found(result={"id": 3}), {"id": 3}),
        (redrive.Delivered(result={"id": 3}), {"id": 3}),
        (redrive.Delivered(), None),
    ],
)
async def test_what_a_lookup_finds_ends_the_stage_and_goes_on_to_the_next(
    database: str, store: PostgresStore, app: App, found: Any, result: Any, raises: bool
) -> None:
    asked = Asked(app, found)
    asked.raises = raises
    start(database, asked.pipeline)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered")
    assert asked.sent == {"upload": 1, "publish": 1}
    assert asked.results == {"upload": result}


@pytest.mark.req("G-13")
async def test_found_without_a_result_is_held_and_does_not_skip_the_stages_behind(
    database: str, store: PostgresStore, app: App
) -> None:
    asked = Asked(app, redrive.Found())
    start(database, asked.pipeline)
    async with relaying(store, app) as relay:
        await parked(relay, store)
    assert asked.sent == {"upload": 1}
    assert (await parked_row(store))[:4] == ("held", "asked.upload", "first", "FOUND_WITHOUT_OUTCOME")


async def test_record_writes_rows_and_enqueues_in_the_transaction_that_settles_its_stage(
    database: str, store: PostgresStore, app: App
) -> None:
    pipeline = Pipeline("reports")
    broken = [True]

    async def note(conn: Any, message: redrive.Attempt, settlement: redrive.Settlement) -> None:
        if not stage_done(settlement):
            return
        assert settlement.answer is not None
        await redrive.aenqueue(conn, "elsewhere", settlement.answer.result)  # type: ignore[attr-defined]
        if broken[0]:
            raise LookupError("not yet")

    @pipeline.stage("read", record=note, policy=FIVE)
    async def read(message: redrive.Attempt, results: Results) -> Any:
        return {"lines": 3}

    @pipeline.stage("tell", record=note, policy=FIVE)
    async def tell(message: redrive.Attempt, results: Results) -> Any:
        return dict(results)

    for destination in pipeline.destinations():
        app.add(destination)
    id = start(database, pipeline)
    count = "SELECT count(*) FROM redrive.message WHERE destination = 'elsewhere'"
    async with relaying(store, app) as relay:
        await relay.seen.until("message.parked", reason="unrecorded")
        assert (await store.rows(count, []))[0][0] == 0
        broken[0] = False
        await store.repair(id, **BY)
        await relay.seen.until("message.delivered")
    bodies = await store.rows("SELECT body FROM redrive.message WHERE destination = 'elsewhere' ORDER BY id", [])
    assert [bytes(row[0]) for row in bodies] == [b'{"lines":3}', b'{"read":{"lines":3}}']


async def test_record_is_not_called_for_a_message_that_only_passes_through(
    database: str, store: PostgresStore, app: App
) -> None:
    pipeline = Pipeline("p")
    recorded: list[str] = []
    fails = [True]

    async def note(conn: Any, message: redrive.Attempt, settlement: redrive.Settlement) -> None:
        recorded.append(f"{message.stage} {settlement.kind.value}")

    @pipeline.stage("one", policy=FIVE)
    async def one(message: redrive.Attempt, results: Results) -> None: ...

    @pipeline.stage("two", policy=FIVE, record=note)
    async def two(message: redrive.Attempt, results: Results) -> None:
        if fails[0]:
            raise redrive.Terminal("NO")

    for destination in pipeline.destinations():
        app.add(destination)
    id = start(database, pipeline)
    async with relaying(store, app) as relay:
        await parked(relay, store)
        fails[0] = False
        await store.requeue(id, stage="one", **BY)
        await relay.seen.until("message.delivered")
    assert recorded == ["two park", "two close"]


async def test_a_message_at_a_removed_stage_goes_on_to_the_next(database: str, store: PostgresStore, app: App) -> None:
    before, later = App(), Videos(app)
    old = Videos(before)
    old.failing["transcode"] = redrive.Retryable("HTTP_503")
    start(database, old.pipeline)
    async with relaying(store, before) as relay:
        await relay.seen.until("message.retried")
    pipeline, seen = Pipeline("videos"), []

    @pipeline.stage("import")
    async def fetch(message: redrive.Attempt, results: Results) -> None: ...

    pipeline.removed("transcode")

    @pipeline.stage("publish")
    async def publish(message: redrive.Attempt, results: Results) -> None:
        seen.append(dict(results))

    assert later.runs == {}
    after = App()
    for destination in pipeline.destinations():
        after.add(destination)
    async with relaying(store, after) as relay:
        await relay.seen.until("message.delivered")
    assert seen == [{"import": {"file": "raw.mov"}, "transcode": None}]


async def test_a_message_at_a_stage_that_was_only_taken_out_stays_and_is_not_handled(
    database: str, store: PostgresStore, app: App
) -> None:
    old = Videos(app)
    old.failing["transcode"] = redrive.Retryable("HTTP_503")
    start(database, old.pipeline)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.retried")
    pipeline = Pipeline("videos")
    pipeline.stage("import")(lambda *_: None)
    pipeline.stage("publish")(lambda *_: None)
    after = App()
    for destination in pipeline.destinations():
        after.add(destination)
    start(database, pipeline, key="neighbour")
    async with relaying(store, after) as relay:
        await relay.seen.until("message.delivered")
    assert await states(store) == {"delivered": 1, "pending": 1}


async def test_validate_runs_before_its_stage_and_not_for_another_one(
    database: str, store: PostgresStore, app: App
) -> None:
    pipeline = Pipeline("p")
    seen: list[tuple[str, dict[str, Any]]] = []
    fails = [True]

    def check(message: redrive.Attempt, results: Results) -> None:
        seen.append((message.stage, dict(results)))
        if fails[0]:
            raise redrive.Terminal("TOO_LONG")

    @pipeline.stage("one")
    async def one(message: redrive.Attempt, results: Results) -> Any:
        return 1

    @pipeline.stage("two", validate=check)
    async def two(message: redrive.Attempt, results: Results) -> None: ...

    for destination in pipeline.destinations():
        app.add(destination)
    id = start(database, pipeline)
    async with relaying(store, app) as relay:
        await parked(relay, store)
        fails[0] = False
        await store.requeue(id, stage="one", **BY)
        await relay.seen.until("message.delivered")
    assert seen == [("two", {"one": 1}), ("two", {"one": 1})]


def _stage(pipeline: Pipeline, name: str, **options: Any) -> None:
    pipeline.stage(name, **options)(lambda *_: None)


@pytest.mark.req("G-19")
def test_a_wrong_declaration_is_refused_where_it_is_made() -> None:
    pipeline = Pipeline("p")
    with pytest.raises(redrive.InvalidValue, match="no stages"):
        pipeline.destinations()
    for option in ({"money": True}, {"staged": True}, {"schema": int}):
        with pytest.raises(redrive.InvalidValue, match=f"{next(iter(option))} is not for stage 'one'"):
            _stage(pipeline, "one", **option)
    with pytest.raises(redrive.InvalidValue, match="async def"):
        _stage(pipeline, "one", record=lambda *_: None)
    _stage(pipeline, "one")
    with pytest.raises(redrive.InvalidValue, match="twice"):
        _stage(pipeline, "one")
    with pytest.raises(redrive.InvalidValue, match="cannot be named 'first'"):
        _stage(pipeline, "first")
    with pytest.raises(redrive.InvalidValue, match="100"):
        _stage(pipeline, "s" * 100)
    assert [destination.name for destination in pipeline.destinations()] == ["p.one"]
    with pytest.raises(redrive.InvalidValue, match="too late"):
        _stage(pipeline, "two")


def test_the_payload_is_checked_by_the_schema_before_anything_is_written(database: str) -> None:
    pipeline = Pipeline("p", schema=dict[str, int])
    _stage(pipeline, "one")
    with psycopg.connect(database) as conn, pytest.raises(redrive.InvalidPayload):
        pipeline.start(conn, {"video": "seven"})
