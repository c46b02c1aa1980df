"""gate.toml, the fetch side: zone, days, hours and rules, and every error of them at once."""

from datetime import UTC, date, datetime

import pytest

from gate import lines
from gate.calendars import Days, Zone
from gate.config import Config, parse
from gate.errors import ConfigError
from gate.hours import Entry, FetchRule, HolidayEntry
from gate.ical import Calendar, CalendarError

BERLIN = "timezone = 'Europe/Berlin'\n"
RULE = BERLIN + "[[fetch]]\nname = 'r'\n"
SPAN = (datetime(2026, 11, 14, 17, tzinfo=UTC), datetime(2026, 11, 15, 3, tzinfo=UTC))
CALENDARS = {
    "feiertage.ics": Calendar(days=frozenset({date(2026, 12, 25)}), spans=(), last=date(2026, 12, 25)),
    "pacs.ics": Calendar(days=frozenset({date(2026, 12, 1)}), spans=(SPAN,), last=date(2026, 12, 1)),
}


def read_calendar(path: str, zone: Zone) -> Calendar:
    if path not in CALENDARS:
        raise CalendarError(f"/etc/gate/{path} cannot be read: No such file or directory")
    return CALENDARS[path]


def read(text: str) -> Config:
    return parse(text.encode(), "gate.toml", read_calendar)


def findings(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return caught.value.findings


def entry(text: str, name: str | None = None) -> Entry:
    return Entry(text=text, name=name, lines=(lines.parse(text),))


def test_a_file_that_says_everything() -> None:
    read_file = read(
        """
        timezone = "Europe/Berlin"
        uncovered = "closed"

        [days]
        holidays = ["ics:feiertage.ics", "12-24", "2026-05-15", "02-29"]

        [hours]
        quiet  = ["daily 20:00-06:00", "freeday 00:00-24:00"]
        backup = ["daily 02:00-03:00"]

        [[fetch]]
        name       = "dicom"
        workers    = ["transfer-*"]
        queues     = ["dicom", "dicom-*"]
        open       = ["quiet", "cron * 12 * * *"]
        closed     = ["backup"]
        last_start = "45m"

        [[fetch]]
        queues   = ["mail"]
        open     = ["quiet"]
        timezone = "America/New_York"
        """
    )
    quiet = (entry("daily 20:00-06:00", "quiet"), entry("freeday 00:00-24:00", "quiet"))
    assert read_file == Config(
        timezone="Europe/Berlin",
        uncovered="closed",
        days=Days(
            dates=frozenset({date(2026, 12, 25), date(2026, 5, 15)}),
            yearly=frozenset({(12, 24), (2, 29)}),
        ),
        holidays=(
            HolidayEntry(text="ics:feiertage.ics", last=date(2026, 12, 25), calendar=True),
            HolidayEntry(text="12-24"),
            HolidayEntry(text="2026-05-15", last=date(2026, 5, 15)),
            HolidayEntry(text="02-29"),
        ),
        fetch=(
            FetchRule(
                name="dicom",
                workers=("transfer-*",),
                queues=("dicom", "dicom-*"),
                open=(*quiet, entry("cron * 12 * * *")),
                closed=(entry("daily 02:00-03:00", "backup"),),
                last_start=45,
                timezone="Europe/Berlin",
            ),
            FetchRule(name="mail", queues=("mail",), open=quiet, timezone="America/New_York"),
        ),
    )


def test_what_an_entry_is_called_names_its_hours_and_its_line() -> None:
    assert str(entry("daily 20:00-06:00", "night")) == "night (daily 20:00-06:00)"
    assert str(entry("daily 20:00-06:00")) == "daily 20:00-06:00"


def test_a_rule_without_hours_needs_no_zone() -> None:
    assert read("[[fetch]]\nqueues = ['a']").fetch == (FetchRule(name="a", queues=("a",), timezone="UTC"),)


def test_a_rule_with_its_own_zone_needs_no_other() -> None:
    rule = read("[[fetch]]\nopen = ['daily 01:00-02:00']\ntimezone = 'Europe/Berlin'").fetch[0]
    assert rule.timezone == "Europe/Berlin"


@pytest.mark.parametrize("place", ["hours", "in place"])
def test_of_a_calendar_timed_events_are_hours_and_whole_days_are_whole(place: str) -> None:
    if place == "hours":
        text = BERLIN + "[hours]\nvendor = ['ics:pacs.ics']\n[[fetch]]\nclosed = ['vendor']"
    else:
        text = BERLIN + "[[fetch]]\nclosed = ['ics:pacs.ics']"
    (found,) = read(text).fetch[0].closed
    assert found == Entry(
        text="ics:pacs.ics",
        name="vendor" if place == "hours" else None,
        lines=(lines.parse("2026-12-01 00:00 .. 2026-12-01 24:00"),),
        spans=(SPAN,),
    )


def test_a_calendar_is_read_by_the_zone_of_the_file() -> None:
    asked: list[tuple[str, str]] = []

    def reader(path: str, zone: Zone) -> Calendar:
        asked.append((path, zone.key))
        return CALENDARS[path]

    parse((BERLIN + "[[fetch]]\ntimezone = 'Asia/Tokyo'\nclosed = ['ics:pacs.ics']").encode(), "gate.toml", reader)
    assert asked == [("pacs.ics", "Europe/Berlin")]


# -- names


def test_a_rule_without_a_name_is_called_by_its_queues_or_workers_or_its_place() -> None:
    names = [
        rule.name
        for rule in read(
            """
            [[fetch]]
            queues = ["a", "b-*"]
            workers = ["w"]
            [[fetch]]
            workers = ["w"]
            [[fetch]]
            [[fetch]]
            queues = ["a", "b-*"]
            [[fetch]]
            queues = ["with space"]
            [[fetch]]
            queues = ["mail"]
            [[fetch]]
            name = "mail"
            [[fetch]]
            queues = ["*"]
            """
        ).fetch
    ]
    assert names == ["a,b-*", "w", "fetch[2]", "fetch[3]", "fetch[4]", "fetch[5]", "mail", "fetch[7]"]


@pytest.mark.parametrize("name", ["two words", "", "tab\\there", "\\u0007bell"])
def test_a_name_is_one_printable_word(name: str) -> None:
    shown = repr(name.encode().decode("unicode_escape"))
    assert findings(f'[[fetch]]\nname = "{name}"') == [f"fetch[0].name: {shown} is no name: a name has no space"]
    assert findings(f'{RULE}open = ["daily 01:00-02:00"]\n[hours]\n"{name}" = ["daily 01:00-02:00"]')[0].endswith(
        f"{shown} is no name: a name has no space"
    )


def test_what_means_all_rules_is_the_name_of_none() -> None:
    assert findings("[[fetch]]\nname = '*'") == ["fetch[0].name: '*' is no name: it means all of them"]


def test_a_name_is_not_endless() -> None:
    assert read(f"[[fetch]]\nname = '{'n' * 128}'").fetch[0].name == "n" * 128
    assert findings(f"[[fetch]]\nname = '{'n' * 129}'") == [
        "fetch[0].name: 'nnnnnnnnnnnnnnnnnnnn'… is too long for a name: at most 128 characters are allowed"
    ]


# -- errors

WRONG: dict[str, tuple[str, list[str]]] = {
    "an unknown zone": (
        "timezone = 'Europe/Berln'",
        [
            "timezone: 'Europe/Berln' is not a time zone: write an IANA name, such as Europe/Berlin or UTC; "
            "did you mean Europe/Berlin?"
        ],
    ),
    "no zone, which is never silently UTC": (
        "[[fetch]]\nopen = ['daily 01:00-02:00']\n[[fetch]]\nname = 'b'\nclosed = ['daily 01:00-02:00']",
        ['timezone: missing: hours need one, such as timezone = "Europe/Berlin"'],
    ),
    "a calendar without a zone for its times": (
        "[[fetch]]\ntimezone = 'Europe/Berlin'\nclosed = ['ics:pacs.ics']",
        ['timezone: missing: hours need one, such as timezone = "Europe/Berlin"'],
    ),
    "an unknown zone of a rule": (
        "[[fetch]]\ntimezone = 'Mars/Olympus'",
        [
            "fetch[0].timezone: 'Mars/Olympus' is not a time zone: write an IANA name, such as Europe/Berlin or UTC",
        ],
    ),
    "a zone that is no text": ("timezone = 1", ["timezone: expected `str | null`, got `int`, got 1"]),
    "an unknown answer for what no rule covers": (
        "uncovered = 'shut'",
        ["uncovered: 'shut' is not one of open, closed"],
    ),
    "an unknown key of a rule": (
        "[[fetch]]\nopens = []",
        [
            "fetch[0].opens: unknown key (this version knows name, workers, queues, needs, open, closed, at_once, "
            "last_start, ramp, timezone)"
        ],
    ),
    "an unknown key of the days": (
        "[days]\nholiday = []",
        ["days.holiday: unknown key (this version knows holidays)"],
    ),
    "one bracket instead of two": ("[fetch]", ["fetch: write [[fetch]], with two brackets: there may be several"]),
    "a rule that is no table": ("fetch = [1]", ["fetch[0]: expected `object`, got `int`, got 1"]),
    "a rule for no queue": (
        "[[fetch]]\nqueues = []",
        ["fetch[0].queues: expected `array` of length >= 1, got []"],
    ),
    "a worker without a name": (
        "[[fetch]]\nworkers = ['a', '']",
        ["fetch[0].workers[1]: expected `str` of length >= 1, got ''"],
    ),
    "open in no hours": (RULE + "open = []", ["fetch[0].open: expected `array` of length >= 1, got []"]),
    "a name twice": (
        "[[fetch]]\nname = 'a'\n[[fetch]]\nname = 'a'",
        ["fetch[1].name: 'a' is the name of fetch[0] too: each rule has its own"],
    ),
    "an unknown word in a line": (
        RULE + "open = ['daily 01:00-02:00', 'daly 20:00-06:00']",
        [
            "fetch[0].open[1]: 'daly 20:00-06:00': unknown days 'daly' (did you mean daily?): allowed are daily, "
            "weekdays such as mon-fri or sat,sun, first sun to fifth sun, last sun, day 1, day -1, workday, freeday, "
            "holiday"
        ],
    ),
    "start and end alike": (
        RULE + "closed = ['daily 06:00-06:00']",
        ["fetch[0].closed[0]: 'daily 06:00-06:00': start and end are both 06:00: write 00:00-24:00 for a whole day"],
    ),
    "an unknown name": (
        RULE + "open = ['nigth']\nclosed = ['night']\n[hours]\nnight = ['daily 20:00-06:00']",
        ["fetch[0].open[0]: unknown name 'nigth' (did you mean night?): [hours] has night"],
    ),
    "an unknown name among none": (
        RULE + "open = ['quiet']",
        ["fetch[0].open[0]: unknown name 'quiet': [hours] has no names"],
    ),
    "a day word alone": (
        RULE + "open = ['holiday']",
        ["fetch[0].open[0]: 'holiday' alone is no line: write 'holiday 00:00-24:00'"],
    ),
    "hours alone": (
        RULE + "open = ['20:00-06:00']",
        ["fetch[0].open[0]: '20:00-06:00' alone is no line: write 'daily 20:00-06:00'"],
    ),
    "a date alone": (
        RULE + "open = ['2026-12-24']",
        ["fetch[0].open[0]: '2026-12-24' alone is no line: write '2026-12-24 00:00 .. 2026-12-24 24:00'"],
    ),
    "a name that no rule uses": (
        BERLIN + "[hours]\nnight = ['daily 20:00-06:00']",
        [
            "hours.night: no rule uses it: name it in open, closed or at_once of a [[fetch]], "
            "or in pause of a [[send]], or remove it"
        ],
    ),
    "a wrong line of hours, said once however many use it": (
        RULE + "open = ['night']\nclosed = ['night']\n[hours]\nnight = ['daily 20:00-25:00']",
        [
            "hours.night[0]: 'daily 20:00-25:00': '25:00' is not a time: times are HH:MM, from 00:00 to 23:59, and "
            "24:00 as an end"
        ],
    ),
    "hours that are no list": (
        RULE + "open = ['night']\n[hours]\nnight = 'daily 20:00-06:00'",
        ["hours.night: expected `array`, got `str`, got 'daily 20:00-06:00'"],
    ),
    "hours by the word for all other hours": (
        RULE + "open = ['else']\n[hours]\nelse = ['daily 20:00-06:00']",
        ["hours.else: 'else' is no name: at_once means all other hours by it"],
    ),
    "hours by the name of a calendar": (
        RULE + "open = ['ics:pacs.ics']\n[hours]\n'ics:pacs.ics' = ['daily 20:00-06:00']",
        ["hours.ics:pacs.ics: 'ics:pacs.ics' is no name: ics: begins the name of an iCalendar file"],
    ),
    "a day that cannot be": (
        "[days]\nholidays = ['02-30', '2026-02-29', '13-01']",
        [
            "days.holidays[0]: '02-30': there is no such day",
            "days.holidays[1]: '2026-02-29': there is no such day",
            "days.holidays[2]: '13-01': there is no such day",
        ],
    ),
    "a holiday in words": (
        "[days]\nholidays = ['christmas', '24.12.']",
        [
            "days.holidays[0]: 'christmas' is not a day: write MM-DD, YYYY-MM-DD or ics:FILE",
            "days.holidays[1]: '24.12.' is not a day: write MM-DD, YYYY-MM-DD or ics:FILE",
        ],
    ),
    "a calendar that is not there": (
        RULE + "closed = ['ics:b.ics', 'vendor']\n[days]\nholidays = ['ics:a.ics']\n[hours]\nvendor = ['ics:c.ics']",
        [
            "days.holidays[0]: 'ics:a.ics': /etc/gate/a.ics cannot be read: No such file or directory",
            "hours.vendor[0]: 'ics:c.ics': /etc/gate/c.ics cannot be read: No such file or directory",
            "fetch[0].closed[0]: 'ics:b.ics': /etc/gate/b.ics cannot be read: No such file or directory",
        ],
    ),
    "too short a last start": (
        "[[fetch]]\nlast_start = '59s'",
        ["fetch[0].last_start: '59s' is too short: 1m to 7d are allowed"],
    ),
    "too long a last start": (
        "[[fetch]]\nlast_start = '8d'",
        ["fetch[0].last_start: '8d' is too long: 1m to 7d are allowed"],
    ),
    "half a minute of last start": (
        "[[fetch]]\nlast_start = '90s'",
        ["fetch[0].last_start: '90s' is not in whole minutes, as hours are"],
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_with_table_key_and_value(what: str) -> None:
    text, expected = WRONG[what]
    assert findings(text) == expected


def test_there_are_no_half_bounded_hours() -> None:
    """renovatebot/renovate#20447: a list of them is a union, and so always."""
    found = findings(RULE + "open = ['after 9:00', 'before 14:30']")
    assert [finding.partition("': ")[0] for finding in found] == [
        "fetch[0].open[0]: 'after 9:00",
        "fetch[0].open[1]: 'before 14:30",
    ]


def test_every_error_is_said_at_once_in_the_order_of_this_page() -> None:
    text = """
        timezone = "Nowhere/There"
        uncovered = "maybe"

        [days]
        holidays = ["99-99"]

        [hours]
        night = ["daily 20:00", "daily 20:00-06:00"]
        idle  = ["daily 01:00-02:00"]

        [[fetch]]
        name = "two words"
        open = ["night", "nite"]
        closed = ["sometimes"]
        colour = "red"
        last_start = "soon"

        [[send]]
        grace = "1s"
    """
    assert [finding.partition(": ")[0] for finding in findings(text)] == [
        "uncovered",
        "timezone",
        "days.holidays[0]",
        "hours.night[0]",
        "fetch[0].colour",
        "fetch[0].name",
        "fetch[0].open[1]",
        "fetch[0].closed[0]",
        "fetch[0].last_start",
        "send[0].schedules",
        "hours.idle",
    ]


def test_whoever_has_no_files_reads_no_calendar() -> None:
    with pytest.raises(ConfigError, match=r"'ics:a\.ics': a\.ics cannot be read here"):
        parse(b"[days]\nholidays = ['ics:a.ics']", "gate.toml")
