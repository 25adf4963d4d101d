"""What the commands of evidence share."""

from __future__ import annotations

from typing import Final

from redrive.kit.cli import system_command
from redrive.systems.evidence.names import SYSTEM

evidence_command: Final = system_command(SYSTEM)
