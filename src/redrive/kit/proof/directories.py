"""Directories of proofs."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_directory() -> Iterator[Path]:
    """With a short path that the server's user can pass."""
    directory = Path(tempfile.mkdtemp(prefix="redrive-prove-"))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
