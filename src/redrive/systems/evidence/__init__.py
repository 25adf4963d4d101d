"""Evidence: a merchant's archive of dispute evidence; each file is attached to its case once, and two notices say how
it went.

Importing this needs no library of its extra.
"""

from __future__ import annotations

from importlib.resources import files

from redrive import System
from redrive.systems.evidence.cli import command
from redrive.systems.evidence.views import VIEWS

__all__ = ["system"]

system = System(name="evidence", migrations=files(__name__) / "sql", cli=command, views=VIEWS)
