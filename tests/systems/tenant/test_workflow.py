"""Producers of `examples/workflow`: rows and events in one transaction, each event once by its key (T-10)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from redrive.systems.tenant import Added
from tests.support.databases import fresh_database
from tests.support.racing import Connection, together, value
from tests.support.waiting import wait_until
from tests.systems.tenant.orm import a_tenant, events_of, rows

pytestmark = pytest.mark.req("T-10")

EXAMPLE = Path(__file__).parents[3] / "examples" / "workflow"
MODULES = ("database", "definitions", "event_types", "instances", "publish", "tasks")
AT = datetime(2030, 1, 1, 12, 0, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def workflow() -> Iterator[Any]:
    """The example's modules."""
    before = [*sys.path]
    sys.path.insert(0, str(EXAMPLE))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(f"workflow.{name}") for name in MODULES})
    finally:
        sys.path[:] = before


@pytest.fixture(scope="module")
def dsn(server_dsn: str, template: str, workflow: Any) -> Iterator[str]:
    with fresh_database(server_dsn, template=template) as dsn:
        with psycopg.connect(dsn) as conn:
            workflow.database.create_tables(conn)
        yield dsn


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn) as conn:
        yield conn


@pytest.fixture
def tenant() -> str:
    return a_tenant()


@pytest.fixture
def instance(workflow: Any, conn: Connection, tenant: str) -> UUID:
    """A running one, committed."""
    id = uuid4()
    workflow.definitions.publish_definition(conn, tenant, "approval", 1)
    workflow.instances.start_instance(conn, tenant, id, "approval", 1)
    conn.commit()
    return id


@pytest.mark.seed("003", "PublishDefinition_Event_Uses_Deterministic_IdempotencyKey")
def test_a_definition_that_is_published_twice_is_one_event_with_the_key_of_its_recipe(
    workflow: Any, conn: Connection, dsn: str, tenant: str
) -> None:
    first, second = (workflow.definitions.publish_definition(conn, tenant, "approval", 3) for _ in range(2))
    conn.commit()
    assert first.key == workflow.event_types.TYPES.key(
        tenant, "DefinitionPublished", {"entity": "approval", "version": "3.1"}
    )
    assert (second.key, second.id, first.already_existed, second.already_existed) == (first.key, first.id, False, True)
    assert events_of(dsn, tenant) == [first.id]


@pytest.mark.seed("003", "PublishInstanceForceCancelled_Events_Have_UniqueKeys")
def test_force_cancelled_instances_have_keys_of_their_own(workflow: Any, conn: Connection, tenant: str) -> None:
    publish = workflow.publish.instance_force_cancelled
    ids = [uuid4() for _ in range(5)]
    added = [publish(conn, tenant, id, request, "ada") for id in ids for request in ("request-1", "request-2")]
    assert len({one.key for one in added}) == len({one.id for one in added}) == 10
    assert publish(conn, tenant, ids[0], "request-1", "ada").key == added[0].key


PUBLISHED = {
    "definition_published": ("approval", 1, 1),
    "definition_unpublished": ("approval", 1, 2),
    "instance_started": (UUID(int=1), "approval", 1),
    "instance_completed": (UUID(int=2),),
    "instance_failed": (UUID(int=3), "no budget"),
    "instance_force_cancelled": (UUID(int=4), "request-1", "ada"),
    "gateway_decided": (UUID(int=5), "amount", "high", AT),
    "task_created": (UUID(int=6), UUID(int=1), "approve"),
    "task_claimed": (UUID(int=7), UUID(int=1), 2, "ada"),
    "task_completed": (UUID(int=8), UUID(int=1)),
    "task_cancelled": (UUID(int=9), UUID(int=1)),
}
# What is another event: another version, span, correlation or entity.
OTHER = {
    "definition_published": ("approval", 1, 3),
    "definition_unpublished": ("approval", 2, 2),
    "instance_started": (UUID(int=11), "approval", 1),
    "instance_completed": (UUID(int=12),),
    "instance_failed": (UUID(int=13), "no budget"),
    "instance_force_cancelled": (UUID(int=4), "request-2", "ada"),
    "gateway_decided": (UUID(int=5), "amount", "high", AT + timedelta(seconds=60)),
    "task_created": (UUID(int=16), UUID(int=1), "approve"),
    "task_claimed": (UUID(int=7), UUID(int=1), 4, "ada"),
    "task_completed": (UUID(int=18), UUID(int=1)),
    "task_cancelled": (UUID(int=19), UUID(int=1)),
}


def test_every_event_type_has_a_publisher(workflow: Any) -> None:
    assert {name.replace("_", "") for name in PUBLISHED} == {one.name.lower() for one in workflow.event_types.TYPES}
    assert PUBLISHED.keys() == OTHER.keys()


@pytest.mark.seed("003", "DeterministicKey_SameInput_SameGuid")
@pytest.mark.seed("003", "DeterministicKey_SameInputs_SameGuid")
@pytest.mark.seed("003", "DeterministicKey_DifferentInput_DifferentGuid")
@pytest.mark.seed("003", "DeterministicKey_DifferentInputs_DifferentGuid")
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_publisher_makes_the_same_key_of_the_same_event_and_another_of_another(
    workflow: Any, conn: Connection, tenant: str, name: str
) -> None:
    publish = getattr(workflow.publish, name)
    first, again = publish(conn, tenant, *PUBLISHED[name]), publish(conn, tenant, *PUBLISHED[name])
    assert (again.key, again.already_existed) == (first.key, True)
    assert publish(conn, tenant, *OTHER[name]).key != first.key
    assert publish(conn, a_tenant(), *PUBLISHED[name]).key != first.key
    own = uuid4()
    given = publish(conn, tenant, *PUBLISHED[name], idempotency_key=own)
    assert (given.key, given.already_existed) == (own, False)


def test_a_second_publisher_waits_for_the_first_and_has_its_event(workflow: Any, dsn: str, tenant: str) -> None:
    publish = workflow.definitions.publish_definition

    def second() -> Added:
        with psycopg.connect(dsn) as conn:
            added: Added = publish(conn, tenant, "approval", 1)
            return added

    with (
        psycopg.connect(dsn) as first,
        psycopg.connect(dsn, autocommit=True) as observer,
        ThreadPoolExecutor() as pool,
    ):
        with first.transaction():
            mine = publish(first, tenant, "approval", 1)
            late = pool.submit(second)
            wait_until(lambda: has_waiters(observer, first), seconds=60, what="the second publisher at the first's row")
        added = late.result(60)
    assert (added.id, added.key, added.already_existed) == (mine.id, mine.key, True)
    assert events_of(dsn, tenant) == [mine.id]


def has_waiters(observer: Connection, holder: Connection) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
    return bool(value(observer, query, holder.info.backend_pid))


def test_publishers_that_race_on_new_rows_leave_one_event(workflow: Any, dsn: str, tenant: str) -> None:
    added = together(
        dsn, [lambda conn: workflow.definitions.publish_definition(conn, tenant, "approval", 1) for _ in range(8)]
    )
    assert sorted(one.already_existed for one in added) == [False] + [True] * 7
    assert events_of(dsn, tenant) == [added[0].id]
    assert rows(dsn, "SELECT changes FROM workflow_definition WHERE tenant = %s", tenant) == [(1,)]


def test_a_producer_that_rolls_back_leaves_neither_row_nor_event(
    workflow: Any, conn: Connection, dsn: str, tenant: str
) -> None:
    with conn.transaction(force_rollback=True):
        lost = workflow.definitions.publish_definition(conn, tenant, "approval", 1)
    assert events_of(dsn, tenant) == []
    assert rows(dsn, "SELECT 1 FROM workflow_definition WHERE tenant = %s", tenant) == []
    kept = workflow.definitions.publish_definition(conn, tenant, "approval", 1)
    conn.commit()
    assert (kept.key, kept.already_existed) == (lost.key, False)
    assert events_of(dsn, tenant) == [kept.id]


def test_a_refused_act_adds_no_event(workflow: Any, conn: Connection, dsn: str, tenant: str, instance: UUID) -> None:
    workflow.instances.complete_instance(conn, tenant, instance)
    conn.commit()
    before = events_of(dsn, tenant)
    acts: list[Callable[[], Any]] = [
        lambda: workflow.instances.fail_instance(conn, tenant, instance, "late"),
        lambda: workflow.instances.start_instance(conn, tenant, uuid4(), "unknown", 1),
        lambda: workflow.definitions.unpublish_definition(conn, tenant, "approval", 9),
        lambda: workflow.tasks.claim_task(conn, tenant, uuid4(), "ada"),
        lambda: workflow.instances.decide_gateway(conn, tenant, instance, "amount", "high", AT),
    ]
    for act in acts:
        with pytest.raises(workflow.database.Refused):
            act()
        conn.commit()
    assert events_of(dsn, tenant) == before


def test_the_retry_of_a_whole_request_changes_nothing_and_gives_the_same_answers(
    workflow: Any, dsn: str, tenant: str
) -> None:
    """Each answer is lost after its commit; the caller sends everything again, over new connections."""
    id, task = uuid4(), uuid4()

    def the_request() -> list[Added]:
        with psycopg.connect(dsn) as conn:
            return [
                workflow.definitions.publish_definition(conn, tenant, "approval", 1),
                workflow.instances.start_instance(conn, tenant, id, "approval", 1),
                workflow.tasks.create_task(conn, tenant, task, id, "approve"),
                workflow.instances.decide_gateway(conn, tenant, id, "amount", "high", AT),
                workflow.tasks.claim_task(conn, tenant, task, "ada"),
            ]

    first, again = the_request(), the_request()
    assert [(one.id, one.key) for one in again] == [(one.id, one.key) for one in first]
    assert all(one.already_existed for one in again)
    ends = []
    for _ in range(2):
        with psycopg.connect(dsn) as conn:
            ends += [
                workflow.tasks.complete_task(conn, tenant, task),
                workflow.instances.complete_instance(conn, tenant, id),
            ]
    assert ends[0].key == ends[2].key
    assert ends[1].key == ends[3].key
    assert len(events_of(dsn, tenant)) == 7
