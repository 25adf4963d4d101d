"""Directories of proofs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_place() -> Iterator[Path]:
    """A directory with a short path that the server's user can pass, whichever user that is; removed at the end."""
    place = Path(tempfile.mkdtemp(prefix="redrive-prove-"))
    place.chmod(0o711)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
