"""Loads the app that `module:name` names."""

import importlib
import sys
from pathlib import Path

from redrive.app import App
from redrive.errors import InvalidValue


def load_app(spec: str) -> App:
    """`shop:app` is the object `app` of the module `shop`, found from the current directory or the Python path."""
    module_name, _, name = spec.partition(":")
    if not module_name:
        raise InvalidValue(f"{spec!r} names no app; write it as module:name, for example shop:app.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        raise InvalidValue(f"There is no module {module_name!r} here or on the Python path.") from error
    app = getattr(module, name or "app", None)
    if not isinstance(app, App):
        raise InvalidValue(f"{module_name}:{name or 'app'} is {type(app).__name__}, not a redrive.App.")
    return app
