"""Workers in PostgreSQL: heartbeat and the end of one. SQL: `sql/verbs/worker.sql`."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from redrive.ports import Now
from redrive.ports.workers import ConsumerReport, WorkerInfo, WorkerVerbs
from redrive.store.runtime.verbs import from_port
from redrive.store.runtime.verbs.connected import Connected


class PostgresWorkers(Connected):
    """`redrive.ports.workers.WorkerVerbs`."""

    async def heartbeat_worker(
        self, worker: WorkerInfo, consumers: Sequence[ConsumerReport], *, now: Now = None
    ) -> None:
        await self.value("heartbeat_worker_1", *worker, json.dumps([asdict(one) for one in consumers]), now)

    deregister_worker = from_port.value(WorkerVerbs.deregister_worker)
