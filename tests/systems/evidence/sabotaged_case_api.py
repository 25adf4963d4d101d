"""Relays of the proof that break their promises for some files: `redrive prove evidence` must say so."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from redrive import App, Delivered, Retryable
from redrive.kit.transport import Answer, Record
from redrive.message import Attempt
from redrive.systems.evidence.attachment import Attachment
from redrive.systems.evidence.case_api import AttachTransport, CaseApi
from redrive.systems.evidence.prove import app as proof
from redrive.systems.evidence.stored_file import StoredFiles, checked_content


class Careless(AttachTransport):
    """Of the files it says that it has attached some; others it attaches under a second key, or under another case."""

    async def send(self, attempt: Attempt) -> Answer:
        wanted = Attachment.read(attempt.payload)
        match wanted.artifact_id.int % 5:
            case 0:
                return Delivered("never")
            case 1:
                content = await checked_content(self._files, wanted)
                if isinstance(content, bytes):
                    other = replace(wanted, artifact_id=wanted.case_id)
                    await self._caller.attach(attempt, other, content)
            case 2:
                return Retryable("HTTP_500", retry_after=0)  # a 503 would open the breaker for minutes
        return await super().send(attempt)


class CarelessCaseApi(CaseApi):
    def destination(self, files: StoredFiles, record: Record, *, deadline_seconds: float) -> Any:
        made = super().destination(files, record, deadline_seconds=deadline_seconds)
        return replace(made, transport=Careless(self, files, deadline_seconds=deadline_seconds))


def made(declared: Mapping[str, Any]) -> App:
    return proof.made(declared, case_api=CarelessCaseApi)


app = made(json.loads(os.environ[proof.VARIABLE])) if proof.VARIABLE in os.environ else App()
