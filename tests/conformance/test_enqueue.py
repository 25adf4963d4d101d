"""enqueue, as the other tests rely on it: one row a key for good, and conservation whatever happens next."""

from __future__ import annotations

import pytest

from redrive.errors import KeyReused
from redrive.message import NewMessage
from tests.conformance.steps import CLOSED, MAIL, NOBODY, STATES, T0, at, put_into
from tests.conformance.subjects import Subject
from tests.model_store.tables import Conservation


@pytest.mark.req("G-02")
async def test_a_duplicate_returns_the_first_message_and_adds_nothing(store: Subject) -> None:
    first = store.enqueue(NewMessage(MAIL, {"a": 1, "b": 2}, key="k"), now=T0)
    again = store.enqueue(NewMessage(MAIL, {"b": 2, "a": 1}, key="k"), now=at(1))
    assert (first.already_existed, first.state) == (False, "pending")
    assert (again.id, again.already_existed, again.state) == (first.id, True, "pending")
    assert store.conservation().enqueued == 1


@pytest.mark.req("G-02")
async def test_keys_belong_to_their_tenant_and_no_key_is_no_duplicate(store: Subject) -> None:
    receipts = [store.enqueue(NewMessage(MAIL, 1, key="k", tenant=tenant), now=T0) for tenant in ("a", "b")]
    receipts += [store.enqueue(NewMessage(MAIL, 1), now=T0) for _ in range(2)]
    assert len({receipt.id for receipt in receipts}) == 4


@pytest.mark.req("G-26")
@pytest.mark.parametrize(
    "other", [NewMessage(MAIL, 2, key="k"), NewMessage("bank", 1, key="k"), NewMessage(MAIL, 1, key="k", kind="x")]
)
async def test_the_same_key_with_other_content_is_refused_or_the_first_wins(store: Subject, other: NewMessage) -> None:
    first = store.enqueue(NewMessage(MAIL, 1, key="k"), now=T0)
    with pytest.raises(KeyReused):
        store.enqueue(other, now=T0)
    lenient = NewMessage(other.destination, other.payload, key="k", kind=other.kind, on_other_payload="first_wins")
    assert store.enqueue(lenient, now=T0).id == first.id
    assert store.conservation().enqueued == 1


@pytest.mark.req("G-28")
@pytest.mark.parametrize("state", STATES)
async def test_every_message_is_in_exactly_one_place(store: Subject, state: str) -> None:
    id = await put_into(store, state)
    counts = store.conservation()
    place = state if state in ("pending", "leased") else "closed" if state in CLOSED else "parked"
    assert counts == Conservation(1, 0, 0, 0, 0)._replace(**{place: 1})
    closings = [row.closed for row in await store.history(id) if row.closed is not None]
    assert closings == ([state] if state in CLOSED else [])


@pytest.mark.req("G-28")
async def test_a_message_that_never_was_has_no_state_and_no_history(store: Subject) -> None:
    assert (store.state_of(NOBODY), await store.history(NOBODY)) == (None, [])
