"""Public names that are loaded when they are first used."""

import sys
from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any


def export(package: str, home: Mapping[str, str], *, also: Collection[str] = ()) -> list[str]:
    """Give a package names that it imports when they are used; returns its `__all__`.

    home: module of the package -> its names, with spaces between them. also: names that the package has at once. Type
    checkers read the imports below `if TYPE_CHECKING`; a `__getattr__` that they saw would accept every misspelt name.
    """
    module_of = {name: f"{package}.{module}" for module, names in home.items() for name in names.split()}

    def load(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    vars(sys.modules[package])["__getattr__"] = load
    return sorted([*module_of, *also])
