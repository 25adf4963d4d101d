"""The Django migration of this version, and whether it was made for the SQL that is there.

    python -m tools.reference --write

A project learns by a new migration that there is something to upgrade. One version has one migration: while a version
is not released, its migration is stamped anew; the first change of SQL after a release, with the new version in
`pyproject.toml`, adds the next file.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final, NamedTuple

import redrive
from redrive.store.migrations.files import load

MIGRATIONS: Final = Path(redrive.__file__).parent / "django" / "migrations"
_STAMP: Final = re.compile(r'Upgrade\(version="(?P<version>[^"]+)", fingerprint="(?P<fingerprint>[0-9a-f]+)"\)')
_NEXT: Final = '''"""The schema of Redrive {version}."""

from __future__ import annotations

from django.db import migrations

from redrive.django.operations import Upgrade


class Migration(migrations.Migration):
    atomic = False  # the upgrade has transactions of its own
    dependencies = [("redrive", "{before}")]
    operations = [Upgrade(version="{version}", fingerprint="{fingerprint}")]
'''


class Stamp(NamedTuple):
    version: str
    fingerprint: str


def wanted() -> Stamp:
    """The version, and a digest of every file that its migrator runs."""
    (engine,) = load()
    files = sorted((file.label, file.checksum) for file in (*engine.numbered, *engine.verbs))
    return Stamp(redrive.__version__, hashlib.sha256(repr(files).encode()).hexdigest()[:16])


def found(directory: Path = MIGRATIONS) -> Stamp:
    """What the newest migration says."""
    match = _STAMP.search(_newest(directory).read_text(encoding="utf-8"))
    assert match is not None
    return Stamp(**match.groupdict())


def write(directory: Path = MIGRATIONS) -> None:
    newest, stamp = _newest(directory), wanted()
    if found(directory).version == stamp.version:
        text = newest.read_text(encoding="utf-8")
        newest.write_text(_STAMP.sub(_call(stamp), text), encoding="utf-8")
        return
    number = int(newest.name[:4]) + 1
    name = f"{number:04d}_redrive_{re.sub(r'[^0-9a-z]+', '_', stamp.version)}.py"
    (directory / name).write_text(_NEXT.format(before=newest.stem, **stamp._asdict()), encoding="utf-8")


def _call(stamp: Stamp) -> str:
    return f'Upgrade(version="{stamp.version}", fingerprint="{stamp.fingerprint}")'


def _newest(directory: Path) -> Path:
    return max(directory.glob("[0-9]*.py"))
