"""Parts of a system that are imported when they are used.

Every command imports every system, so importing one needs no library of its extra: its router, its demo and its proof
are named here and found later.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["later", "router_of"]


def later(module: str, name: str, *, about: str | None = None) -> Callable[..., Any]:
    """A function that imports the module and calls its function `name`. about: its help on the command line."""

    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(module), name)(*args, **options)

    call.__doc__ = about
    return call


def router_of(module: str) -> Callable[[], Any]:
    """A function that imports the module and returns its `router`."""
    return lambda: import_module(module).router
