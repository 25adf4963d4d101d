"""A pipeline for relays that are killed: each stage appends its name to a file, which is all that it does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import redrive
from redrive.patterns.pipelines import Pipeline, Results

LOG_VARIABLE = "REDRIVE_TEST_STAGES"
AT_ONCE = redrive.Policy(attempts=5, backoff=redrive.Backoff(initial_seconds=0))

pipeline = Pipeline("videos")


def _append(stage: str) -> None:
    with Path(os.environ[LOG_VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(f"{stage}\n")


@pipeline.stage("import", policy=AT_ONCE)
async def fetch(message: redrive.Attempt, results: Results) -> Any:
    _append("import")
    return {"file": "raw.mov"}


@pipeline.stage("transcode", policy=AT_ONCE)
def transcode(message: redrive.Attempt, results: Results) -> Any:
    _append(f"transcode {results['import']['file']}")
    return {"file": "small.mp4"}


@pipeline.stage("publish", policy=AT_ONCE)
async def publish(message: redrive.Attempt, results: Results) -> Any:
    _append(f"publish {results['transcode']['file']}")
    return {"url": "/videos/7"}


app = redrive.App()
for destination in pipeline.destinations():
    app.add(destination)
