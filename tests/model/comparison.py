"""Two stores side by side: how a verb is called on both, and what must be equal afterwards.

Ids are PostgreSQL's, so that both sort equal due times alike. Every step takes a millisecond, so that no two rows of
the archive are of one moment. Which of several lanes goes where there is not room for all is PostgreSQL's choice: it
has to be one that LANES.md allows, and the model follows it. The rules are in `side_by_side`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine, invariant

from redrive import ports
from redrive.errors import RedriveError
from redrive.message import Attempt, Closed, Fence, HistoryEntry, MessageId, NewMessage, WorkerId
from redrive.ports import Claimed, ClaimRequest, Settled, Store
from tests.conformance.steps import at
from tests.conformance.subjects import PostgresSubject
from tests.model.choice import choices
from tests.model_store.model import ModelStore
from tests.model_store.transitions import Lease, Parked, Pending, Place

Thing = TypeVar("Thing")


class Comparison(RuleBasedStateMachine):
    """One example: an empty database and an empty model. A subclass has a database and an event loop."""

    postgres: ClassVar[PostgresSubject]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.postgres.forget_everything()
        self.model = ModelStore(server_started_at=self.postgres.server_started_at)
        self.milliseconds = 0
        self.ids: list[MessageId] = []
        self.attempts: list[Attempt] = []  # every claim that ever was, oldest first
        self.holders: dict[Fence, WorkerId] = {}

    # calling both

    def both(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        """The answer of both, which is the same."""
        expected = self._run(_answer(call, self.model))
        actual = self._run(_answer(call, self.postgres))
        assert actual == expected
        return actual

    def enqueue_on_both(self, message: NewMessage) -> None:
        now = self.now()
        actual = _or_error(lambda: self.postgres.enqueue(message, now=now))
        id = None if isinstance(actual, str) or actual.already_existed else actual.id
        assert _or_error(lambda: self.model.enqueue(message, now=now, id=id)) == actual
        if id is not None:
            self.ids.append(id)

    def claim_on_both(
        self,
        worker: WorkerId,
        claim_requests: Sequence[ClaimRequest],
        *,
        lease_seconds: float,
        from_marks: bool = False,
    ) -> None:
        """from_marks: PostgreSQL begins to look where a whole look said; it must find the same."""
        now = self.now()
        asked = self._from_marks(claim_requests, now) if from_marks else claim_requests
        claimed = self._run(self.postgres.claim(worker, asked, lease_seconds=lease_seconds, now=now))
        places = self.postgres.places()
        due = choices(self.model, claim_requests, now)
        taken = [p for choice in due for p in choice.everything if not isinstance(places[p.id], Pending)]
        for choice in due:
            choice.check([p for p in taken if p in choice.everything], more=claimed.more)
        followed = self.model._take(taken, worker, alone=False, lease_seconds=lease_seconds, now=now)
        assert _sorted(claimed) == _sorted(followed)
        self.took(worker, claimed.attempts)

    def _from_marks(self, claim_requests: Sequence[ClaimRequest], now: datetime) -> Sequence[ClaimRequest]:
        places = [(ports.Place(room.destination, room.level), None) for room in claim_requests]
        marks = self._run(self.postgres.low_water(places, now=now))
        return [room._replace(since=mark.since) for room, mark in zip(claim_requests, marks, strict=True)]

    def took(self, worker: WorkerId, attempts: Sequence[Attempt]) -> None:
        self.attempts += attempts
        self.holders |= {attempt.fence: worker for attempt in attempts}

    def now(self) -> datetime:
        self.milliseconds += 1
        return self.moment()

    def moment(self) -> datetime:
        return at(self.milliseconds / 1000)

    def wait_until(self, moment: datetime) -> None:
        """Nothing happens until then; a moment that has passed is not waited for."""
        self.milliseconds = max(self.milliseconds, round((moment - at(0)).total_seconds() * 1000))

    def _run(self, awaitable: Awaitable[Any]) -> Any:
        async def run() -> Any:
            return await awaitable

        return self.runner.run(run())

    # what the rules choose from

    def live(self) -> list[Attempt]:
        """The claims that are held."""
        places = self.model.places()
        return [attempt for attempt in self.attempts if _is_held(places[attempt.id], attempt)]

    def open_ids(self) -> list[MessageId]:
        return [id for id, place in self.model.places().items() if not isinstance(place, Closed)]

    def parked(self) -> list[Parked]:
        return [place for place in self.model.places().values() if isinstance(place, Parked)]

    def waiting(self, *, suspect: bool) -> list[Pending]:
        pending = [place for place in self.model.places().values() if isinstance(place, Pending)]
        return sorted((p for p in pending if p.suspect is suspect), key=lambda p: p.due_at)

    # what must hold after every step

    @invariant()
    def both_show_the_same_and_nothing_is_lost(self) -> None:
        seen = self.postgres.look()
        assert seen.places == self.model.places()
        assert sorted(seen.late_answers, key=repr) == sorted(self.model.late_answers, key=repr)
        counts = seen.conservation
        assert counts == self.model.conservation()
        assert counts.enqueued == counts.pending + counts.leased + counts.parked + counts.closed == len(self.ids)
        for id in self.ids:
            rows = seen.archive.get(id, [])
            assert rows == self._run(self.model.history(id))
            self._check_life(id, rows)

    @invariant()
    def no_lane_is_forgotten(self) -> None:
        """Every head that may go has a token, for its own destination and level, which is due with it."""
        assert self.postgres.sleeping_lanes(self.moment()) == []

    def _check_life(self, id: MessageId, rows: Sequence[HistoryEntry]) -> None:
        """One closing row where it is closed, and attempts numbered without a gap."""
        place = self.model.place_of(id)
        closings = [row.closed for row in rows if row.closed is not None]
        assert closings == ([place] if isinstance(place, Closed) else [])
        ended = [row.attempt for row in rows if row.claimed_at is not None]
        under_way = [place.attempt] if isinstance(place, Lease) else []
        assert ended + under_way == list(range(1, len(ended + under_way) + 1))


def newest(things: Sequence[Thing], place: int) -> Thing:
    """By position counted from the newest, and round again."""
    return things[-1 - place % len(things)]


def _is_held(place: Place, attempt: Attempt) -> bool:
    return isinstance(place, Lease) and place.attempt == attempt.number


async def _answer(call: Callable[[Store], Awaitable[Any]], store: Store) -> Any:
    """What a verb returned, in an order that does not depend on the store, or how it refused."""
    try:
        return _sorted(await call(store))
    except RedriveError as error:
        return type(error).__name__, str(error).partition(" Next:")[0]


def _sorted(answer: Any) -> Any:
    match answer:
        case Claimed(attempts, expired):
            return Claimed(sorted(attempts, key=_by_id), expired)
        case Settled(settled, refused, repeated, handed_over):
            return Settled(settled, sorted(refused), sorted(repeated), sorted(handed_over, key=_by_id))
        case list():
            return sorted(answer, key=repr)
        case _:
            return answer


def _by_id(attempt: Attempt) -> MessageId:
    return attempt.id


def _or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except RedriveError as error:
        return type(error).__name__
