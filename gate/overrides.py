"""Overrides: what an operator ordered over the hours of a rule, until an end."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

import msgspec
from msgspec import Struct

from gate.errors import CallError, InvalidOverride, NoSuchRule
from gate.interface import NotAnInstant, OverrideIn, OverrideInfo, Steer, instant

MOST_DAYS = 366
NOTE_BYTES = 512
KNOWN_SHOWN = 20
"""How many names an error lists."""


class Override(Struct, frozen=True, kw_only=True):
    """One order over one rule. `action` is open or close. `by` and `uid`: the user, as the socket knows him."""

    rule: str
    action: Steer
    until: datetime
    note: str
    by: str
    uid: int
    since: datetime

    def info(self) -> OverrideInfo:
        """As it goes over the wire."""
        return OverrideInfo(
            rule=self.rule, action=self.action, until=self.until, note=self.note, by=self.by, since=self.since
        )


class Overrides(Struct, frozen=True):
    """All orders, by the name of their rule. Never changed: each change gives a new table."""

    table: Mapping[str, Override] = {}

    def get(self, rule: str, now: datetime) -> Override | None:
        """The order in force over a rule at `now`."""
        found = self.table.get(rule)
        return found if found is not None and now < found.until else None

    def as_of(self, at: datetime, now: datetime) -> "Overrides":
        """Those that are to be asked about `at`: what was ordered later says nothing of the past."""
        if at >= now:
            return self
        return Overrides({rule: order for rule, order in self.table.items() if order.since <= at})

    def in_force(self, now: datetime) -> list[Override]:
        """All orders that hold at `now`, by rule."""
        return [order for _, order in sorted(self.table.items()) if now < order.until]

    def expire(self, now: datetime) -> "Overrides":
        """Without those that have ended; itself when none has."""
        kept = {rule: order for rule, order in self.table.items() if now < order.until}
        return self if len(kept) == len(self.table) else Overrides(kept)

    def order(self, request: OverrideIn, rules: Iterable[str], by: str, uid: int, now: datetime) -> "Overrides":
        """Take an order in. `rules`: the names that the configuration has. Raises InvalidOverride and NoSuchRule."""
        if request.action is Steer.AUTO:
            if request.until is not None:
                raise InvalidOverride(field="until", reason="auto ends an override now: leave it out")
            gone = set(matching(request.rule, dict.fromkeys([*rules, *self.table])))
            return Overrides({rule: order for rule, order in self.table.items() if rule not in gone})
        until, note = end_of(request.until, now, InvalidOverride), note_of(request.note, InvalidOverride)
        new = {
            rule: Override(rule=rule, action=request.action, until=until, note=note, by=by, uid=uid, since=now)
            for rule in matching(request.rule, rules)
        }
        return Overrides({**self.table, **new})


NO_OVERRIDES = Overrides()


def matching(pattern: str, rules: Iterable[str]) -> list[str]:
    """The rules that a name or a glob means; a name that is one is never read as a glob. Raises NoSuchRule."""
    names = list(rules)
    found = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise NoSuchRule(rule=pattern, known=names[:KNOWN_SHOWN])
    return found


def end_of(text: str | None, now: datetime, wrong: type[CallError]) -> datetime:
    """When an order ends, which it must; raises `wrong`."""
    if text is None:
        raise wrong(field="until", reason="missing: it has an end")
    try:
        until = instant(text)
    except NotAnInstant as error:
        raise wrong(field="until", reason=str(error)) from None
    if until <= now:
        raise wrong(field="until", reason=f"{text!r} is not in the future")
    if until - now > timedelta(days=MOST_DAYS):
        raise wrong(field="until", reason=f"{text!r} is more than {MOST_DAYS} days ahead")
    return until


def note_of(text: str | None, wrong: type[CallError]) -> str:
    """Why somebody gives an order, which he must say; raises `wrong`."""
    note = (text or "").strip()
    if not note:
        raise wrong(field="note", reason="missing: say why, so that others know")
    if (size := len(note.encode())) > NOTE_BYTES:
        raise wrong(field="note", reason=f"{size} bytes are too long: at most {NOTE_BYTES} are allowed")
    if not note.isprintable():
        raise wrong(field="note", reason=f"{note!r} is not one line of printable text")
    return note


# -- the store, which keeps one note per rule name


def changes(before: Overrides, after: Overrides) -> dict[str, bytes | None]:
    """What the store must write so that it holds `after` where it held `before`: by rule, None to forget."""
    written: dict[str, bytes | None] = {rule: None for rule in before.table if rule not in after.table}
    for rule, order in after.table.items():
        if before.table.get(rule) != order:
            written[rule] = msgspec.json.encode(order)
    return written


def from_notes(notes: Mapping[str, bytes]) -> tuple[Overrides, list[str]]:
    """Read what the store keeps; and a line for each note that cannot be read, which is left out."""
    table: dict[str, Override] = {}
    problems: list[str] = []
    for rule, note in notes.items():
        try:
            order = msgspec.json.decode(note, type=Override)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            problems.append(f"the override of rule {rule} cannot be read and is left out: {error}")
        else:
            table[rule] = order
    return Overrides(table), problems
