"""A fetch that is put back when its job may not start any more at the moment when it would be committed.

A fetch may be blocked in the database for seconds, and so take a job long after its queue was closed. So the gate's
answer is looked at once more right before the commit of the transaction that the query runs in, on the connector's own
pool: the one that psycopg begins with it, as without us, or one of ours where the pool's connections commit by
themselves. Rolled back, the job waits on as if nobody had touched it. (Giving it back with `retry_job` would count as
an attempt, and fails when a job with the same queueing lock was deferred meanwhile.)

procrastinate has no hook for that. But for a fetch, a JobManager needs nothing of its connector except
`execute_query_one_async`: so each fetch has a JobManager of its own, over a connector that runs this one query in the
transaction. Query, arguments and the making of the Job stay procrastinate's, all names are public, and no fetch sees
another's. Who has replaced `fetch_job` himself, in a subclass or before us, is not passed over: he is served unfenced.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from procrastinate import BaseConnector, PsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job
from procrastinate.manager import JobManager

log = logging.getLogger("procrastinate_gate")

FetchJob = Callable[..., Awaitable[Job | None]]


class Fence:
    """Fetches for one job manager. `fetch_job` is its own method, as it was before ours."""

    def __init__(self, manager: JobManager, fetch_job: FetchJob) -> None:
        self._manager = manager
        self._fetch_job = fetch_job
        self._warned: set[str] = set()

    async def fetch(self, allows: Callable[[str], bool], *args: Any, **named: Any) -> Job | None:
        """Fetch as `fetch_job` does, and put the job back unless `allows(queue)` still says so at the end.

        Raises what `fetch_job` raises.
        """
        connector = self._manager.connector
        if (reason := self._unfenced(connector)) is not None:
            self._warn(reason)
            return await self._fetch_job(*args, **named)
        assert isinstance(connector, PsycopgConnector)
        return await JobManager(FencedConnector(connector, allows)).fetch_job(*args, **named)

    def _unfenced(self, connector: BaseConnector) -> str | None:
        """Why a fetch cannot be put back."""
        if not isinstance(connector, PsycopgConnector):
            return f"{type(connector).__name__} has no pool of psycopg connections"
        if not hasattr(connector, "execute_query_one_async_with_connection"):
            return "this version of procrastinate runs no query on a given connection"
        if not (inspect.ismethod(self._fetch_job) and self._fetch_job.__func__ is JobManager.fetch_job):
            return "fetch_job is not procrastinate's own"
        return None

    def _warn(self, reason: str) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            log.warning("a job that a slow fetch takes after its hours ended cannot be put back: %s", reason)


class FencedConnector(BaseConnector):
    """Runs one query, in a transaction that is rolled back if its job may not start any more."""

    def __init__(self, connector: PsycopgConnector, allows: Callable[[str], bool]) -> None:
        self._connector = connector
        self._allows = allows
        self._late = False

    async def execute_query_one_async(self, query: Any, **arguments: Any) -> dict[str, Any]:
        import psycopg  # procrastinate can be imported without it, and so can we

        try:
            async with self._connector.pool.connection() as connection:
                run = self._connector.execute_query_one_async_with_connection
                one: Callable[[], Awaitable[dict[str, Any]]] = partial(run, connection, query, **arguments)
                if connection.autocommit:
                    async with connection.transaction():
                        row = await one()
                        if not self._may_start(row):
                            raise psycopg.Rollback
                else:  # the query has begun a transaction, and the end of the block commits it: no further round trip
                    row = await one()
                    if not self._may_start(row):
                        await connection.rollback()
        except psycopg.Error as error:
            raise ConnectorException from error
        if not self._late:
            return row
        log.info(
            "job %s of queue %s was fetched too late and is put back: it may not start any more",
            row["id"],
            row["queue_name"],
            extra={"action": "gate_put_back", "job_id": row["id"], "queue": row["queue_name"]},
        )
        return dict.fromkeys(row)

    def _may_start(self, row: dict[str, Any]) -> bool:
        """Asked last of all before the commit."""
        self._late = row["id"] is not None and not self._allows(row["queue_name"])
        return not self._late
