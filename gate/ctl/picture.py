"""The week of a rule as text: one row per local day, 24 hours across, one character per cell."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.table import Column
from rich.text import Text

from gate.ctl import captions, output
from gate.ctl.marks import Mark, Row, rows, wall_minute
from gate.interface import RuleWeek, WeekOut

HOURS = 24
FLAGS = 2
LABEL = FLAGS + len("mon 2026-11-30 ")
TOTAL = len(" 23h45m")
LABELLED_HOURS = {1: 6, 2: 3, 4: 2}
"""Cells per hour: every which hour has its number above."""

SIGNS = {
    Mark.OPEN: ("█", "#", "green"),
    Mark.PARTLY: ("▄", "~", "green"),
    Mark.CLOSED: ("·", ".", "dim"),
    Mark.TAKEN: ("x", "x", "yellow"),
    Mark.OPENED: ("+", "+", "bold cyan"),
    Mark.SHUT: ("-", "-", "bold red"),
    Mark.OUTSIDE: (" ", " ", ""),
}
"""The sign, the sign where only ASCII can be shown, and a colour, which says nothing that the sign does not."""


class Drawing:
    """How pictures are drawn: cells per hour by the width in columns, and the signs that can be shown."""

    def __init__(self, columns: int, *, ascii_only: bool) -> None:
        fitting = [cells for cells in LABELLED_HOURS if LABEL + HOURS * cells + TOTAL <= columns]
        self._columns = columns
        self._per_hour = max(fitting, default=min(LABELLED_HOURS))
        self._sign = 1 if ascii_only else 0

    def week(self, week: WeekOut) -> Iterator[RenderableType]:
        """All rules, one below the other, and what the signs mean."""
        seen: set[Mark] = set()
        today = False
        for rule in week.rules:
            drawn = rows(rule, week)
            seen |= {cell for row in drawn for cell in self._cells(row)}
            today |= any(row.holds(week.now) for row in drawn)
            yield from self._rule(rule, drawn, week)
            yield Text()
        yield from self._legend(seen, today=today, odd=any(rule.odd for rule in week.rules))

    def _rule(self, rule: RuleWeek, drawn: list[Row], week: WeekOut) -> Iterator[RenderableType]:
        yield Text(captions.heading(rule, week), style="bold")
        if rule.override is not None:
            yield Text(f"override: {captions.override(rule.override, rule, week)}", style="bold")
        for line in captions.limits(rule):
            yield Text(line)
        yield Text(" " * LABEL + self._scale(), no_wrap=True)
        odd = {odd.day for odd in rule.odd}
        for row in drawn:
            today = row.holds(week.now)
            yield self._row(row, today=today, odd=row.day.date.isoformat() in odd)
            if today:
                yield self._now(row, captions.present(drawn, rule, week), week)
        yield from _odd_days(rule)

    def _scale(self) -> str:
        every = LABELLED_HOURS[self._per_hour]
        return "".join(f"{hour:02}".ljust(every * self._per_hour) for hour in range(0, HOURS, every)) + f"{HOURS}"

    def _row(self, row: Row, *, today: bool, odd: bool) -> Text:
        flags = (">" if today else " ") + ("*" if odd else " ")
        text = Text(no_wrap=True).append(f"{flags}{captions.day(row)} ", style="bold" if today else "")
        for mark, cells in groupby(self._cells(row)):
            text.append(self._shown(mark) * len(list(cells)), style=SIGNS[mark][2])
        return text.append(f" {captions.open_for(row)}")

    def _now(self, row: Row, says: str, week: WeekOut) -> Text:
        """Points at the present cell of the row above."""
        column = LABEL + int(wall_minute(row, week.now) * self._per_hour / 60)
        room_right, room_left = self._columns - column - len("^ "), column - len(" ")
        if room_left >= len(says) > room_right:
            return Text(f"{says} ^".rjust(column + 1), style="bold")
        return Text(f"{' ' * column}^ {says}", style="bold")

    def _legend(self, seen: set[Mark], *, today: bool, odd: bool) -> Iterator[Text]:
        for mark in SIGNS:
            if mark in seen and mark is not Mark.OUTSIDE:
                yield Text(self._shown(mark), style=SIGNS[mark][2]).append(f" {mark.value}")
        if today:
            yield Text("> today")
        if odd:
            yield Text("* odd day, explained below its week")

    def _shown(self, mark: Mark) -> str:
        return SIGNS[mark][self._sign]

    def _cells(self, row: Row) -> list[Mark]:
        minutes = 60 // self._per_hour
        return [_cell(row, start, start + minutes) for start in range(0, HOURS * 60, minutes)]


def _cell(row: Row, start: int, end: int) -> Mark:
    """The mark of a cell: of all stretches whose wall clock reads inside it."""
    marks = {stretch.mark for stretch in row.stretches if stretch.wall < end and stretch.wall_end > start}
    if len(marks) > 1:
        marks.discard(Mark.OUTSIDE)
    if len({mark.opens for mark in marks}) > 1:
        return Mark.PARTLY
    order = (Mark.SHUT, Mark.TAKEN, Mark.CLOSED, Mark.OPENED, Mark.OPEN)
    return next((mark for mark in order if mark in marks), Mark.OUTSIDE)


def _odd_days(rule: RuleWeek) -> Iterator[RenderableType]:
    if rule.odd:
        yield Text(captions.ODD_DAYS)
        columns = [output.whole(""), Column()]
        yield output.table(columns, ((f"{' ' * FLAGS}{days}", what) for days, what in captions.odd_days(rule)))
