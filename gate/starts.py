"""Starts of tasks: an occurrence that was sent twice is started once.

A start is a claim in a name space of its own: of the schedule's name and the attempt, under a character that no
schedule's name begins with. So it has the ledger's states: claimed while the task runs, sent when it has ended, in
doubt when its worker died, and then it is granted again. Its holder carries the worker's process (processes.key_of),
so that a gate that is restarted knows whether the worker lives.
"""

from datetime import timedelta

from gate import claims, errors
from gate.claims import MARK, Ask
from gate.interface import StartIn
from gate.rules import SendPolicy

POLICY = SendPolicy(on_doubt="resend")
LEASE_SECONDS = timedelta(days=366).total_seconds()
"""A task runs as long as it likes: its start ends with its worker."""
ATTEMPT_MAX = 1_000_000


def is_start(schedule: str) -> bool:
    """Whether the ledger's name of a schedule is that of starts."""
    return schedule.startswith(MARK)


def name(schedule: str, attempt: int) -> str:
    """The ledger's name of the starts of a schedule."""
    return f"{MARK}{attempt}{MARK}{schedule}"


def ask(start: StartIn, token: str, process: str | None) -> Ask:
    """Check a start; raises errors.InvalidClaim with the field, what is wrong with it and what is allowed.

    `process`: the worker's, None for one that cannot be told.
    """
    claims.check_schedule(start.schedule)
    claims.check_text("holder", start.holder, claims.HOLDER_BYTES)
    claims.check_text("token", token, claims.TOKEN_CHARACTERS)
    attempt = start.attempt or 0
    if not 0 <= attempt <= ATTEMPT_MAX:
        raise errors.InvalidClaim(field="attempt", reason=f"{attempt} is outside 0 to {ATTEMPT_MAX}")
    return Ask(
        schedule=name(start.schedule, attempt),
        holder=f"{start.holder}{MARK}{process or ''}",
        token=token,
        at=claims.check_instant("at", start.at),
        every=None,
        once=True,  # it is forgotten as one-offs are
        deadline=None,
        lease=LEASE_SECONDS,
        title=None,
        policy=POLICY,
        start=True,
    )


def who(holder: str) -> str:
    """The holder, as people shall read it."""
    return holder.partition(MARK)[0]


def process_of(holder: str) -> str | None:
    """The process in the ledger's holder of a start, if it is known."""
    return holder.partition(MARK)[2] or None
