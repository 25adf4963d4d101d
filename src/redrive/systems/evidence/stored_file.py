"""The stored file of an attempt, read whole and compared with what was uploaded, right before it is attached."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Final, Protocol

from redrive import Terminal
from redrive.errors import Unreachable
from redrive.systems.evidence.attachment import Attachment

S3_NOT_FOUND: Final = "S3_NOT_FOUND"


class StoredFiles(Protocol):
    """Where the files are: `Storage` of `storage.py`. An exception whose `code` is S3_NOT_FOUND: there is none."""

    def chunks(self, key: str, /) -> AsyncIterator[bytes]: ...


async def checked_content(files: StoredFiles, wanted: Attachment) -> bytes | Terminal:
    """Or why there is none; more than the file's size is never read."""
    content = bytearray()
    try:
        async for chunk in files.chunks(wanted.s3_key):
            content += chunk
            if len(content) > wanted.file_size_bytes:
                break
    except Unreachable:
        return Terminal("SYSTEM_ERROR", "The store of the files did not answer; nothing was sent.")
    except Exception as error:
        if getattr(error, "code", None) != S3_NOT_FOUND:
            raise
        return Terminal(S3_NOT_FOUND, "The stored file is missing.")
    if len(content) != wanted.file_size_bytes or sha256(content).hexdigest() != wanted.sha256:
        return Terminal("CORRUPTED_FILE", "The stored file is not the one that was uploaded.")
    return bytes(content)
