"""`OutboxMessage` for SQLAlchemy 2, synchronous and asynchronous: adding one to a session is an enqueue at its flush.

    session.add(OutboxMessage(tenant_id="acme", event_type="InvoicePaid", payload={"invoice": 7}))

    class WorkflowEvent(OutboxMessageMixin, Base):        # knows its event types, and makes keys by their recipes
        event_types = TYPES

The key is assigned before the flush. A second object of a tenant's key is a success: it gets the id of the first and is
not in the session afterwards, because a session holds one object for a row. A change or a deletion is refused before
the flush, so the transaction goes on. The table is in a `MetaData` of its own: `drop_all` and Alembic leave it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, Final
from uuid import UUID

from sqlalchemy import Connection, DateTime, FetchedValue, MetaData, Text, Uuid, event, inspect
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    ORMExecuteState,
    Session,
    declared_attr,
    mapped_column,
)
from sqlalchemy.orm.attributes import set_committed_value

from redrive.systems.tenant.event_types import EventTypes
from redrive.systems.tenant.models import shared

_DUPLICATES: Final = "redrive.tenant.duplicates"
_ROWS: Final = "insertmanyvalues_page_size"
_WRITE: Final = "`with Session(engine) as session, session.begin():`, without isolation_level='AUTOCOMMIT'"


class OutboxMessageMixin(shared.KeyParts):
    """Columns and behaviour, for a model of your own declarative base.

    event_types: of this model's events; None = any, and keys are made anew unless they are given. parts: what the key
    of one event is made of (`EventTypes.key`).
    """

    event_types: ClassVar[EventTypes | None] = None

    __tablename__ = shared.VIEW
    __table_args__: Any = {"schema": shared.SCHEMA}  # noqa: RUF012 - as SQLAlchemy reads it

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=FetchedValue())
    tenant_id: Mapped[str] = mapped_column(Text)
    event_type: Mapped[str] = mapped_column(Text)
    payload: Mapped[Any] = mapped_column(JSONB(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())
    processed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    is_processed: Mapped[bool] = mapped_column(server_default=FetchedValue())
    retry_count: Mapped[int] = mapped_column(server_default=FetchedValue())
    error: Mapped[str | None] = mapped_column(Text)
    next_attempt_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    dead_letter: Mapped[bool] = mapped_column(server_default=FetchedValue())
    state: Mapped[str] = mapped_column(Text, server_default=FetchedValue())
    outbox: Mapped[str] = mapped_column(Text, server_default=FetchedValue())
    order_by: Mapped[str | None] = mapped_column(Text)

    @declared_attr
    def idempotency_key(cls) -> Mapped[UUID]:  # noqa: N805 - a class is what SQLAlchemy gives
        # The default is for bulk inserts, which make no objects. As a sentinel it tells which returned row is whose.
        model: Any = cls
        return mapped_column(Uuid, default=lambda context: _key_of_row(model, context), insert_sentinel=True)

    def __init_subclass__(cls, **options: Any) -> None:
        cls.metadata = MetaData()  # type: ignore[attr-defined]  # declarative reads it from here
        super().__init_subclass__(**options)


class _Base(DeclarativeBase):
    pass


class OutboxMessage(OutboxMessageMixin, _Base):
    """An event of any type."""


@event.listens_for(Session, "before_flush")
def _prepare(session: Session, *_: Any) -> None:
    changed = [one for one in (*session.dirty, *session.deleted) if isinstance(one, OutboxMessageMixin)]
    if any(one in session.deleted or session.is_modified(one) for one in changed):
        shared.refuse_change()
    added = [one for one in session.new if isinstance(one, OutboxMessageMixin)]
    if added:
        connection = session.connection(bind_arguments={"mapper": inspect(type(added[0]))})
        _check_transaction(connection)
        for one in added:
            _complete(one)
        session.info[_DUPLICATES] = _without_duplicates(session, added)
        kept = [one.idempotency_key for one in added if one in session]
        if len(set(kept)) < len(kept):
            session.info[_ROWS] = _insert_one_by_one(connection)


def _complete(one: OutboxMessageMixin) -> None:
    loaded = inspect(one).dict
    was_written = "_written" in loaded  # in a transaction that was rolled back
    for name in shared.RETURNED if was_written else shared.NEVER_GIVEN:
        if loaded.pop(name, None) is not None and not was_written:
            shared.refuse_given(name)
    values = (loaded.get("tenant_id"), loaded.get("event_type"), one.parts, loaded.get("idempotency_key"))
    one.idempotency_key = shared.key_of_model(one.event_types, *values)


def _without_duplicates(
    session: Session, added: list[OutboxMessageMixin]
) -> list[tuple[OutboxMessageMixin, OutboxMessageMixin]]:
    """Takes out of the session what is there already by its key; returns those whose first one is yet to be written."""
    held = (one for one in session.identity_map.values() if isinstance(one, OutboxMessageMixin))
    known = {one.__dict__.get("_written"): one for one in held}
    waiting = []
    for one in added:
        first = known.setdefault(_identity(one), one)
        if first is one:
            continue
        session.expunge(one)
        if inspect(first).persistent:
            _copy(first, one)
        else:
            waiting.append((one, first))
    return waiting


def _insert_one_by_one(connection: Connection) -> Callable[[], object]:
    """Two tenants have the same key in this flush, so that the key alone does not tell which returned row is whose."""
    kept = connection.get_execution_options().get(_ROWS, 1000)  # SQLAlchemy's default
    connection.execution_options(**{_ROWS: 1})
    return lambda: connection.execution_options(**{_ROWS: kept})


@event.listens_for(Session, "after_flush")
def _note(session: Session, *_: Any) -> None:
    for one in session.new:
        if isinstance(one, OutboxMessageMixin):
            one.__dict__["_written"] = _identity(one)
    for duplicate, first in session.info.pop(_DUPLICATES, ()):
        _copy(first, duplicate)
    if give_back := session.info.pop(_ROWS, None):
        give_back()


def _copy(first: OutboxMessageMixin, duplicate: OutboxMessageMixin) -> None:
    kept = inspect(first)
    values = {name: kept.dict[name] for name in shared.RETURNED if name in kept.dict}
    if kept.identity:  # it may be expired: its id is known all the same
        values["id"] = kept.identity[0]
    for name, value in values.items():
        set_committed_value(duplicate, name, value)
    duplicate.__dict__["_written"] = _identity(duplicate)


@event.listens_for(OutboxMessageMixin, "load", propagate=True)
def _note_loaded(one: OutboxMessageMixin, _: Any) -> None:
    if {"tenant_id", "idempotency_key"} <= inspect(one).dict.keys():
        one.__dict__["_written"] = _identity(one)


@event.listens_for(Session, "do_orm_execute")
def _refuse_statements(execution: ORMExecuteState) -> None:
    is_change = execution.is_update or execution.is_delete
    if is_change and any(issubclass(mapper.class_, OutboxMessageMixin) for mapper in execution.all_mappers):
        shared.refuse_change()


def _check_transaction(connection: Connection) -> None:
    if connection.connection.dbapi_connection.autocommit:  # type: ignore[union-attr]
        shared.refuse_autocommit(_WRITE)


def _identity(one: OutboxMessageMixin) -> tuple[str | None, UUID]:
    """Its tenant may be missing, which the database refuses."""
    return one.__dict__.get("tenant_id"), one.idempotency_key


def _key_of_row(model: type[OutboxMessageMixin], context: Any) -> UUID:
    """A bulk insert has no parts, so a type whose recipe needs some is refused there."""
    row = context.get_current_parameters()
    return shared.key_of_model(model.event_types, row.get("tenant_id"), row.get("event_type"), {}, None)
