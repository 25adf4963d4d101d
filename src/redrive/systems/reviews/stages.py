"""The pipeline of a review: `fetch` reads the diff, `llm` lets a critic look at it; each has five attempts of its own.

What a stage has found is kept with the message, so that a failure of a later one repeats nothing (R-01). The third
stage, `notify`, is one message for each recipient, enqueued in the transaction that settles `llm`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from redrive import Attempt, Destination
from redrive.patterns.pipelines import Pipeline, Results
from redrive.systems.reviews.changelist import Changelist, fetch_changelist
from redrive.systems.reviews.critic import Critic
from redrive.systems.reviews.names import FETCH, LLM, PIPELINE
from redrive.systems.reviews.recording import ReplaySafety, recording_review
from redrive.systems.reviews.taxonomy import POLICY, terminal
from redrive.systems.reviews.work import WithWork, WorkTable

FETCH_SECONDS: Final = 30.0
LLM_SECONDS: Final = 120.0
_PAYLOAD: Final = ("repository", "base_commit", "head_commit")


def stage_destinations(
    repositories: Mapping[str, Path],
    critic: Critic,
    providers: Mapping[str, ReplaySafety],
    *,
    diff_bytes_max: int,
    policy: Any = POLICY,
) -> Sequence[Destination]:
    """The destinations of `fetch` and `llm`."""
    pipeline = Pipeline(PIPELINE)

    work = WorkTable()

    # Both only read: what is in doubt is simply done again.
    @pipeline.stage(FETCH, policy=policy, timeout_seconds=FETCH_SECONDS, in_doubt="resend", concurrency=4)
    async def fetch(message: Attempt, _: Results) -> dict[str, Any]:
        repository, base, head = _asked(message.payload)
        if repository not in repositories:
            raise terminal("REPOSITORY_UNKNOWN", "The settings of this relay name no such repository.")
        changelist = await fetch_changelist(repositories[repository], base, head, bytes_max=diff_bytes_max)
        await work.keep_diff(message.id, changelist.diff)
        return changelist.result

    @pipeline.stage(
        LLM,
        policy=policy,
        timeout_seconds=LLM_SECONDS,
        in_doubt="resend",
        concurrency=4,
        record=recording_review(providers),
    )
    async def llm(message: Attempt, results: Results) -> dict[str, Any]:
        changelist = Changelist.read(results[FETCH], await work.diff(message.id))
        findings = await critic.review(changelist)
        await work.keep_findings(message.id, findings)
        return {"critic": critic.name, "base": changelist.base, "head": changelist.head, "findings": len(findings)}

    return [replace(one, transport=WithWork(one.transport, work)) for one in pipeline.destinations()]


def _asked(payload: Any) -> tuple[str, str, str]:
    values = [payload.get(name) if isinstance(payload, dict) else None for name in _PAYLOAD]
    if not all(isinstance(value, str) for value in values):
        raise terminal("PAYLOAD_INVALID", "The message of a review does not have its fields.")
    repository, base, head = values
    return str(repository), str(base), str(head)
