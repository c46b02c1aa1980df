"""gate.toml, limits: at_once, needs, ramp and [[resource]], and every error of them at once."""

import pytest

from gate import lines
from gate.config import Config, parse
from gate.errors import ConfigError
from gate.hours import Case, Entry
from gate.pools import Ramp

BERLIN = "timezone = 'Europe/Berlin'\n"
RULE = BERLIN + "[[fetch]]\nname = 'r'\n"


def read(text: str) -> Config:
    return parse(text.encode(), "gate.toml")


def entry(text: str, name: str | None = None) -> Entry:
    return Entry(text=text, name=name, lines=(lines.parse(text),))


def test_a_number_holds_at_all_times() -> None:
    rule = read("[[fetch]]\nat_once = 3").fetch[0]
    assert (rule.at_once, rule.ramp, rule.needs) == ((Case(number=3),), None, ())
    assert read("[[fetch]]").fetch[0].at_once is None
    assert read("[[fetch]]\nat_once = 0").fetch[0].at_once == (Case(number=0),)


def test_a_list_holds_names_and_lines_each_split_at_the_last_colon() -> None:
    read_file = read(
        f"""
        {BERLIN}
        [hours]
        night = ["daily 20:00-06:00", "sun 00:00-24:00"]
        [[fetch]]
        name = "dicom"
        needs = ["pacs-1", "disk", "pacs-1"]
        at_once = ["fri 20:00 - mon 06:00: 12", " night :8", "else: 3"]
        ramp = "2 every 1m30s"
        [[resource]]
        name = "pacs-1"
        at_once = ["night: 8", "else: 0"]
        timezone = "America/New_York"
        [[resource]]
        name = "disk"
        at_once = 5
        """
    )
    (rule,) = read_file.fetch
    night = (entry("daily 20:00-06:00", "night"), entry("sun 00:00-24:00", "night"))
    assert rule.at_once == (
        Case(number=12, entries=(entry("fri 20:00 - mon 06:00"),)),
        Case(number=8, entries=night),
        Case(number=3),
    )
    assert (rule.needs, rule.ramp) == (("pacs-1", "disk"), Ramp(2, 90.0))
    assert [(resource.name, resource.at_once, resource.timezone) for resource in read_file.resources] == [
        ("pacs-1", (Case(number=8, entries=night), Case(number=0)), "America/New_York"),
        ("disk", (Case(number=5),), "Europe/Berlin"),
    ]


def test_a_limit_without_lines_needs_no_zone() -> None:
    assert read("[[fetch]]\nat_once = ['else: 3']").fetch[0].at_once == (Case(number=3),)


WRONG: dict[str, tuple[str, list[str]]] = {
    "a number below none": ("at_once = -1", ["fetch[0].at_once: expected `int` >= 0, got -1"]),
    "a number beyond all bounds": (
        "at_once = 1000001",
        ["fetch[0].at_once: '1000001' is too large: 0 to 1000000 are allowed"],
    ),
    "a text": ("at_once = '3'", ["fetch[0].at_once: expected `int | array | null`, got `str`, got '3'"]),
    "no entry": ("at_once = []", ["fetch[0].at_once: expected `array` of length >= 1, got []"]),
    "no else": (
        "at_once = ['daily 20:00-06:00: 8']",
        ["fetch[0].at_once: 'else: N' is missing: it says what holds at all other times"],
    ),
    "an entry without a number": (
        "at_once = ['daily 20:00-06:00', 'else', 'night: many', ': 3', 'else: 3']",
        [
            f"fetch[0].at_once[{index}]: {text!r} is no limit: write a name or a line, a colon and a number, "
            "as 'night: 8'"
            for index, text in enumerate(["daily 20:00-06:00", "else", "night: many", ": 3"])
        ],
    ),
    "an entry after else": (
        "at_once = ['else: 3', 'daily 20:00-06:00: 8']",
        ["fetch[0].at_once[1]: 'daily 20:00-06:00: 8' can never hold, since 'else: 3' comes before it"],
    ),
    "the same twice": (
        "at_once = ['daily 20:00-06:00: 8', 'daily 20:00-06:00: 9', 'else: 3']",
        ["fetch[0].at_once[1]: 'daily 20:00-06:00: 9' can never hold, since 'daily 20:00-06:00: 8' comes before it"],
    ),
    "an unknown name and a line that is none": (
        "at_once = ['nigth: 8', 'daily 20:00-20:00: 8', 'else: 3']\nopen = ['night']\n"
        "[hours]\nnight = ['daily 20:00-06:00']",
        [
            "fetch[0].at_once[0]: unknown name 'nigth' (did you mean night?): [hours] has night",
            "fetch[0].at_once[1]: 'daily 20:00-20:00': start and end are both 20:00: write 00:00-24:00 for a whole day",
        ],
    ),
    "no ramp": (
        "at_once = 3\nramp = 'slowly'",
        ["fetch[0].ramp: 'slowly' is no ramp: write a number of jobs and a duration, such as '1 every 20s'"],
    ),
    "a ramp of none": (
        "at_once = 3\nramp = '0 every 20s'",
        ["fetch[0].ramp: '0 every 20s' is no ramp: write a number of jobs and a duration, such as '1 every 20s'"],
    ),
    "a ramp that is too slow": (
        "at_once = 3\nramp = '1 every 2h'",
        ["fetch[0].ramp: '2h' is too long: 1s to 1h are allowed"],
    ),
    "a ramp without a limit": (
        "ramp = '1 every 20s'",
        ["fetch[0].ramp: it goes with at_once: without a limit, there is nothing to lead up to"],
    ),
    "an unknown resource": (
        "needs = ['pacs2', 'x']\n[[fetch]]\nneeds = ['pacs-2']\n[[resource]]\nname = 'pacs-2'\nat_once = 3",
        [
            "fetch[0].needs[0]: unknown resource 'pacs2' (did you mean pacs-2?): there is pacs-2",
            "fetch[0].needs[1]: unknown resource 'x': there is pacs-2",
        ],
    ),
    "a resource where there is none": ("needs = ['x']", ["fetch[0].needs[0]: unknown resource 'x': there is none"]),
    "a resource that no rule needs": (
        "[[resource]]\nname = 'pacs-1'\nat_once = 3",
        ["resource[0]: no rule needs 'pacs-1': name it in needs of a [[fetch]], or remove it"],
    ),
    "a resource without name and limit": (
        "[[resource]]",
        [
            "resource[0].name: missing: rules name a resource in their needs",
            "resource[0].at_once: missing: write a number, or a list as ['night: 8', 'else: 3']",
        ],
    ),
    "two resources of one name": (
        "needs = ['a']\n[[resource]]\nname = 'a'\nat_once = 3\n[[resource]]\nname = 'a'\nat_once = 4",
        ["resource[1].name: 'a' is the name of resource[0] too: each resource has its own"],
    ),
    "a resource with a name that is none": (
        "[[resource]]\nname = 'a b'\nat_once = 3",
        ["resource[0].name: 'a b' is no name: a name has no space"],
    ),
    "an unknown zone and key of a resource": (
        "needs = ['a']\n[[resource]]\nname = 'a'\nat_once = 3\ntimezone = 'CET'\nopen = 1",
        [
            "resource[0].open: unknown key (this version knows name, at_once, timezone)",
            "resource[0].timezone: 'CET' is not a time zone: write an IANA name, such as Europe/Berlin or UTC",
        ],
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_with_table_key_and_value(what: str) -> None:
    text, expected = WRONG[what]
    with pytest.raises(ConfigError) as caught:
        read(RULE + text)
    assert caught.value.findings == expected


@pytest.mark.parametrize("table", ["fetch", "resource"])
def test_lines_of_a_limit_need_a_zone(table: str) -> None:
    limit = "at_once = ['daily 20:00-06:00: 8', 'else: 3']"
    rule = f"[[fetch]]\nneeds = ['a']\n{limit if table == 'fetch' else ''}\n"
    with pytest.raises(ConfigError) as caught:
        read(f"{rule}[[resource]]\nname = 'a'\n{limit if table == 'resource' else 'at_once = 1'}")
    assert caught.value.findings == ['timezone: missing: hours need one, such as timezone = "Europe/Berlin"']


def test_a_name_that_only_a_limit_uses_is_used() -> None:
    hours = "[hours]\nnight = ['daily 20:00-06:00']"
    assert read(RULE + "at_once = ['night: 8', 'else: 3']\n" + hours).fetch[0].at_once is not None
