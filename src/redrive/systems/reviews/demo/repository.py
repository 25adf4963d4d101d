"""A small git repository whose last change has something to be found: for the demo and the proof."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BEFORE: Final = '''\
"""Totals of a shop."""


def total(prices):
    return sum(prices)
'''
AFTER: Final = '''\
"""Totals of a shop."""

import psycopg

API_KEY = "not-a-real-key-4711"


def total(prices, seen=[]):
    breakpoint()
    try:
        return sum(prices)
    except:
        return 0


def orders(conn, customer):
    return conn.execute(f"SELECT * FROM orders WHERE customer = '{customer}'").fetchall()
'''
_WHO: Final = {"NAME": "Redrive", "EMAIL": "demo@example.org", "DATE": "2026-01-01T00:00:00Z"}


@dataclass(frozen=True, slots=True)
class Repository:
    """base, head: the commit before the last change, and the one with it."""

    path: Path
    base: str
    head: str


def make_repository(path: Path) -> Repository:
    """The commits are the same on every machine. One that is there already is used."""
    if not (path / ".git").exists():
        path.mkdir(parents=True)
        _git(path, "init", "--quiet", "--initial-branch=main")
        for text in (BEFORE, AFTER):
            (path / "shop.py").write_text(text, encoding="utf-8")
            _git(path, "add", "--all")
            _git(path, "commit", "--quiet", "--message", "A change of the shop")
    return Repository(path, _git(path, "rev-parse", "HEAD~1"), _git(path, "rev-parse", "HEAD"))


def _git(path: Path, *arguments: str) -> str:
    command = ["git", "-C", str(path), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **_identity()})
    return done.stdout.strip()


def _identity() -> Mapping[str, str]:
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _WHO.items()}
    return {**who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
