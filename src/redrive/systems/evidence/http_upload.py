"""An upload over HTTP: the body goes to a file of bounded size, and the steps of `upload` to the caller's store."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final, TypeVar

from fastapi import Request

from redrive.errors import SettingsError
from redrive.kit.statements import Steps
from redrive.kit.web import Refusal, ScopedStore, run_steps
from redrive.systems.evidence.problems import UploadRefused
from redrive.systems.evidence.storage import storage_of
from redrive.systems.evidence.upload_limits import UploadLimits
from redrive.systems.evidence.uploading import Upload, UploadConflict, Uploaded, upload

T = TypeVar("T")
STORAGE: Final = "EVIDENCE_STORAGE"
AT_ONCE_MAX: Final = 2
SAID_MAX: Final = 100
_under_way = 0


@asynccontextmanager
async def received(request: Request, limits: UploadLimits | None = None) -> AsyncIterator[Path]:
    """The body as a file, which is gone after the block. 413 beyond the bound, 429 beside two others."""
    global _under_way  # noqa: PLW0603 - of this process, as its disk is
    if _under_way >= AT_ONCE_MAX:
        detail = f"{_under_way} uploads are under way; at most {AT_ONCE_MAX} may be."
        raise Refusal(429, "UPLOADS_BUSY", detail, headers={"Retry-After": "10"})
    most, size = (limits or UploadLimits()).archive_bytes_max, 0
    _under_way += 1
    try:
        with tempfile.NamedTemporaryFile(prefix="redrive-upload-", suffix=".zip") as file:
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    raise Refusal(413, "TOO_LARGE", f"The archive has more than {most} bytes.")
                file.write(chunk)
            file.flush()
            yield Path(file.name)
    finally:
        _under_way -= 1


async def stored(store: ScopedStore, asked: Upload) -> Uploaded:
    """`upload` beside the event loop. A refusal has at most 100 of its problems."""
    url = os.environ.get(STORAGE)
    if url is None:
        raise SettingsError("No storage is named for uploads.", next=f"set {STORAGE} for the console")
    loop = asyncio.get_running_loop()

    def transact(steps: Steps[T]) -> T:
        return asyncio.run_coroutine_threadsafe(run_steps(store, steps), loop).result()

    try:
        return await asyncio.to_thread(upload, transact, storage_of(url), asked)
    except UploadRefused as error:
        said = [asdict(one) for one in error.problems[:SAID_MAX]]
        raise Refusal(422, error.code, str(error), problems=said, found=error.found) from None
    except UploadConflict as error:
        raise Refusal(409, error.code, str(error), file_job_id=str(error.file_job_id)) from None
