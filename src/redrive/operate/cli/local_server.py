"""Finds the embedded server of this machine, so that `redrive status` in a second terminal needs no DSN."""

import hashlib
import os
import shlex
import shutil
import sys
from pathlib import Path

from redrive.operate import embedded
from redrive.operate.embedded import postmaster
from redrive.operate.embedded.server import socket_dsn
from redrive.settings import Settings


def demo_home() -> Path:
    """One for every clone or installation."""
    package = Path(__file__).resolve().parents[2]
    return embedded.default_data_dir().parent / f"demo-{hashlib.sha256(os.fsencode(package)).hexdigest()[:8]}"


def command_line(*words: object) -> str:
    """As a shell in another terminal and directory understands it."""
    program = Path(sys.argv[0])
    is_script = program.name == "redrive" and shutil.which(str(program.absolute()))
    command = [str(program.absolute())] if is_script else [sys.executable, "-m", "redrive"]
    return shlex.join([*command, *map(str, words)])


def running_dsn(settings: Settings) -> str | None:
    """Of `data_dir`, or of `up`, or of the demo."""
    usual = (embedded.default_data_dir(), demo_home() / "postgres")
    places = (settings.data_dir,) if settings.data_dir else usual
    return next((dsn for place in places if (dsn := _dsn_of(place))), None)


def _dsn_of(place: Path) -> str | None:
    try:
        running = postmaster.running_on(place.absolute())
    except OSError:  # another user's directory
        return None
    return socket_dsn("postgres", running.socket_dir, running.port) if running else None
