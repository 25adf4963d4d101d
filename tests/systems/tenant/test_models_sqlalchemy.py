"""`OutboxMessage` of SQLAlchemy assigns its key, gets its id from the database, and adds a known key once (T-11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine, MetaData, Table, create_engine, delete, event, insert, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from redrive.errors import InvalidValue, NoOpenTransaction, UsageError
from redrive.systems.tenant.models.sqlalchemy import OutboxMessage, OutboxMessageMixin
from tests.support.databases import fresh_database
from tests.systems.tenant.orm import TYPES, a_tenant, events_of, rows

pytestmark = pytest.mark.req("T-11")

AS_PRODUCER = "-c role=redrive_producer"


class Base(DeclarativeBase):
    pass


class Invoice(Base):
    __tablename__ = "orm_invoice"
    id: Mapped[int] = mapped_column(primary_key=True)


class InvoiceEvent(OutboxMessageMixin, Base):
    event_types = TYPES


@pytest.fixture(scope="module")
def dsn(server_dsn: str, template: str) -> Iterator[str]:
    with fresh_database(server_dsn, template=template) as dsn:
        yield dsn


@pytest.fixture(params=["psycopg", "psycopg2"])
def engine(request: pytest.FixtureRequest, dsn: str) -> Engine:
    """As a producer, who may read nothing."""
    return engine_of(dsn, request.param)


@pytest.fixture
def tenant() -> str:
    return a_tenant()


def engine_of(dsn: str, driver: str = "psycopg", options: str = AS_PRODUCER, **more: Any) -> Engine:
    return create_engine(f"postgresql+{driver}://", connect_args=parts_of(dsn, options), poolclass=NullPool, **more)


def parts_of(dsn: str, options: str) -> dict[str, Any]:
    return {name: value for name, value in conninfo_to_dict(dsn).items() if value is not None} | {"options": options}


def reader_of(dsn: str, role: str, tenant: str) -> Engine:
    return engine_of(dsn, options=f"-c role={role} -c redrive.tenant={tenant}")


def viewed(tenant: str, **more: Any) -> OutboxMessage:
    return OutboxMessage(tenant_id=tenant, event_type="InvoiceViewed", payload={"invoice": 7}, **more)


def issued(tenant: str, version: int = 1, **more: Any) -> InvoiceEvent:
    values = {"parts": {"entity": "i-7", "version": version}, **more}
    return InvoiceEvent(tenant_id=tenant, event_type="InvoiceIssued", payload={"version": version}, **values)


@pytest.mark.seed("003", "OutboxMessage_DefaultValues")
@pytest.mark.seed("003", "OutboxMessage_Defaults_Assigned_OnAdd")
def test_a_model_without_a_key_gets_one_when_it_is_added_and_is_not_processed(
    engine: Engine, dsn: str, tenant: str
) -> None:
    with Session(engine) as session, session.begin():
        message = viewed(tenant)
        session.add(message)
        session.flush()
        assert isinstance(message.idempotency_key, UUID)
        assert (message.processed_at, message.is_processed, message.retry_count) == (None, False, 0)
        assert (message.error, message.next_attempt_at, message.dead_letter) == (None, None, False)
        assert (message.state, message.outbox) == ("pending", "tenant.events")
        id, key = message.id, message.idempotency_key
    assert rows(dsn, "SELECT id, key FROM redrive.message WHERE tenant = %s", tenant) == [(id, str(key))]


@pytest.mark.seed("003", "OutboxMessage_Roundtrip_Persists_Values")
def test_what_a_model_was_given_is_read_back_by_the_role_of_a_reader(engine: Engine, dsn: str, tenant: str) -> None:
    key, payload = uuid4(), {"invoice": 7, "paid": [1.5, None, "ü"]}
    with Session(engine) as session, session.begin():
        message = OutboxMessage(
            tenant_id=tenant, event_type="InvoicePaid", payload=payload, idempotency_key=key, order_by="i-7"
        )
        session.add(message)
        session.flush()
        id = message.id
    with Session(reader_of(dsn, "redrive_approver", tenant)) as session:
        (read,) = session.scalars(select(OutboxMessage)).all()
        assert (read.id, read.tenant_id, read.event_type, read.payload) == (id, tenant, "InvoicePaid", payload)
        assert (read.idempotency_key, read.order_by, read.outbox, read.state) == (
            key,
            "i-7",
            "tenant.events",
            "pending",
        )
        assert (read.processed_at, read.error, read.is_processed, read.retry_count) == (None, None, False, 0)
        assert read.created_at.tzinfo is not None
        assert session.get(OutboxMessage, id) is read
    with Session(reader_of(dsn, "redrive_approver", "another")) as session:
        assert session.get(OutboxMessage, id) is None


@pytest.mark.parametrize("role", ["redrive_viewer", "redrive_operator", "redrive_auditor"])
def test_a_reader_without_the_right_to_payloads_reads_everything_else(dsn: str, tenant: str, role: str) -> None:
    with Session(engine_of(dsn)) as session, session.begin():
        session.add(viewed(tenant))
    with Session(reader_of(dsn, role, tenant)) as session:
        (read,) = session.scalars(select(OutboxMessage)).all()
        assert (read.event_type, read.state, read.payload) == ("InvoiceViewed", "pending", None)
        assert session.execute(text('SELECT "EventType", "Payload" FROM redrive_tenant."OutboxMessages"')).all() == [
            ("InvoiceViewed", None)
        ]


@pytest.mark.seed("003", "Insert_Duplicate_SameTenant_Idempotent")
def test_a_known_key_is_a_success_with_the_first_id_and_one_row(engine: Engine, dsn: str, tenant: str) -> None:
    key, ids = uuid4(), []
    for payload in ("first", "second"):
        with Session(engine) as session, session.begin():
            message = OutboxMessage(tenant_id=tenant, event_type="InvoicePaid", payload=payload, idempotency_key=key)
            session.add(message)
            session.flush()
            ids.append(message.id)
    assert ids == events_of(dsn, tenant) * 2
    assert rows(dsn, "SELECT payload FROM redrive_tenant.outbox_messages WHERE tenant_id = %s", tenant) == [("first",)]


@pytest.mark.seed("003", "Insert_SameKey_DifferentTenant")
@pytest.mark.seed("003", "Outbox_Insert_SameKey_DifferentTenant_ShouldSucceed")
def test_the_same_key_of_two_tenants_is_two_rows(engine: Engine, dsn: str) -> None:
    key, tenants = uuid4(), [a_tenant(), a_tenant()]
    with Session(engine) as session, session.begin():
        messages = [viewed(tenant, idempotency_key=key) for tenant in tenants]
        session.add_all(messages)
        session.flush()
        ids = [[message.id] for message in messages]
        assert "insertmanyvalues_page_size" not in session.info
    assert ids == [events_of(dsn, tenant) for tenant in tenants]


def test_a_model_that_knows_its_event_types_makes_the_key_by_the_recipe(engine: Engine, dsn: str, tenant: str) -> None:
    with Session(engine) as session, session.begin():
        message = issued(tenant, 3)
        session.add(message)
        session.flush()
        assert message.idempotency_key == TYPES.key(tenant, "InvoiceIssued", {"entity": "i-7", "version": 3})
    with Session(engine) as session, session.begin():  # a retry, in a new process
        session.add(issued(tenant, 3))
        session.add(issued(tenant, 4))
        session.add(InvoiceEvent(tenant_id=tenant, event_type="InvoiceViewed", payload={}))
        session.add(InvoiceEvent(tenant_id=tenant, event_type="InvoiceViewed", payload={}))
    assert len(events_of(dsn, tenant)) == 4


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"event_type": "InvoiceIsued"}, "did you mean 'InvoiceIssued'"),
        ({"parts": {"entity": "i-7"}}, "version is missing"),
        ({"parts": {"entity": "i-7", "version": 1, "shard": 2}}, "no part 'shard'"),
        ({"event_type": "InvoiceViewed"}, "not keyed"),
        ({"idempotency_key": "no uuid"}, "must be a UUID"),
    ],
)
def test_what_makes_no_key_is_refused_before_anything_is_written(
    engine: Engine, dsn: str, tenant: str, values: dict[str, Any], said: str
) -> None:
    given = {"tenant_id": tenant, "event_type": "InvoiceIssued", "parts": {"entity": "i-7", "version": 1}, **values}
    with Session(engine) as session, session.begin():
        message = InvoiceEvent(payload={}, **given)
        session.add(message)
        with pytest.raises(InvalidValue, match=said):
            session.flush()
        session.expunge(message)
        session.add(issued(tenant))  # the transaction goes on
    assert len(events_of(dsn, tenant)) == 1


def test_parts_without_event_types_are_refused(engine: Engine, tenant: str) -> None:
    with Session(engine) as session:
        session.add(viewed(tenant, parts={"entity": "i-7"}))
        with pytest.raises(InvalidValue, match="event_types"):
            session.flush()


def test_several_in_one_flush_are_one_statement_and_each_has_its_own_id(dsn: str, tenant: str) -> None:
    engine, statements = engine_of(dsn), []
    event.listen(engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    with Session(engine) as session, session.begin():
        messages = [OutboxMessage(tenant_id=tenant, event_type="E", payload={"number": n}) for n in range(20)]
        session.add_all(messages)
        session.flush()
        written = {message.id: (message.idempotency_key, message.payload["number"]) for message in messages}
    assert len([one for one in statements if one.startswith("INSERT")]) == 1
    query = "SELECT id, idempotency_key, payload FROM redrive_tenant.outbox_messages WHERE tenant_id = %s"
    assert {id: (key, payload["number"]) for id, key, payload in rows(dsn, query, tenant)} == written


def test_duplicates_in_one_flush_are_one_row_and_share_its_id(engine: Engine, dsn: str, tenant: str) -> None:
    with Session(engine) as session, session.begin():
        first, second, other = issued(tenant), issued(tenant), issued(tenant, 2)
        session.add_all([first, second, other])
        session.flush()
        assert first.id == second.id != other.id
        assert (first in session, second in session) == (True, False)
        third = issued(tenant)  # of a later flush
        session.add(third)
        session.flush()
        assert (third.id, third.state) == (first.id, "pending")
    assert len(events_of(dsn, tenant)) == 2


def test_a_duplicate_of_an_object_that_a_commit_has_expired_has_its_id(engine: Engine, dsn: str, tenant: str) -> None:
    with Session(engine) as session:
        first = issued(tenant)
        session.add(first)
        session.commit()
        second = issued(tenant)
        session.add(second)
        session.flush()  # without reading `first` again, which a producer may not
        assert [second.id] == events_of(dsn, tenant)
        session.rollback()


def test_a_duplicate_of_an_object_that_was_read_has_its_id(dsn: str, tenant: str) -> None:
    with Session(engine_of(dsn, options="-c redrive.tenant=*")) as session:
        session.add(issued(tenant))
        session.commit()
        session.expunge_all()
        read = session.scalars(select(InvoiceEvent).where(InvoiceEvent.tenant_id == tenant)).one()
        second = issued(tenant)
        session.add(second)
        session.commit()
        assert second.id == read.id


def test_a_rollback_takes_the_event_and_the_row_away(engine: Engine, dsn: str, tenant: str) -> None:
    with Session(engine) as session:
        message = issued(tenant)
        session.add(message)
        session.flush()
        session.rollback()
        assert events_of(dsn, tenant) == []
        lost = message.id
        session.add(message)  # the retry of a whole request with the same object
        session.flush()
        assert message.id != lost
        id = message.id
        session.commit()
    assert events_of(dsn, tenant) == [id]


def test_a_savepoint_that_is_rolled_back_frees_the_key(engine: Engine, dsn: str, tenant: str) -> None:
    with Session(engine) as session, session.begin():
        nested = session.begin_nested()
        session.add(issued(tenant))
        session.flush()
        nested.rollback()
        session.add(issued(tenant))
    assert len(events_of(dsn, tenant)) == 1


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_an_asynchronous_session_adds_and_rolls_back(driver: str, dsn: str, tenant: str) -> None:
    parts = conninfo_to_dict(dsn)
    login: dict[str, Any] = {"connect_args": parts_of(dsn, AS_PRODUCER)}
    if driver == "asyncpg":
        names = {"host": "host", "port": "port", "user": "user", "password": "password", "dbname": "database"}
        given = {names[name]: value for name, value in parts.items() if name in names and value is not None}
        login = {"connect_args": {**given, "server_settings": {"role": "redrive_producer"}}}
    engine = create_async_engine(f"postgresql+{driver}://", poolclass=NullPool, **login)
    async with AsyncSession(engine) as session, session.begin():
        messages = [issued(tenant, 1), issued(tenant, 2), issued(tenant, 1)]
        session.add_all(messages)
        await session.flush()
        ids = [message.id for message in messages]
    assert ids == [*events_of(dsn, tenant), ids[0]]
    async with AsyncSession(engine) as session:
        session.add(issued(tenant, 3))
        await session.flush()
        await session.rollback()
    assert len(events_of(dsn, tenant)) == 2


def test_a_changed_or_deleted_model_is_refused_and_the_transaction_goes_on(
    engine: Engine, dsn: str, tenant: str
) -> None:
    with Session(engine) as session, session.begin():
        message = issued(tenant)
        session.add(message)
        session.flush()
        message.payload = {"other": True}
        with pytest.raises(UsageError, match="not updated or deleted after it was added"):
            session.flush()
        session.expunge(message)
        again = issued(tenant)
        session.add(again)
        session.flush()
        session.delete(again)
        with pytest.raises(UsageError, match="not updated or deleted after it was added"):
            session.flush()
        session.expunge(again)
        for statement in (update(OutboxMessage).values(error="x"), delete(InvoiceEvent)):
            with pytest.raises(UsageError, match="Add another event"):
                session.execute(statement)
        assert session.execute(text("SELECT 1")).scalar() == 1
    assert len(events_of(dsn, tenant)) == 1


@pytest.mark.parametrize("name", ["id", "created_at"])
def test_what_the_database_gives_cannot_be_given(engine: Engine, tenant: str, name: str) -> None:
    with Session(engine) as session:
        session.add(viewed(tenant, **{name: uuid4()}))
        with pytest.raises(InvalidValue, match=f"`{name}` of an event comes from the database"):
            session.flush()


@pytest.mark.parametrize("values", [{"is_processed": True}, {"retry_count": 2}, {"error": "no"}, {"dead_letter": True}])
def test_an_event_that_claims_to_be_processed_is_refused_by_the_database(
    engine: Engine, dsn: str, tenant: str, values: dict[str, Any]
) -> None:
    with Session(engine) as session:
        session.add(viewed(tenant, **values))
        with pytest.raises(DBAPIError, match="inserted unprocessed"):
            session.flush()
    assert events_of(dsn, tenant) == []


@pytest.mark.parametrize("name", ["tenant_id", "payload"])
def test_an_event_without_what_it_needs_is_refused_by_the_database(engine: Engine, tenant: str, name: str) -> None:
    values: dict[str, Any] = {"tenant_id": tenant, "event_type": "E", "payload": {}, name: None}
    with Session(engine) as session:
        session.add(OutboxMessage(**values))
        with pytest.raises(DBAPIError, match="needs tenant_id, event_type and payload"):
            session.flush()


def test_a_connection_that_commits_each_statement_is_refused(dsn: str, tenant: str) -> None:
    with Session(engine_of(dsn, isolation_level="AUTOCOMMIT")) as session:
        session.add(viewed(tenant))
        with pytest.raises(NoOpenTransaction, match=r"session\.begin"):
            session.flush()
    assert events_of(dsn, tenant) == []


def test_a_bulk_insert_gets_keys_and_refuses_a_type_whose_recipe_needs_parts(
    engine: Engine, dsn: str, tenant: str
) -> None:
    row = {"tenant_id": tenant, "event_type": "InvoiceViewed", "payload": {}}
    with Session(engine) as session, session.begin():
        session.execute(insert(InvoiceEvent), [row, row])
        keyed = {**row, "event_type": "InvoiceIssued"}
        with pytest.raises(Exception, match="entity is missing"):
            session.execute(insert(InvoiceEvent), [keyed])
        session.execute(insert(InvoiceEvent), [{**keyed, "idempotency_key": uuid4()}])
    assert len(events_of(dsn, tenant)) == 3


def test_the_model_is_in_no_metadata_that_an_application_creates_or_drops(dsn: str) -> None:
    assert [table.name for table in Base.metadata.sorted_tables] == ["orm_invoice"]
    assert isinstance(InvoiceEvent.__table__, Table)
    assert InvoiceEvent.metadata is not OutboxMessage.metadata
    assert isinstance(InvoiceEvent.metadata, MetaData)
    Base.metadata.create_all(engine := engine_of(dsn, options=""))
    Base.metadata.drop_all(engine)
    assert rows(dsn, "SELECT to_regclass('redrive_tenant.outbox_messages') IS NOT NULL") == [(True,)]
