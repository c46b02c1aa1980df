"""The week of rules as an SVG file that stands alone: no script, nothing loaded, and every mark has a pattern.

Screen readers get a title, a description, and the hours of each day in words.
"""

from collections.abc import Iterator
from textwrap import wrap
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from gate.ctl import captions
from gate.ctl.marks import Mark, Row, Stretch, rows, wall_minute
from gate.ctl.output import safe
from gate.interface import RuleWeek, WeekOut

WIDTH = 960
MARGIN = 16
LEFT = 144
"""Where 00:00 is."""
HOUR = 30
DAY_WIDTH = 24 * HOUR
ROW = 26
BAR = 18
LINE = 20
TEXT_COLUMNS = 125
SCALE_HOURS = 3

STYLE = """
text { font: 13px "DejaVu Sans", Verdana, sans-serif; fill: #1a1a1a }
.name { font-size: 17px; font-weight: bold }
.strong { font-weight: bold }
.paper { fill: #ffffff }
.grid { stroke: #c4c4c4; stroke-width: 1 }
.now { stroke: #b00020; stroke-width: 2 }
.now-text { fill: #b00020; font-weight: bold }
.open { fill: #2e7d32 }
.closed { fill: #ececec }
.taken { fill: url(#taken) }
.opened { fill: url(#opened) }
.shut { fill: url(#shut) }
"""
PATTERNS = """
<pattern id="taken" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">\
<rect width="6" height="6" fill="#ececec"/><rect width="2" height="6" fill="#8a6d00"/></pattern>
<pattern id="opened" width="8" height="8" patternUnits="userSpaceOnUse">\
<rect width="8" height="8" fill="#2e7d32"/><circle cx="4" cy="4" r="2" fill="#ffffff"/></pattern>
<pattern id="shut" width="8" height="8" patternUnits="userSpaceOnUse">\
<rect width="8" height="8" fill="#ffffff"/><path d="M1 1L7 7M7 1L1 7" stroke="#b00020" stroke-width="1.5"/></pattern>
"""
MARKS = (Mark.OPEN, Mark.CLOSED, Mark.TAKEN, Mark.OPENED, Mark.SHUT)


class Block(NamedTuple):
    """A part of the page, drawn from y = 0 down."""

    height: int
    body: str


def svg(week: WeekOut) -> str:
    """The page."""
    blocks = [_rule(rule, week) for rule in week.rules] + [_legend()]
    placed: list[str] = []
    y = MARGIN
    for block in blocks:
        placed.append(f'<g transform="translate(0 {y})">\n{block.body}\n</g>')
        y += block.height
    names = ", ".join(safe(rule.rule) for rule in week.rules) or "no rule"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
            'role="img" aria-labelledby="title description">',
            f'<title id="title">{escape(f"Hours of {names}")}</title>',
            f'<desc id="description">{escape(_description(week))}</desc>',
            f"<style>{STYLE}</style>",
            f"<defs>{PATTERNS}</defs>",
            f'<rect class="paper" width="{WIDTH}" height="{y}"/>',
            *placed,
            "</svg>\n",
        ]
    )


def _description(week: WeekOut) -> str:
    """All that the picture shows, in words."""
    lines: list[str] = []
    for rule in week.rules:
        lines.append(f"{captions.heading(rule, week)}.")
        if rule.override is not None:
            lines.append(f"Override: {captions.override(rule.override, rule, week)}.")
        lines += [f"{limit}." for limit in captions.limits(rule)]
        lines += [f"{captions.day(row)}: {captions.hours(row, rule)}." for row in rows(rule, week)]
        lines += [f"{days}: {what}." for days, what in captions.odd_days(rule)]
    return "\n".join(lines)


def _rule(rule: RuleWeek, week: WeekOut) -> Block:
    parts = [_label(MARGIN, LINE, captions.heading(rule, week), "name")]
    drawn = rows(rule, week)
    y = LINE + 4
    if any(row.holds(week.now) for row in drawn):
        y, lines = _lines(y, captions.present(drawn, rule, week), "now-text")
        parts += lines
    if rule.override is not None:
        y, lines = _lines(y, f"override: {captions.override(rule.override, rule, week)}", "strong")
        parts += lines
    for limit in captions.limits(rule):
        y, lines = _lines(y, limit, "now-text")
        parts += lines
    y += LINE
    parts += [_label(LEFT + hour * HOUR, y, f"{hour:02}", middle=True) for hour in range(0, 25, SCALE_HOURS)]
    y += 6
    top, bottom = y, y + ROW * len(drawn)
    odd = {odd.day for odd in rule.odd}
    for row in drawn:
        parts += _row(row, y, rule, week, odd=row.day.date.isoformat() in odd)
        y += ROW
    parts += [
        f'<line class="grid" x1="{x}" y1="{top}" x2="{x}" y2="{bottom}"/>'
        for x in range(LEFT, LEFT + DAY_WIDTH + 1, HOUR * SCALE_HOURS)
    ]
    parts += _now(drawn, top, week)
    y += LINE
    if rule.odd:
        y, lines = _lines(y, captions.ODD_DAYS, "strong")
        parts += lines
    for days, what in captions.odd_days(rule):
        y, lines = _lines(y, f"{days}: {what}")
        parts += lines
    return Block(y + LINE, "\n".join(parts))


def _row(row: Row, y: int, rule: RuleWeek, week: WeekOut, *, odd: bool) -> Iterator[str]:
    today = row.holds(week.now)
    yield f"<g><title>{escape(f'{captions.day(row)}: {captions.hours(row, rule)}')}</title>"
    yield _label(MARGIN, y + BAR - 1, captions.day(row), "strong" if today else "")
    for stretch in row.stretches:
        if stretch.mark is not Mark.OUTSIDE:
            yield _bar(stretch, y)
    yield _label(LEFT + DAY_WIDTH + 12, y + BAR - 1, captions.open_for(row) + (" *" if odd else ""))
    yield "</g>"


def _bar(stretch: Stretch, y: int) -> str:
    """A stretch; the two that the wall clock reads the same are half as high, the first one above the second."""
    x, width = LEFT + stretch.wall * HOUR / 60, (stretch.wall_end - stretch.wall) * HOUR / 60
    height = BAR / 2 if stretch.turn else BAR
    top = y + 2 + (BAR / 2 if stretch.turn == 2 else 0)
    return _rectangle(stretch.mark, x, top, width, height)


def _rectangle(mark: Mark, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{mark.name.lower()}" x="{x:.4g}" y="{y:g}" width="{width:.4g}" height="{height:g}"/>'


def _now(drawn: list[Row], top: int, week: WeekOut) -> Iterator[str]:
    for index, row in enumerate(drawn):
        if row.holds(week.now):
            x, y = LEFT + wall_minute(row, week.now) * HOUR / 60, top + ROW * index
            yield f'<line class="now" x1="{x:.4g}" y1="{y - 1}" x2="{x:.4g}" y2="{y + ROW - 3}"/>'


def _legend() -> Block:
    parts: list[str] = []
    for index, mark in enumerate(MARKS):
        y = index * LINE
        parts += [_rectangle(mark, MARGIN, y, HOUR, BAR - 4), _label(MARGIN + HOUR + 8, y + 12, mark.value)]
    y = len(MARKS) * LINE
    parts.append(
        f'<line class="now" x1="{MARGIN + HOUR / 2:g}" y1="{y}" x2="{MARGIN + HOUR / 2:g}" y2="{y + BAR - 4}"/>'
    )
    parts.append(_label(MARGIN + HOUR + 8, y + 12, "now; * is an odd day, explained below its week"))
    return Block(y + LINE + MARGIN, "\n".join(parts))


def _lines(y: int, text: str, kind: str = "") -> tuple[int, list[str]]:
    """Text over as many lines as it needs; also where the next line begins."""
    lines = wrap(text, TEXT_COLUMNS)
    return y + LINE * len(lines), [_label(MARGIN, y + LINE * n, line, kind) for n, line in enumerate(lines, start=1)]


def _label(x: int, y: int, text: str, kind: str = "", *, middle: bool = False) -> str:
    style = f" class={quoteattr(kind)}" if kind else ""
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{x}" y="{y}"{style}{anchor}>{escape(text)}</text>'
