"""Evidence: a merchant's archive of dispute evidence; each file is attached to its case once, and two notices say how
it went.

    app.include(evidence.with_evidence(CaseApi(url=…), NatsBus(url=…), files, mail=…))     # relays and workers run it

Importing this needs no library of its extra.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from redrive import System
from redrive.kit import export
from redrive.kit.parts import later, router_of
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

__all__ = export(  # noqa: PLE0605 - the names are listed once
    __name__,
    {
        "bus": "KafkaBus NatsBus",
        "case_api": "CaseApi",
        "checking": "check",
        "configured": "with_evidence",
        "problems": "UploadRefused",
        "settings": "EvidenceSettings",
        "storage": "Storage storage_of",
        "uploading": "Upload UploadConflict Uploaded upload",
        "upload_limits": "UploadLimits",
    },
    also=["system"],
)

_PROVE: Final = """\
Attach files while relays and workers are killed and the broker is restarted, with lost replies, 503, damaged files
and deleted cases.

The Case API's own ledger and the received mails decide: each file attached exactly once, or failed with its true
class; N1 once and N2 once for each upload, with the judge's numbers; roll-ups as recomputed. Exit code 1 means that
one of these is not so.
"""

system = System(
    name="evidence",
    migrations=files(__name__) / "sql",
    cli=command,
    views=VIEWS,
    router=router_of(f"{__name__}.router"),
    streamed=["/jobs"],
    demo=later(f"{__name__}.demo.play", "run"),
    prove=later(f"{__name__}.prove.prove", "prove", about=_PROVE),
    from_settings=later(f"{__name__}.toml_evidence", "from_settings"),
)
