"""The work that a form asks for, made once, however often the form is sent and to whichever process.

The token of the form is kept in the database (`redrive.operate.web.idempotency`), with what became of the work. A
request waits a moment, so that short work has its result on the next page. Only the process that does the work knows
its progress.
"""

import asyncio
import json
import secrets
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from redrive.errors import OperatorError, RedriveError
from redrive.message import MessageId
from redrive.operate.actions.results import ActResult, Outcome
from redrive.operate.web.idempotency import RequestKey
from redrive.store.runtime.access import Begun

KEPT_MAX: Final = 1000
WAIT_SECONDS: Final = 2.0
TOKEN_MAX: Final = 100  # characters
JOB_SECONDS_MAX: Final = 3600.0  # after that, a job without an end is taken for lost and may be made again


@dataclass(eq=False)
class Job:
    """One act and what became of it. title: stands before the number of messages. total: 0 = it is not about messages.

    said: what a person reads when it is over, where there are no results to count. goes_to: the page where it leads.
    """

    token: str
    owner: str
    title: str
    total: int = 0
    done: int = 0
    results: list[ActResult] = field(default_factory=list)
    said: str = ""
    advice: str = ""
    failed: bool = False
    goes_to: str | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def running(self) -> bool:
        return not self.ended.is_set()

    @property
    def succeeded(self) -> int:
        return sum(result.outcome is Outcome.DONE for result in self.results)

    @property
    def refused(self) -> list[ActResult]:
        return [result for result in self.results if result.outcome is not Outcome.DONE]

    def refusals(self) -> list[tuple[str, int]]:
        return Counter(result.detail for result in self.refused).most_common()

    def as_json(self) -> bytes:
        counted = Counter((result.outcome.value, result.detail) for result in self.results)
        values = {name: getattr(self, name) for name in _KEPT}
        return json.dumps({**values, "results": [[*what, number] for what, number in counted.items()]}).encode()

    def restore(self, answer: bytes) -> None:
        kept = json.loads(answer)
        for name in _KEPT:
            setattr(self, name, kept[name])
        for outcome, detail, number in kept["results"]:
            self.results += [ActResult(id=_ANY_ID, outcome=Outcome(outcome), detail=detail)] * number

    def add(self, results: Sequence[ActResult]) -> None:
        self.results += results
        self.done += len(results)


_KEPT: Final = ("title", "total", "done", "said", "advice", "failed", "goes_to")
_ANY_ID: Final = MessageId(UUID(int=0))  # results of another process are counted, not named
JobFunction = Callable[[Job], Awaitable[str | None]]  # may return what a person reads when it is over


class Jobs:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, Job] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    @staticmethod
    def new_token() -> str:
        return secrets.token_urlsafe(16)

    def find(self, token: str | None, owner: str) -> Job | None:
        job = self._kept.get(token or "")
        return job if job and job.owner == owner else None

    def changes(self, owner: str) -> int:
        return sum(job.done + (not job.running) for job in self._kept.values() if job.owner == owner)

    async def begin(
        self, token: str, owner: str, title: str, doing: JobFunction, *, total: int = 0, key: RequestKey | None = None
    ) -> Job:
        """The job of this token, begun now unless it was before; returns at its end, or after a moment.

        key: of the form, in the database; None = only this process makes it once.
        """
        job = self.find(token, owner)
        if job is None:
            job = self._kept[token] = Job(token, owner, title, total)
            self._forget()
            task = asyncio.create_task(self._carry_out(job, doing, key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with suppress(TimeoutError):
            await asyncio.wait_for(job.ended.wait(), WAIT_SECONDS)
        return job

    async def _carry_out(self, job: Job, doing: JobFunction, key: RequestKey | None) -> None:
        try:
            if key is None:
                await _run(job, doing)
            else:
                await _run_once(job, doing, key)
        finally:
            job.ended.set()

    def _forget(self) -> None:
        for token in [token for token, job in self._kept.items() if not job.running][: len(self._kept) - KEPT_MAX]:
            del self._kept[token]

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _run_once(job: Job, doing: JobFunction, key: RequestKey) -> None:
    begun = await key.begin()
    if begun.result != "new":
        _found(job, begun)
        return
    answer = None
    try:
        await _run(job, doing)
        answer = job.as_json()
    finally:
        await key.end(status=None if answer is None else 200, answer=answer)


def _found(job: Job, begun: Begun) -> None:
    """The form was sent before, to another process."""
    if begun.result == "answered" and begun.answer is not None:
        job.restore(begun.answer)
    elif begun.result == "other":
        job.failed, job.said = True, "This form was sent already with other values; load the page again."
    else:
        job.said = "Another console process does this already; load the page again to see the result."


async def _run(job: Job, doing: JobFunction) -> None:
    try:
        job.said = await doing(job) or job.said
    except OperatorError as error:
        job.failed, job.said, job.advice = True, error.message, error.next
    except RedriveError as error:
        job.failed, job.said = True, str(error)
    except Exception as error:  # its text may hold data; the type is enough to find it in the log
        job.failed, job.said = True, f"It failed ({type(error).__name__}); see the log of the console."
        raise
