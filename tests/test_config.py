"""gate.toml: what it may say, and every error of a file at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate import lines
from gate.config import Config, Control, parse
from gate.errors import ConfigError
from gate.hours import Entry
from gate.interface import CatchUp
from gate.rules import DEFAULT_POLICY, SendPolicy, SendRule


def findings(text: str | bytes) -> list[str]:
    """What is wrong with a file, in order."""
    with pytest.raises(ConfigError) as caught:
        parse(text.encode() if isinstance(text, str) else text, "gate.toml")
    assert caught.value.source == "gate.toml"
    assert str(caught.value).splitlines() == [f"gate.toml: {finding}" for finding in caught.value.findings]
    return caught.value.findings


@pytest.mark.parametrize("text", ["", "# nothing\n", "[store]\n", "[store]\n[control]\n", "send = []\n"])
def test_an_empty_file_is_the_defaults(text: str) -> None:
    assert parse(text.encode(), "gate.toml") == Config()
    assert Config() == Config(store_url="sqlite:", keep=14 * 86_400.0, send=(), control=Control(users=(), groups=()))


def test_a_file_that_says_everything() -> None:
    text = """
        timezone = "UTC"

        [store]
        url = "sqlite:/srv/gate/ledger.db"
        keep = "30d"

        [[send]]
        schedules = ["reports:*", "mail:?"]
        on_doubt = "resend"
        deadline = "10m"
        grace = "5s"
        catch_up = "latest"
        catch_up_within = "1d"
        pause = ["backup", "sat 00:00-24:00"]
        mode = "observe"

        [hours]
        backup = ["daily 02:00-03:00"]

        [[send]]
        schedules = ["*"]

        [control]
        users = ["deploy", 1001]
        groups = ["ops", 27]
    """
    assert parse(text.encode(), "gate.toml") == Config(
        store_url="sqlite:/srv/gate/ledger.db",
        keep=30 * 86_400.0,
        send=(
            SendRule(
                schedules=("reports:*", "mail:?"),
                policy=SendPolicy(
                    on_doubt="resend",
                    deadline=600.0,
                    grace=5.0,
                    catch_up=CatchUp.LATEST,
                    catch_up_within=86_400.0,
                    mode="observe",
                ),
                pause=(
                    Entry(text="daily 02:00-03:00", name="backup", lines=(lines.parse("daily 02:00-03:00"),)),
                    Entry(text="sat 00:00-24:00", lines=(lines.parse("sat 00:00-24:00"),)),
                ),
            ),
            SendRule(schedules=("*",), policy=DEFAULT_POLICY),
        ),
        control=Control(users=("deploy", 1001), groups=("ops", 27)),
    )


@pytest.mark.parametrize("url", ["sqlite:", "sqlite:relative.db", "sqlite:/a/b.db", "memory:"])
def test_the_stores_that_may_be_named(url: str) -> None:
    assert parse(f'[store]\nurl = "{url}"'.encode(), "gate.toml").store_url == url


def test_a_prefix_may_have_any_letter() -> None:
    text = b"[store]\nurl = 'redis://h'\nprefix = 'shop.schedules-2'"
    assert parse(text, "gate.toml").shared.prefix == "shop.schedules-2"


@pytest.mark.parametrize(("keep", "seconds"), [("1h", 3600.0), ("60m", 3600.0), ("3660d", 3660 * 86_400.0)])
def test_how_long_may_be_kept(keep: str, seconds: float) -> None:
    assert parse(f'[store]\nkeep = "{keep}"'.encode(), "gate.toml").keep == seconds


UNIT = "write a number and a unit (ms, s, m, h, d, w), such as 90s, 1h30m or 14d"
KNOWN = "this version knows timezone, uncovered, store, days, hours, fetch, resource, send, control"
STORE_KEYS = "url, keep, prefix, password_file, wait_replicas, allow_eviction, lease, on_store_down"
STORES = "sqlite:, sqlite:PATH, memory:, redis://, rediss://, unix://, redis+sentinel://, redis+cluster://"
WRONG: dict[str, tuple[str, list[str]]] = {
    "an unknown table": ("[resources]\n", [f"resources: unknown table or key ({KNOWN})"]),
    "an unknown key at the top": ("time_zone = 'Europe/Berlin'", [f"time_zone: unknown table or key ({KNOWN})"]),
    "an unknown key of the store": (
        "[store]\nurll = 'sqlite:'",
        [f"store.urll: unknown key (this version knows {STORE_KEYS})"],
    ),
    "an unknown key of a rule": (
        "[[send]]\nschedules = ['*']\ncatchup = 'latest'",
        [
            "send[0].catchup: unknown key (this version knows schedules, on_doubt, deadline, grace, catch_up, "
            "catch_up_within, pause, mode)"
        ],
    ),
    "an unknown store": (
        "[store]\nurl = 'postgres://localhost'",
        [f"store.url: 'postgres://localhost' is not one of {STORES}"],
    ),
    "a memory with a path": (
        "[store]\nurl = 'memory:x'",
        [f"store.url: 'memory:x' is not one of {STORES}"],
    ),
    "a prefix with a space": (
        "[store]\nprefix = 'my gates'",
        [r"store.prefix: expected `str` matching regex '^[^{}\\s]{1,64}$', got 'my gates'"],
    ),
    "no store at all": ("[store]\nurl = ''", [f"store.url: '' is not one of {STORES}"]),
    "a number for a duration": ("[store]\nkeep = 14", ["store.keep: expected `str`, got `int`, got 14"]),
    "a word for a duration": ("[store]\nkeep = 'long'", [f"store.keep: 'long' is not a duration: {UNIT}"]),
    "too short a memory": (
        "[store]\nkeep = '59m'",
        ["store.keep: '59m' is too short: 1h to 3660d are allowed"],
    ),
    "a memory beyond all dates": (
        "[store]\nkeep = '99999999999w'",
        ["store.keep: '99999999999w' is too long: 1h to 3660d are allowed"],
    ),
    "a deadline beyond all dates": (
        "[[send]]\nschedules = ['*']\ndeadline = '99999999999w'",
        ["send[0].deadline: '99999999999w' is too long: 0ms to 3660d are allowed"],
    ),
    "a grace without end": (
        "[[send]]\nschedules = ['*']\ngrace = '25h'",
        ["send[0].grace: '25h' is too long: 0ms to 1d are allowed"],
    ),
    "another way to catch up": (
        "[[send]]\nschedules = ['*']\ncatch_up = 'newest'",
        ["send[0].catch_up: 'newest' is not one of none, latest, all"],
    ),
    "catching up for too long": (
        "[[send]]\nschedules = ['*']\ncatch_up_within = '367d'",
        ["send[0].catch_up_within: '367d' is too long: 1m to 366d are allowed"],
    ),
    "catching up for no time": (
        "[[send]]\nschedules = ['*']\ncatch_up_within = '59s'",
        ["send[0].catch_up_within: '59s' is too short: 1m to 366d are allowed"],
    ),
    "another mode": (
        "[[send]]\nschedules = ['*']\nmode = 'dry'",
        ["send[0].mode: 'dry' is not one of enforce, observe"],
    ),
    "a pause that is no list": (
        "[[send]]\nschedules = ['*']\npause = 'backup'",
        ["send[0].pause: expected `array | null`, got `str`, got 'backup'"],
    ),
    "a pause by a name that is none": (
        "timezone = 'UTC'\n[hours]\nbackup = ['daily 02:00-03:00']\n"
        "[[send]]\nschedules = ['a']\npause = ['backup']\n[[send]]\nschedules = ['*']\npause = ['bakup']",
        ["send[1].pause[0]: unknown name 'bakup' (did you mean backup?): [hours] has backup"],
    ),
    "a pause without a zone": (
        "[[send]]\nschedules = ['*']\npause = ['daily 02:00-03:00']",
        ['timezone: missing: hours need one, such as timezone = "Europe/Berlin"'],
    ),
    "a pause that ends before it begins": (
        "timezone = 'UTC'\n[[send]]\nschedules = ['*']\npause = ['daily 02:00-02:00']",
        ["send[0].pause[0]: 'daily 02:00-02:00': start and end are both 02:00: write 00:00-24:00 for a whole day"],
    ),
    "one bracket instead of two": (
        "[send]\nschedules = ['*']",
        ["send: write [[send]], with two brackets: there may be several"],
    ),
    "a rule without schedules": ("[[send]]\non_doubt = 'skip'", ["send[0].schedules: missing"]),
    "a rule for a schedule without a name": (
        "[[send]]\nschedules = ['']",
        ["send[0].schedules[0]: expected `str` of length >= 1, got ''"],
    ),
    "a rule for nothing": (
        "[[send]]\nschedules = []",
        ["send[0].schedules: expected `array` of length >= 1, got []"],
    ),
    "a glob that is no list": (
        "[[send]]\nschedules = '*'",
        ["send[0].schedules: expected `array`, got `str`, got '*'"],
    ),
    "a glob that is no text": (
        "[[send]]\nschedules = ['a', 3]",
        ["send[0].schedules[1]: expected `str`, got `int`, got 3"],
    ),
    "an unknown policy": (
        "[[send]]\nschedules = ['*']\non_doubt = 'maybe'",
        ["send[0].on_doubt: 'maybe' is not one of skip, resend"],
    ),
    "a policy that is no text": (
        "[[send]]\nschedules = ['*']\non_doubt = true",
        ["send[0].on_doubt: True is not one of skip, resend"],
    ),
    "a value for a table": ("store = 1", ["store: expected `object`, got `int`, got 1"]),
    "a value for a rule": ("send = [1]", ["send[0]: expected `object`, got `int`, got 1"]),
    "a truth for a user": (
        "[control]\nusers = [true]",
        ["control.users[0]: expected `int | str`, got `bool`, got True"],
    ),
    "half a user": (
        "[control]\ngroups = ['a', 1.5]",
        ["control.groups[1]: expected `int | str`, got `float`, got 1.5"],
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_with_table_key_and_value(what: str) -> None:
    text, expected = WRONG[what]
    assert findings(text) == expected


def test_every_error_of_a_file_is_said_at_once() -> None:
    text = """
        colour = "red"

        [store]
        url = "postgres:"
        keep = "1s"
        size = 3

        [[send]]
        schedules = []
        on_doubt = "ask"
        deadline = "soon"
        mode = "dry"

        [[send]]
        grace = "-1s"

        [control]
        users = "root"
        groups = [[]]
    """
    assert findings(text) == [
        f"colour: unknown table or key ({KNOWN})",
        f"store.size: unknown key (this version knows {STORE_KEYS})",
        f"store.url: 'postgres:' is not one of {STORES}",
        "store.keep: '1s' is too short: 1h to 3660d are allowed",
        "send[0].schedules: expected `array` of length >= 1, got []",
        "send[0].on_doubt: 'ask' is not one of skip, resend",
        "send[0].mode: 'dry' is not one of enforce, observe",
        f"send[0].deadline: 'soon' is not a duration: {UNIT}",
        "send[1].schedules: missing",
        f"send[1].grace: '-1s' is not a duration: {UNIT}",
        "control.users: expected `array`, got `str`, got 'root'",
        "control.groups[0]: expected `int | str`, got `array`, got []",
    ]


@pytest.mark.parametrize(
    ("data", "finding"),
    [
        (b"\xff", "not UTF-8 at byte 0"),
        (b"[store]\nurl = '\xe9'", "not UTF-8 at byte 15"),
        (b"\xef\xbb\xbf[store]\n", "begins with a byte order mark: save it as UTF-8 without one"),
        (b"[store\n", "expected ']' at the end of a table declaration (at line 1, column 7)"),
        (b"a = 1\na = 2\n", "cannot overwrite a value (at line 2, column 6)"),
        (b"x = " + b"[" * 5000 + b"]" * 5000, "maximum recursion depth exceeded"),
    ],
)
def test_what_is_no_toml_is_said_in_one_line(data: bytes, finding: str) -> None:
    (found,) = findings(data)
    assert found.startswith(finding)


def test_a_number_beyond_all_bounds_is_an_error_of_the_file() -> None:
    assert len(findings(b"x = " + b"9" * 5000)) == 1


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_file_is_a_configuration_or_refused(data: bytes) -> None:
    try:
        assert isinstance(parse(data, "gate.toml"), Config)
    except ConfigError as error:
        assert error.findings  # noqa: PT017 - either is right
