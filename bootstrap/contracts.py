"""Checks the import contracts of pyproject.toml, less the modules that are not there.

import-linter refuses a contract that names a missing module; the contracts name the whole design. What is
left out is printed, and a contract that keeps nothing to check is left out whole. Called by `./test`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODULE_LISTS = ("modules", "source_modules", "forbidden_modules")
Contract = dict[str, Any]


def main() -> int:
    """Check what can be checked; the exit code of import-linter."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    contracts: list[Contract] = config.pop("contracts")
    missing = sorted({name for contract in contracts for name in named_by(contract) if not exists(name)})
    if missing:
        print(f"not there, left out: {', '.join(missing)}", flush=True)
    kept = [contract for contract in (without(contract, missing) for contract in contracts) if is_whole(contract)]
    with tempfile.NamedTemporaryFile("w", suffix=".ini", encoding="utf-8") as file:
        file.write(as_ini("importlinter", config))
        for contract in kept:
            file.write(as_ini(f"importlinter:contract:{contract.pop('id')}", contract))
        file.flush()
        command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--config", file.name]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def named_by(contract: Contract) -> list[str]:
    """Every module of ours that the contract names."""
    names = [name for key in MODULE_LISTS for name in contract.get(key, [])]
    return [name for name in names if name.startswith("redrive")]


def exists(name: str) -> bool:
    """Whether there is code behind the name; a package needs its __init__.py to be seen."""
    path = ROOT / "src" / Path(*name.removesuffix(".*").split("."))
    if name.endswith(".*"):
        return len([file for file in path.glob("*.py") if file.name != "__init__.py"]) > 1
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def without(contract: Contract, missing: list[str]) -> Contract:
    """The contract less the modules that are missing."""
    lists = {key: [name for name in contract[key] if name not in missing] for key in MODULE_LISTS if key in contract}
    return {**contract, **lists}


def is_whole(contract: Contract) -> bool:
    """Whether there is something left to check on both sides."""
    return all(contract[key] for key in MODULE_LISTS if key in contract)


def as_ini(section: str, values: Contract) -> str:
    """A section in the other format that import-linter reads; the standard library writes no TOML."""
    lines = [f"[{section}]"]
    for key, value in values.items():
        lines.append(
            f"{key} =" + ("".join(f"\n    {item}" for item in value) if isinstance(value, list) else f" {value}")
        )
    return "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    sys.exit(main())
