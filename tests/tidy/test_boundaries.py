"""Every call that leaves the process has a step around it: a boundary that a crash can fall on has a failpoint.

Found in the source itself, so that a new call without one fails here and not in production.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import events
from redrive.kit.proof import failpoints
from redrive.ports import Store
from redrive.prove.failpoint_scenarios import RECIPES

ROOT = Path(events.__file__).parent
SOURCES = sorted([*(ROOT / "relay").rglob("*.py"), *(ROOT / "recover").rglob("*.py")])
VERBS = {name for name, member in inspect.getmembers(Store) if inspect.iscoroutinefunction(member)}
# A question about the clock, or about what is held back, changes nothing; nothing is decided between it and what
# follows.
READ_ONLY = {"leases_of", "limit_keys", "now"}


def calls_without_step(tree: ast.AST, *, inside: bool = False) -> Iterator[tuple[int, str]]:
    """Uses of `store.verb`, `self._store.verb` or `context.store.verb` neither in a `with ….step(…)` nor in the
    arguments of a `….step(…)`."""
    for node in ast.iter_child_nodes(tree):
        steps = [item.context_expr for item in node.items] if isinstance(node, ast.With | ast.AsyncWith) else [node]
        stepped = inside or any(map(is_step, steps))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            stepped = False
        verb = store_verb(node)
        if verb and not stepped:
            yield node.lineno, verb  # type: ignore[attr-defined]  # a call has a line
        yield from calls_without_step(node, inside=stepped)


def is_step(call: ast.AST) -> bool:
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "step"


def store_verb(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Attribute):
        return None
    owner = ast.unparse(node.value)
    named = owner.rpartition(".")[2] in {"store", "_store"} and node.attr in VERBS - READ_ONLY
    return node.attr if named else None


def strings_given_to(tree: ast.AST, function: str) -> set[str]:
    """First arguments, where they are plain strings, of every call of a function or method of that name."""
    return {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
        and ast.unparse(node.func).rpartition(".")[2] == function
    }


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_call_of_the_store_is_a_step(path: Path) -> None:
    assert list(calls_without_step(ast.parse(path.read_text("utf-8")))) == []


def test_a_call_without_a_step_would_be_found() -> None:
    bare = "async def f(self):\n with self._events.step('claim'):\n  pass\n await self._store.claim(w)\n"
    hidden = "with events.step('x'):\n async def f(store):\n  await store.reap(limit=1)\n"
    kept = "async def f(self):\n verb = self._store.claim\n await self._context.step('claim', verb)\n"
    called = "async def f(self):\n await self._context.step('claim', lambda: self._store.claim(w))\n"
    good = "async def f(store):\n with events.step('reap') as added:\n  await again(lambda: store.reap(limit=1))\n"
    assert list(calls_without_step(ast.parse(bare))) == [(4, "claim")]
    assert list(calls_without_step(ast.parse(hidden))) == [(3, "reap")]
    assert list(calls_without_step(ast.parse(kept))) == [(2, "claim")]
    assert list(calls_without_step(ast.parse(called))) == []
    assert list(calls_without_step(ast.parse(good))) == []


def test_every_step_of_the_list_is_taken_somewhere_and_no_other() -> None:
    taken = {name for path in SOURCES for name in strings_given_to(ast.parse(path.read_text("utf-8")), "step")}
    inner = strings_given_to(ast.parse((ROOT / "store/runtime/verbs/settling.py").read_text("utf-8")), "on_step")
    assert taken | inner == set(events.STEPS)
    assert inner - taken == set(events.INNER_STEPS)


def test_there_is_a_failpoint_for_every_boundary() -> None:
    steps = set(events.STEPS) - failpoints.AFTER_A_JUMP
    assert {f"{step}.start" for step in steps} <= set(failpoints.boundaries())
    assert {f"{step}.stop" for step in steps - events.INNER_STEPS} <= set(failpoints.boundaries())
    assert set(failpoints.boundaries()) <= events.NAMES
    assert set(RECIPES) <= set(events.STEPS)
