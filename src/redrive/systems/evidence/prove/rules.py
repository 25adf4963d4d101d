"""What the Case API's ledger and the received mails must say of the uploads. Pure: no database, no process.

The judge believes the ledger and the plan. From them it knows of each file whether it is attached, and if not, why; our
tables and the numbers of the notices must say the same.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email import message_from_string, policy
from functools import cached_property
from typing import Final
from uuid import UUID

from redrive.kit.proof.journal import Line
from redrive.systems.evidence.names import attachment_key
from redrive.systems.evidence.prove.plan import Job

SHOWN: Final = 10
ATTEMPTS_MAX: Final = 3
_NUMBER: Final = re.compile(r"^ {2}(?P<label>[A-Za-z][A-Za-z ,]*): +(?P<number>\d+)\r?$", re.MULTILINE)
_TOTAL, _ATTACHED, _RECOVERED, _WAITING, _PERMANENT = (
    "Files in all",
    "Attached",
    "of these, attached by a retry",
    "To be tried again",
    "Cannot be retried",
)


@dataclass(frozen=True)
class Artifact:
    """As our table has it at the end."""

    id: UUID
    attachment_status: str
    retry_status: str
    error_code: str | None
    attempt_count: int


@dataclass(frozen=True)
class Rollup:
    row_id: UUID
    count: int
    attached: int
    failed: int
    status: str


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """ledger: of the Case API. mails: as the server received them, headers and text, in their order."""

    jobs: Sequence[Job]
    ledger: Sequence[Line]
    mails: Sequence[str]
    artifacts: Sequence[Artifact]
    rollups: Sequence[Rollup]

    @cached_property
    def by_id(self) -> Mapping[UUID, Artifact]:
        return {one.id: one for one in self.artifacts}

    @cached_property
    def attached(self) -> Counter[str]:
        return Counter(line["key"] for line in self.ledger if line["log"] == "attached")

    @cached_property
    def refused(self) -> Mapping[str, set[int]]:
        """The attempts that were refused so that another one may follow."""
        found: defaultdict[str, set[int]] = defaultdict(set)
        for line in self.ledger:
            if line["log"] == "refused" and line["status"] == 503:
                found[line["key"]].add(line["attempt"])
        return found

    @cached_property
    def recovered(self) -> frozenset[str]:
        """Keys that a later attempt than the first attached. A refusal alone does not make it one: a relay that is
        killed before it keeps the refusal leaves its attempt to another relay.
        """
        return frozenset(line["key"] for line in self.ledger if line["log"] == "attached" and line["attempt"] > 1)

    def is_attached(self, id: UUID) -> bool:
        return self.attached[attachment_key(id)] > 0


def judged(evidence: Evidence) -> list[str]:
    rules = (once, classes, recorded, asked_first, retried, notices, rollups)
    return [f"[{rule.__name__}] {sentence}" for rule in rules for sentence in rule(evidence)]


def once(evidence: Evidence) -> Iterator[str]:
    """No file is attached twice, and none that was not uploaded."""
    known = {attachment_key(file.id) for job in evidence.jobs for file in job.files}
    yield from _listed("were attached more than once", [key for key, count in evidence.attached.items() if count > 1])
    yield from _listed("were attached and never uploaded", [key for key in evidence.attached if key not in known])


def classes(evidence: Evidence) -> Iterator[str]:
    """A file that is not attached has failed, with the class that is true of it."""
    for job in evidence.jobs:
        for row in job.rows:
            for file in row.files:
                found = evidence.by_id.get(file.id)
                if found is None:
                    yield f"File {file.id} is not in our table."
                elif not evidence.is_attached(file.id):
                    allowed = {"CASE_NOT_FOUND"} if row.is_deleted else set()
                    allowed |= {"CORRUPTED_FILE"} if file.is_corrupted else set()
                    if ATTEMPTS_MAX in evidence.refused.get(attachment_key(file.id), ()):
                        allowed.add("503")
                    if found.error_code not in allowed:
                        yield f"File {file.id} failed with {found.error_code}; true is {sorted(allowed) or 'nothing'}."


def recorded(evidence: Evidence) -> Iterator[str]:
    """Our table says of each file what the ledger says, and nothing is left open."""
    missed = [
        one for one in evidence.artifacts if evidence.is_attached(one.id) != (one.attachment_status == "ATTACHED")
    ]
    yield from _listed("are recorded otherwise than the ledger has them", [str(one.id) for one in missed])
    ends = {("ATTACHED", "PENDING"), ("ATTACHED", "RETRY_SUCCESS"), ("FAILED", "PERMANENT_FAILED")}
    left = [one for one in evidence.artifacts if (one.attachment_status, one.retry_status) not in ends]
    yield from _listed("have no final status", [f"{one.id} {one.attachment_status}/{one.retry_status}" for one in left])
    beyond = [str(one.id) for one in evidence.artifacts if not 0 <= one.attempt_count <= ATTEMPTS_MAX]
    yield from _listed("were attempted beyond the limit", beyond)


def asked_first(evidence: Evidence) -> Iterator[str]:
    """A file is not sent again before its key was asked about, whatever the first request ended with."""
    open_requests: set[str] = set()
    broken = []
    for line in evidence.ledger:
        key = line.get("key", "")
        if line["log"] == "asked":
            open_requests.discard(key)
        elif line["log"] == "request":
            if key in open_requests:
                broken.append(key)
            open_requests.add(key)
    yield from _listed("were sent again without a question", broken)


def retried(evidence: Evidence) -> Iterator[str]:
    """An attempt follows only a refusal of the one before it, and none follows the third."""
    refused: dict[str, int] = {}
    broken = []
    for line in evidence.ledger:
        if line["log"] == "request":
            last = refused.get(line["key"], 0)
            if not max(last, 1) <= line["attempt"] <= min(last + 1, ATTEMPTS_MAX):
                broken.append(f"{line['key']} attempt {line['attempt']}")
        elif line["log"] == "refused" and line["status"] == 503:
            refused[line["key"]] = max(refused.get(line["key"], 0), line["attempt"])
    yield from _listed("were requested without a refused attempt before them, or beyond the limit", broken)


def notices(evidence: Evidence) -> Iterator[str]:
    """For each upload one N1 and one N2, in this order, with the numbers that the judge knows."""
    by_archive: dict[str, list[Mapping[str, int]]] = defaultdict(list)
    for mail in evidence.mails:
        archive, numbers = read_mail(mail)
        by_archive[archive].append(numbers)
    yield from _listed("had a mail and no upload", by_archive.keys() - {job.archive for job in evidence.jobs})
    for job in evidence.jobs:
        kinds = [_RECOVERED in numbers for numbers in by_archive[job.archive]]
        if kinds != [False, True]:
            said = ", ".join("N2" if kind else "N1" for kind in kinds) or "no mail"
            yield f"{job.archive} had {said}; it must be N1, N2."
            continue
        first, last = by_archive[job.archive]
        yield from _numbers_of_n1(evidence, job, first)
        wanted = wanted_of(evidence, job)
        if {label: last.get(label, 0) for label in wanted} != wanted:
            yield f"N2 of {job.archive} says {dict(last)}; the judge counts {wanted}."


def wanted_of(evidence: Evidence, job: Job) -> Mapping[str, int]:
    """The numbers of N2, from ledger and plan."""
    ids = [file.id for file in job.files]
    attached = [id for id in ids if evidence.is_attached(id)]
    return {
        _TOTAL: len(ids),
        _ATTACHED: len(attached),
        _RECOVERED: sum(attachment_key(id) in evidence.recovered for id in attached),
        _PERMANENT: len(ids) - len(attached),
    }


def _numbers_of_n1(evidence: Evidence, job: Job, said: Mapping[str, int]) -> Iterator[str]:
    """Retries may begin before the last first attempt has ended: attached is between the first attempts' and the last
    count."""
    last = wanted_of(evidence, job)
    waiting = said.get(_WAITING, 0)
    if said.get(_TOTAL) != last[_TOTAL] or said[_ATTACHED] + waiting + said[_PERMANENT] != last[_TOTAL]:
        yield f"N1 of {job.archive} does not add up: {dict(said)}."
    if not last[_ATTACHED] - last[_RECOVERED] <= said[_ATTACHED] <= last[_ATTACHED]:
        yield f"N1 of {job.archive} says {said[_ATTACHED]} attached; the ledger has {last[_ATTACHED]} in the end."


def rollups(evidence: Evidence) -> Iterator[str]:
    """Each row's counts and status are those of its files."""
    stored = {one.row_id: one for one in evidence.rollups}
    for job in evidence.jobs:
        for row in job.rows:
            attached = sum(evidence.is_attached(file.id) for file in row.files)
            failed = len(row.files) - attached
            status = "COMPLETED" if not failed else "PARTIALLY_FAILED" if attached else "FAILED"
            wanted = Rollup(row.id, len(row.files), attached, failed, status)
            if stored.get(row.id) != wanted:
                yield f"Row {row.id} is {stored.get(row.id)}; it must be {wanted}."


def read_mail(mail: str) -> tuple[str, Mapping[str, int]]:
    """The archive that a notice is about, and its numbers by their labels."""
    message = message_from_string(mail, policy=policy.default)
    body = message.get_body(("plain",))
    text = body.get_content() if body is not None else ""
    archive = re.search(r"evidence-\d+\.zip", str(message["Subject"]))
    return archive[0] if archive else "", {one["label"]: int(one["number"]) for one in _NUMBER.finditer(text)}


def _listed(what: str, found: Collection[str]) -> Iterator[str]:
    if found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        yield f"{len(found)} {what}: {', '.join(sorted(found)[:SHOWN])}{more}."
