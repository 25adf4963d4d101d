"""The HTTP of the Case API: a file with its key, name and digest, and a question by the key."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Final, Literal
from urllib.parse import quote, urlsplit

import aiohttp

from redrive import Attempt, CannotTell
from redrive.kit.transport import Answer, LookupAnswer
from redrive.systems.evidence.attachment import Attachment
from redrive.systems.evidence.case_codes import LOOKUP_PREFIX, answer_of, found_of
from redrive.transports.http import Egress, EgressRefused, HttpTransport
from redrive.transports.http.client import Client, Reply, Request

CONNECT_SECONDS: Final = 5.0
FILE_TYPE: Final = "application/octet-stream"
LimitBy = Literal["tenant"] | None

_file: ContextVar[tuple[Attachment, bytes]] = ContextVar("file of an attempt")


class CaseCaller(HttpTransport):
    """url: of the Case API, without a slash at its end or with one."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str], egress: Egress, connections: int, limit_by: LimitBy
    ) -> None:
        self._base = url.rstrip("/")
        egress = _with_port_of(egress, self._base)
        super().__init__(
            lambda attempt: self._place(Attachment.read(attempt.payload)),
            headers=headers,
            egress=egress,
            connect_seconds=CONNECT_SECONDS,
            connections=connections,
            limit_by=limit_by,
        )
        self._asking = Client(egress, connections=connections, connect_seconds=CONNECT_SECONDS)
        self._ask_headers = dict(headers)

    async def attach(self, attempt: Attempt, wanted: Attachment, content: bytes) -> Answer:
        _file.set((wanted, content))
        return await self.send(attempt)

    async def ask(self, wanted: Attachment) -> LookupAnswer:
        """A Case API that does not answer cannot tell."""
        url = f"{self._place(wanted)}/{quote(wanted.key, safe='')}"
        try:
            return found_of(await self._asking.ask(Request("GET", url, headers=self._ask_headers)))
        except EgressRefused as refused:
            return CannotTell(f"{LOOKUP_PREFIX}EGRESS_REFUSED", str(refused))
        except (aiohttp.ClientError, OSError):
            return CannotTell(f"{LOOKUP_PREFIX}NETWORK_TIMEOUT", "The Case API did not answer a question.")

    def content(self, attempt: Attempt) -> tuple[dict[str, str], bytes]:  # noqa: ARG002 - the file is not in the message
        wanted, content = _file.get()
        return {
            "Content-Type": wanted.file_type or FILE_TYPE,
            "X-Attachment-Key": quote(wanted.key, safe=""),
            "X-File-Name": quote(wanted.file_name, safe=""),
            "X-Content-SHA256": wanted.sha256,
            "X-Attempt": str(wanted.attempt),
        }, content

    def answer(self, reply: Reply) -> Answer:
        return answer_of(reply)

    async def aclose(self) -> None:
        await super().aclose()
        await self._asking.aclose()

    def _place(self, wanted: Attachment) -> str:
        return f"{self._base}/cases/{wanted.case_id}/attachments"


def _with_port_of(egress: Egress, url: str) -> Egress:
    """The settings name the URL, so its port is meant; others must keep to the list."""
    port = urlsplit(url).port
    return egress if port is None else replace(egress, ports=frozenset({*(egress.ports or ()), port}))
