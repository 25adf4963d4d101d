"""The system as an application or a settings file puts it together: Case API, bus, stored files, notices.

    app.include(evidence.with_evidence(CaseApi(url=…), NatsBus(url=…), storage_of("file:///srv/evidence"), mail=…))

Relays publish the topics, call the Case API, schedule retries and send notices; workers consume the topics.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from redrive import Destination, System
from redrive.systems.evidence.bus import Bus, topic_consumers, topic_destinations
from redrive.systems.evidence.case_api import CaseApi
from redrive.systems.evidence.gates import batches_of
from redrive.systems.evidence.metrics import METRICS
from redrive.systems.evidence.notice_destinations import mail_destination, webhook_destination
from redrive.systems.evidence.recording import recording
from redrive.systems.evidence.scheduler import duty as scheduler_duty
from redrive.systems.evidence.settings import EvidenceSettings
from redrive.systems.evidence.stored_file import StoredFiles
from redrive.systems.evidence.sweep import SweptFiles
from redrive.systems.evidence.sweep import duty as sweep_duty
from redrive.transports.http import Egress


def with_evidence(
    case_api: CaseApi,
    bus: Bus,
    files: StoredFiles,
    *,
    mail: Any = None,
    webhooks: Egress | None = None,
    settings: EvidenceSettings | None = None,
    topics_by_category: bool = False,
    random: Random | None = None,
) -> System:
    """mail: an `SmtpTransport`, or None: no notice goes by mail. webhooks: where merchants' webhooks may be."""
    from redrive.systems.evidence import system

    limits = settings or EvidenceSettings()
    batches = batches_of(limits)
    consuming = topic_consumers(bus, limits, topics_by_category=topics_by_category)
    notices: list[Destination] = [webhook_destination(egress=webhooks)]
    if mail is not None:
        notices.append(mail_destination(mail))
    sweeping = [sweep_duty(files)] if isinstance(files, SweptFiles) else []
    record = recording(limits, random or Random())
    return replace(
        system,
        destinations=[
            *topic_destinations(bus, topics_by_category=topics_by_category),
            *consuming.destinations.values(),
            case_api.destination(files, record, deadline_seconds=limits.deadline_seconds),
            *notices,
        ],
        consumers=[*consuming.consumers.values()],
        duties=[scheduler_duty(limits), batches.duty(every_seconds=limits.gates_every_seconds), *sweeping],
        metrics=METRICS,
    )
