"""The week as an SVG file: it stands alone, can be read aloud, and says what the hours are."""

import re
import xml.etree.ElementTree as ET

from msgspec.structs import replace

from gate.ctl.svg import svg
from gate.interface import Steer, WeekOut
from tests.support.weeks import QUIET, ordered, rule, week_of

SVG = "{http://www.w3.org/2000/svg}"


def christmas() -> WeekOut:
    order = ordered(Steer.CLOSE, "2026-12-23T17:00:00Z")
    return week_of(QUIET, "2026-12-23T12:30:00Z", order=order, since="2026-12-23T11:00:00Z")


def parsed(week: WeekOut) -> ET.Element:
    return ET.fromstring(svg(week))


def bars(root: ET.Element, mark: str) -> list[tuple[float, ...]]:
    """x, y, width and height of the bars of the days; the legend is another group."""
    found = root.findall(f".//{SVG}g/{SVG}g/{SVG}rect[@class='{mark}']")
    return [tuple(float(bar.get(key, "")) for key in ("x", "y", "width", "height")) for bar in found]


def texts(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def test_it_stands_alone() -> None:
    text = svg(christmas())
    assert not re.search(r"<script|\bon\w+=|href|@import|url\((?!#)|<image|<foreignObject|<!DOCTYPE|<!ENTITY", text)
    assert set(re.findall(r"https?://[^\"]+", text)) == {"http://www.w3.org/2000/svg"}


def test_it_can_be_read_aloud() -> None:
    root = parsed(christmas())
    assert root.get("role") == "img"
    ids = {element.get("id"): element for element in root.iter() if element.get("id")}
    title, description = (ids[name] for name in (root.get("aria-labelledby") or "").split())
    assert title.text == "Hours of dicom"
    lines = (description.text or "").splitlines()
    assert lines[0] == "dicom, times in Europe/Berlin (CET, UTC+01:00)."
    assert lines[1] == "Override: closed by root since wed 12:00 until 18:00: clinic called."
    assert lines[2] == "wed 2026-12-23: open 00:00-01:15, 03:15-05:15, 20:00-24:00 (7h15m)."
    assert lines[-1].startswith("fri 2027-12-24: holiday: open 00:00-01:15, 03:15-24:00; usually")
    day = root.find(f".//{SVG}g/{SVG}g/{SVG}title")
    assert day is not None
    assert f"{day.text}." == lines[2]


def test_bars_are_where_the_hours_are() -> None:
    root = parsed(week_of(rule("daily 06:00-18:00"), "2026-11-30T12:00:00Z", days=2))
    (x1, y1, width1, height1), (x2, y2, width2, _) = bars(root, "open")
    grid = [float(line.get("x1", "")) for line in root.findall(f".//{SVG}line[@class='grid']")]
    day = grid[-1] - grid[0]
    assert (x1, width1) == (x2, width2) == (grid[0] + day / 4, day / 2)
    assert y2 - y1 > height1
    [now, _legend] = root.findall(f".//{SVG}line[@class='now']")
    assert float(now.get("x1", "")) == grid[0] + day * 13 / 24, "13:00 in Berlin"
    assert "now 13:00: open until 18:00" in texts(root)


def test_what_is_read_twice_is_drawn_in_two_halves() -> None:
    root = parsed(week_of(rule("daily 01:30-02:30"), "2026-10-25T12:00:00Z", days=1))
    whole, first, second = sorted(bars(root, "open"))
    assert whole[3] == 2 * first[3] == 2 * second[3]
    assert first[0] == second[0] == whole[0] + whole[2]
    assert second[1] == first[1] + first[3]


def test_what_no_clock_reads_is_left_blank() -> None:
    root = parsed(week_of(rule("daily 00:00-24:00"), "2026-03-29T12:00:00Z", days=1))
    (x1, _, width1, _), (x2, *_rest) = bars(root, "open")
    assert x2 - (x1 + width1) == width1 / 2, "02:00 to 03:00, after two hours"


def test_every_mark_has_a_pattern_and_a_place_in_the_legend() -> None:
    root = parsed(christmas())
    marks = {"open", "closed", "taken", "opened", "shut"}
    legend = root.findall(f"{SVG}g")[-1]
    assert {bar.get("class") for bar in legend.iter(f"{SVG}rect")} == marks
    assert {pattern.get("id") for pattern in root.iter(f"{SVG}pattern")} == {"taken", "opened", "shut"}
    assert bars(root, "shut")
    assert bars(root, "taken")


def test_nothing_in_a_name_is_markup() -> None:
    week = christmas()
    [found] = week.rules
    root = parsed(replace(week, rules=[replace(found, rule='<b>&"x\x00')]))
    assert r'<b>&"x\x00, times in Europe/Berlin (CET, UTC+01:00)' in texts(root)


def test_all_that_is_drawn_is_on_the_page() -> None:
    root = parsed(christmas())
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    assert root.get("viewBox") == f"0 0 {width:g} {height:g}"
    for x, _, bar_width, _ in bars(root, "open") + bars(root, "closed"):
        assert 0 < x < x + bar_width < width
    assert max(len(text) for text in texts(root)) <= 125


def test_no_rules_are_a_picture_too() -> None:
    assert parsed(week_of("", "2026-11-30T12:00:00Z")).find(f"{SVG}title") is not None
