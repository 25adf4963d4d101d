"""Evidence: a merchant's archive of dispute evidence; each file is attached to its case once, and two notices say how
it went.

    app.include(evidence.with_evidence(CaseApi(url=…), NatsBus(url=…), files, mail=…))     # relays and workers run it

Importing this needs no library of its extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redrive import System
from redrive.kit import loader, modules_of
from redrive.systems.evidence.cli import command
from redrive.systems.evidence.views import VIEWS

if TYPE_CHECKING:
    # isort: off
    # fmt: off
    from redrive.systems.evidence.bus import KafkaBus as KafkaBus, NatsBus as NatsBus
    from redrive.systems.evidence.case_api import CaseApi as CaseApi
    from redrive.systems.evidence.checking import check as check
    from redrive.systems.evidence.configured import with_evidence as with_evidence
    from redrive.systems.evidence.settings import EvidenceSettings as EvidenceSettings
    from redrive.systems.evidence.storage import Storage as Storage, storage_of as storage_of
    from redrive.systems.evidence.uploading import (
        Upload as Upload, UploadConflict as UploadConflict, Uploaded as Uploaded, upload as upload,
    )
    from redrive.systems.evidence.upload_limits import UploadLimits as UploadLimits
    from redrive.systems.evidence.problems import UploadRefused as UploadRefused
    # fmt: on
    # isort: on

_MODULE_OF = modules_of(
    {
        "redrive.systems.evidence.bus": "KafkaBus NatsBus",
        "redrive.systems.evidence.case_api": "CaseApi",
        "redrive.systems.evidence.checking": "check",
        "redrive.systems.evidence.configured": "with_evidence",
        "redrive.systems.evidence.problems": "UploadRefused",
        "redrive.systems.evidence.settings": "EvidenceSettings",
        "redrive.systems.evidence.storage": "Storage storage_of",
        "redrive.systems.evidence.uploading": "Upload UploadConflict Uploaded upload",
        "redrive.systems.evidence.upload_limits": "UploadLimits",
    }
)
__all__ = sorted([*_MODULE_OF, "system"])  # noqa: PLE0605 - the names are listed once
if not TYPE_CHECKING:
    __getattr__ = loader(__name__, _MODULE_OF)


def _router() -> Any:
    from redrive.systems.evidence.router import router

    return router


def _from_settings(table: Mapping[str, Any], file: Path) -> System:
    from redrive.systems.evidence.toml_evidence import from_settings

    return from_settings(table, file)


def _demo(**values: Any) -> int:
    """A merchant's archive, the Case API that attaches its files, and the two mails that come of it."""
    from redrive.kit.demo import Demo
    from redrive.systems.evidence.demo.play import run

    console = values.pop("console")
    return run(Demo(**values), console)


def _prove(**values: Any) -> Any:
    """Attach files while relays and workers are killed and the broker is restarted, with lost replies, 503, damaged
    files and deleted cases.

    The Case API's own ledger and the received mails decide: each file attached exactly once, or failed with its true
    class; N1 once and N2 once for each upload, with the judge's numbers; roll-ups as recomputed. Exit code 1 means that
    one of these is not so.
    """
    from redrive.systems.evidence.prove.prove import prove

    return prove(**values)


system = System(
    name="evidence",
    migrations=files(__name__) / "sql",
    cli=command,
    views=VIEWS,
    router=_router,
    streamed=["/jobs"],
    demo=_demo,
    prove=_prove,
    from_settings=_from_settings,
)
