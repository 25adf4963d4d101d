"""Public names that are loaded when they are first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def modules_of(home: Mapping[str, str]) -> dict[str, str]:
    """home: module -> its names, with spaces between them. Returns name -> module."""
    return {name: module for module, names in home.items() for name in names.split()}


def loader(package: str, module_of: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package."""

    def load(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    return load
