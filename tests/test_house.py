"""Rules of the house: what is pure stays pure, clients stay small, files stay short, the README knows everything."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import gate
from gate import config, errors, interface

ROOT = Path(__file__).resolve().parent.parent
FILES = [
    path
    for folder in ("gate", "clients", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "__pycache__" not in path.parts
]
CODE = [path for path in FILES if path.parts[len(ROOT.parts)] != "tests"]
MAP = re.findall(r"^    (\S+?)(/?)\s+(P?)  (.+)$", gate.__doc__ or "", re.MULTILINE)
PURE = [name for name, _, pure, _ in MAP if pure]
PURE_LIBRARIES = {
    "bisect",
    "calendar",
    "collections",
    "croniter",
    "datetime",
    "difflib",
    "enum",
    "fnmatch",
    "functools",
    "icalendar",
    "itertools",
    "math",
    "msgspec",
    "re",
    "recurring_ical_events",
    "tomllib",
    "typing",
    "zoneinfo",
}
CLIENTS_MAY_SHARE = {"gate", "gate.errors", "gate.interface", "gate.wire"}
FOREIGN = ["trio", "redis", "croniter", "click", "rich", "prometheus_client", "procrastinate"]


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, at whatever depth of the file; `from gate import errors` is gate.errors."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: no relative imports"
            module = node.module or ""
            yield from (f"{module}.{name.name}" for name in node.names) if module == "gate" else [module]


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


# -- purity


def test_the_code_map_names_every_module_of_the_gate_and_no_other() -> None:
    there = {path.name for path in (ROOT / "gate").iterdir() if path.suffix == ".py" or path.is_dir()}
    there -= {"__init__.py", "__main__.py", "__pycache__"}
    assert {name for name, _, _, _ in MAP} == there
    assert set(PURE) == {
        *("errors.py", "interface.py", "wire.py", "durations.py", "rules.py", "config.py", "ledger.py"),
        *("calendars.py", "cron.py", "lines.py", "masks.py", "windows.py", "ical.py"),
        *("localdays.py", "odd.py", "week.py"),
        *("settings.py", "hours.py", "globs.py", "timetable.py", "overrides.py", "fetchrules.py"),
        *("wallclock.py", "explain.py", "hints.py", "asked.py"),
        *("claims.py", "listings.py", "pauses.py", "starts.py", "tallies.py", "refusals.py"),
        *("atonce.py", "moments.py", "limits.py", "fetchlimits.py", "poolinfo.py", "shares.py"),
        *("pools.py", "graces.py", "holders.py", "waitlist.py", "permit.py", "places.py", "offers.py", "permits.py"),
    }


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_imports_nothing_impure(name: str) -> None:
    for module in imports(ROOT / "gate" / name):
        pure = module.startswith("gate.") and module.removeprefix("gate.") + ".py" in PURE
        assert pure or module.partition(".")[0] in PURE_LIBRARIES, module


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_asks_nobody_for_the_time_and_opens_nothing(name: str) -> None:
    for node in ast.walk(ast.parse((ROOT / "gate" / name).read_text())):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input", "exec", "eval", "__import__"}, ast.unparse(node)
        if isinstance(node.func, ast.Attribute):
            assert node.func.attr not in {"now", "utcnow", "today", "read_text", "open"}, ast.unparse(node)


def test_the_send_table_is_changed_in_one_place_only() -> None:
    """Whoever makes an Occurrence in a state makes a transition: that is the ledger, and stores that read one."""
    makers = [
        names(path)
        for path in CODE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Occurrence"
    ]
    assert set(makers) == {"gate/ledger.py", "gate/stores/sqlite.py", "gate/stores/redisrecord.py"}


# -- the clients


def without(*modules: str) -> str:
    """The beginning of a program in which these modules cannot be imported."""
    return f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "clients")!r}]
"""


def run(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-W", "error", "-c", program], check=False, capture_output=True, text=True)


WATCH = """
import json, os, threading
fds, before = len(os.listdir("/proc/self/fd")), set(sys.modules)
{imports}
print(json.dumps({{
    "threads": threading.active_count(),
    "fds": len(os.listdir("/proc/self/fd")) - fds,
    "modules": sorted(set(sys.modules) - before),
}}))
"""


@pytest.mark.parametrize(
    "then",
    [
        "import gate_client",
        "from gate_client import AsyncGate, Claim, Gate, GateError",
        "import taskiq_gate",
        "import procrastinate_gate",
    ],
)
def test_a_client_can_be_imported_where_the_gate_is_not_installed_and_does_nothing(then: str) -> None:
    done = run(without(*FOREIGN, "taskiq", "pycron") + WATCH.format(imports=then))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["threads"], found["fds"]) == (1, 0)
    ours = {module for module in found["modules"] if module.partition(".")[0] == "gate"}
    assert ours <= CLIENTS_MAY_SHARE
    loaded = {module.partition(".")[0] for module in found["modules"]}
    assert loaded - set(sys.stdlib_module_names) <= {
        "gate",
        "gate_client",
        "taskiq_gate",
        "procrastinate_gate",
        "msgspec",
        "typing_extensions",
    }


def test_importing_the_client_alone_brings_neither_sockets_nor_asyncio() -> None:
    done = run(without(*FOREIGN) + WATCH.format(imports="import gate_client"))
    assert done.returncode == 0, done.stderr
    assert {"asyncio", "socket", "threading", "msgspec", "gate.wire"}.isdisjoint(json.loads(done.stdout)["modules"])


def test_the_shim_needs_taskiq_and_nothing_of_the_service() -> None:
    done = run(without(*FOREIGN) + WATCH.format(imports="from taskiq_gate import GatedScheduleSource"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {module for module in found["modules"] if module.partition(".")[0] == "gate"} <= CLIENTS_MAY_SHARE


INSTALL = """
from procrastinate import App, PsycopgConnector
app = App(connector=PsycopgConnector(conninfo="nowhere"))
fds = len(os.listdir("/proc/self/fd"))
from procrastinate_gate import install
install(app)
"""


def test_installing_the_procrastinate_shim_opens_nothing_and_needs_nothing_of_the_service() -> None:
    service = [name for name in FOREIGN if name not in ("croniter", "procrastinate")]  # procrastinate needs croniter
    done = run(without(*service, "django", "psycopg_c") + WATCH.format(imports=INSTALL))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["threads"], found["fds"]) == (1, 0)
    assert {module for module in found["modules"] if module.partition(".")[0] == "gate"} <= CLIENTS_MAY_SHARE


@pytest.mark.parametrize("path", sorted((ROOT / "clients").rglob("*.py")), ids=names)
def test_a_client_imports_only_what_clients_may(path: Path) -> None:
    package = path.parent.name
    hosts = {"taskiq_gate": {"taskiq", "pycron", "pydantic"}, "procrastinate_gate": {"procrastinate", "psycopg"}}
    own = {"msgspec", "gate_client", package, *hosts.get(package, set())}
    for module in imports(path):
        top = module.partition(".")[0]
        allowed = module in CLIENTS_MAY_SHARE if top == "gate" else top in own
        assert allowed or top in sys.stdlib_module_names, module


@pytest.mark.parametrize("missing", ["trio"])
def test_without_the_service_extra_the_gate_says_in_one_line_how_to_get_it(missing: str) -> None:
    done = run(without(missing) + "from gate.__main__ import main; sys.exit(main())")
    assert done.returncode == 2
    assert done.stderr == f"gate: {missing} is missing: pip install 'schedule-gate[service]'\n"


# -- size


def test_no_file_is_longer_than_six_hundred_lines() -> None:
    sizes = {names(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: size for name, size in sizes.items() if size > 600} == {}


def test_functions_are_short() -> None:
    sizes = sorted(
        node.end_lineno - node.lineno + 1
        for path in CODE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    )
    assert sizes[len(sizes) // 2] < 10
    assert sizes[len(sizes) * 9 // 10] < 30
    assert sizes[-1] <= 60


# -- the README


README = (ROOT / "README.md").read_text()
LINKED = "".join((ROOT / path).read_text() for path in re.findall(r"\]\((gate/\S+\.varlink)\)", README))
"""The interface files that the README sends its readers to."""


def lacking(words: list[str], text: str) -> list[str]:
    return [word for word in words if not re.search(rf"\b{re.escape(word)}\b", text)]


def test_the_readme_or_an_interface_file_that_it_links_names_every_method_decision_and_error() -> None:
    words = [method.rpartition(".")[2] for method in interface.METHODS if method.startswith("io.schedulegate.")]
    words += [decision.value for decision in interface.Decision]
    words += [name.rpartition(".")[2] for name in errors.CALL_ERRORS if name.startswith("io.schedulegate.")]
    assert lacking(words, README + LINKED) == []


def test_the_readme_names_every_limit_by_its_error() -> None:
    limits = [name.rpartition(".")[2] for name, error in errors.CALL_ERRORS.items() if "{limit}" in error.text]
    assert len(limits) >= 4
    assert lacking(limits, README) == []


def test_the_readme_names_every_key_of_the_configuration() -> None:
    rule = config.parse(b"[[send]]\nschedules = ['*']", "gate.toml").send[0]
    policy = [field.name for field in msgspec.structs.fields(rule.policy)]
    control = [field.name for field in msgspec.structs.fields(config.Control)]
    assert lacking(["store", "url", "keep", "send", "schedules", *policy, "control", *control], README) == []


def test_the_readme_names_every_option_of_the_gate() -> None:
    done = run(without() + "from gate.daemon import main; main(['--help'])")
    options = sorted(set(re.findall(r"--[a-z-]+", done.stdout)) - {"--help", "--version"})
    assert [option for option in options if option not in README] == []
