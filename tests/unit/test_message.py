"""Words of a message's life: levels, fences, and the token that a destination deduplicates by (ruling 15)."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.message import (
    LEVELS,
    CancelAnswer,
    Closed,
    Fence,
    HistoryEntry,
    MessageId,
    ParkReason,
    Priority,
    State,
    token,
)
from tests.support import messages as m

ids = st.uuids().map(MessageId)
stages = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
versions = st.integers(1, 2**31 - 1)


@pytest.mark.req("G-13")
@given(ids)
def test_first_token_is_the_id_itself(message_id: MessageId) -> None:
    assert token(message_id, 1, "first") == str(message_id)


@pytest.mark.req("G-13")
@given(ids, versions, stages)
def test_token_is_the_same_each_time_and_always_a_uuid(message_id: MessageId, version: int, stage: str) -> None:
    assert token(message_id, version, stage) == token(message_id, version, stage)
    assert str(UUID(token(message_id, version, stage))) == token(message_id, version, stage)


@pytest.mark.req("G-13")
@given(st.lists(st.tuples(ids, versions, stages), min_size=2, max_size=8, unique=True))
def test_token_differs_by_id_version_and_stage(parts: list[tuple[MessageId, int, str]]) -> None:
    assert len({token(*part) for part in parts}) == len(parts)


@pytest.mark.req("G-13")
@pytest.mark.parametrize(("version", "stage"), [(1, "second"), (2, "first"), (2, "second")])
def test_later_token_is_a_uuid_of_version_8_that_every_machine_computes(version: int, stage: str) -> None:
    made = UUID(token(m.SOME_ID, version, stage))
    assert (made.version, made.variant) == (8, UUID(int=0x8 << 60).variant)
    assert made != m.SOME_ID


@pytest.mark.req("G-13")
def test_token_is_pinned_for_all_time() -> None:
    """A destination remembers tokens: another formula would have it do everything a second time."""
    assert token(m.SOME_ID, 1, "second") == "e9ee849b-21eb-840c-9d39-02ad8d052d22"
    assert token(m.SOME_ID, 2, "first") == "5606a16d-f220-8447-b0ac-2a61dd1c5d55"


@pytest.mark.req("G-13")
@given(st.integers(1, 1000), st.integers(0, 100), st.datetimes().map(lambda d: d.replace(tzinfo=m.START.tzinfo)))
def test_token_does_not_change_from_attempt_to_attempt(number: int, spent: int, claimed_at: object) -> None:
    first = m.attempt(stage="charge")
    assert replace(first, number=number, spent=spent, claimed_at=claimed_at).token == first.token  # type: ignore[arg-type]


def test_attempt_is_fenced_by_id_and_number() -> None:
    assert m.attempt(number=7).fence == Fence(m.SOME_ID, 7)


def test_payload_is_the_body_as_json() -> None:
    assert m.attempt(body=b'{"a": [1, null]}').payload == {"a": [1, None]}


def test_results_are_those_of_the_present_version_by_stage() -> None:
    done = replace(_entry(), stage="render", settlement="advance", result={"pages": 2})
    older = replace(done, version=1, result={"pages": 1})
    failed = replace(done, stage="charge", settlement="retry", result=None)
    attempt = m.attempt(version=2, earlier=(older, done, failed))
    assert attempt.results() == {"render": {"pages": 2}}
    assert attempt.history() == (older, done, failed)


def _entry() -> HistoryEntry:
    return HistoryEntry(
        attempt=1,
        verb="settle",
        stage="first",
        version=2,
        settlement=None,
        answer=None,
        code=None,
        text=None,
        reference=None,
        result=None,
        closed=None,
        worker=None,
        actor=None,
        reason=None,
        claimed_at=None,
        completed_at=m.START,
        latency_ms=None,
        spent=1,
        due_at=None,
    )


def test_levels_are_ordered_from_high_to_low() -> None:
    assert [Priority(name).level for name in ("high", "normal", "low")] == [0, 1, 2] == list(LEVELS)
    with pytest.raises(ValueError, match="urgent"):
        Priority("urgent")


@pytest.mark.req("G-28")
def test_words_of_the_states_are_those_of_the_archive() -> None:
    assert list(State) == ["pending", "leased", "parked", "closed"]
    assert list(Closed) == ["delivered", "expired", "cancelled", "skipped", "discarded"]
    assert list(ParkReason) == ["dead", "held", "unrecorded"]
    assert list(CancelAnswer) == ["cancelled", "in_flight", "in_doubt", "parked", "already_closed", "busy"]
