"""Jobs that a form starts once, however often the form is sent and however long the job takes.

Every form carries a token of its page. The first request with a token begins the job; any other finds it. A request
waits a moment, so that a short job has its result on the next page; a long one shows its progress. A bounded number of
jobs is kept in this process only: their effects are in the database, and a repeated job goes on with what is left.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from redrive.errors import OperatorError, RedriveError
from redrive.operate.actions.results import ActResult, Outcome

KEPT_MAX: Final = 1000
WAIT_SECONDS: Final = 2.0
TOKEN_MAX: Final = 100  # characters


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
        """Why nothing was done, and how often; the most frequent first."""
        counted: dict[str, int] = {}
        for result in self.refused:
            counted[result.detail] = counted.get(result.detail, 0) + 1
        return sorted(counted.items(), key=lambda item: -item[1])

    def add(self, results: Sequence[ActResult]) -> None:
        """Some messages more are through."""
        self.results += results
        self.done += len(results)


JobFunction = Callable[[Job], Awaitable[None]]


class Jobs:
    """The works of one process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Job] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    @staticmethod
    def new_token() -> str:
        return secrets.token_urlsafe(16)

    def find(self, token: str | None, owner: str) -> Job | None:
        """A work of this person."""
        job = self._kept.get(token or "")
        return job if job and job.owner == owner else None

    def changes(self, owner: str) -> int:
        """A number that is another one when any of his works has gone on."""
        return sum(job.done + (not job.running) for job in self._kept.values() if job.owner == owner)

    async def begin(self, token: str, owner: str, title: str, doing: JobFunction, *, total: int = 0) -> Job:
        """The work of this token, begun now unless it was before; returns at its end, or after a moment."""
        job = self.find(token, owner)
        if job is None:
            job = self._kept[token] = Job(token, owner, title, total)
            self._forget()
            task = asyncio.create_task(self._carry_out(job, doing))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with suppress(TimeoutError):
            await asyncio.wait_for(job.ended.wait(), WAIT_SECONDS)
        return job

    async def _carry_out(self, job: Job, doing: JobFunction) -> None:
        try:
            await doing(job)
        except OperatorError as error:
            job.failed, job.said, job.advice = True, error.message, error.next
        except RedriveError as error:
            job.failed, job.said = True, str(error)
        except Exception as error:  # its text may hold data; the type is enough for a person to look into the log
            job.failed, job.said = True, f"It failed ({type(error).__name__}); see the log of the console."
            raise
        finally:
            job.ended.set()

    def _forget(self) -> None:
        for token in [token for token, job in self._kept.items() if not job.running][: len(self._kept) - KEPT_MAX]:
            del self._kept[token]

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
