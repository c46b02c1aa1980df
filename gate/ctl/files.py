"""Answers from a configuration file, without a gate: what it would say there, but that it knows of no override."""

from datetime import datetime
from pathlib import Path

from gate import explain
from gate.ctl.asking import WrongUsage, findings
from gate.errors import ConfigError, InvalidParameter, InvalidWorker, NoSuchRule
from gate.interface import WeekIn, WeekOut, WhyIn, WhyOut
from gate.overrides import NO_OVERRIDES
from gate.reload import Calendars, Loaded, read_bytes
from gate.reload import load as load_bytes
from gate.week import week


def read(file: str, now: datetime) -> Loaded:
    """Read a configuration and the files that it names, as the gate does on this machine; raises ConfigError."""
    path = Path(file)
    return load_bytes(path, read_bytes(path), Calendars(), now)


def load(file: str, now: datetime) -> Loaded:
    """The same; raises WrongUsage with every finding."""
    try:
        return read(file, now)
    except ConfigError as error:
        raise WrongUsage(findings(f"{file} cannot be used", error.findings)) from error


def week_of(loaded: Loaded, asked: WeekIn, now: datetime) -> WeekOut:
    """What the gate answers to Week; raises WrongUsage."""
    try:
        return week(loaded.config, loaded.rules, NO_OVERRIDES, asked, now)
    except (NoSuchRule, InvalidParameter) as error:
        raise WrongUsage(str(error)) from error


def why_of(loaded: Loaded, asked: WhyIn, now: datetime) -> WhyOut:
    """What the gate answers to Why; raises WrongUsage."""
    try:
        return explain.why(loaded.rules, NO_OVERRIDES, asked, now)
    except (InvalidWorker, InvalidParameter) as error:
        raise WrongUsage(str(error)) from error
