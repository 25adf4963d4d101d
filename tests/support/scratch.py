"""A temporary directory that the server's user can pass, whoever that is.

pytest's own directories admit only their owner; a server that root starts as `nobody` could not reach its
data there. `./test` names in `REDRIVE_TEST_SCRATCH` where such directories are made.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch(prefix: str = "redrive-test-") -> Iterator[Path]:
    """The directory, removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=os.environ.get("REDRIVE_TEST_SCRATCH")))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
