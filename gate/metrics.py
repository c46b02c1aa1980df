"""A status as Prometheus metrics. Whoever scrapes gets what `gatectl status --json` says, and nothing of its own.

Names follow Prometheus: base units, `_total` for what only grows and begins anew with the gate, `_timestamp_seconds`
for instants. Source: https://prometheus.io/docs/practices/naming/.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from gate.interface import Counts, PoolInfo, RuleInfo, ScheduleInfo, StatusOut

PREFIX = "schedule_gate_"

Rows: TypeAlias = Iterable[tuple[list[str], float]]
"""The values of the labels of one series, and its value."""


def text(status: StatusOut | None) -> str:
    """What a scrape is answered; None: the gate did not answer."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Said(list(families(status))))
    return generate_latest(registry).decode()


class _Said(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def families(status: StatusOut | None) -> Iterator[Metric]:
    """All metrics; of a gate that did not answer only that."""
    yield _gauge("up", "Whether the gate answered.", status is not None)
    if status is None:
        return
    yield from _gate(status)
    yield from _sends(status)
    yield from _schedules(status.schedules)
    yield from _rules(status.rules)
    yield from _pools(status.pools)


def _gate(status: StatusOut) -> Iterator[Metric]:
    about = InfoMetricFamily(f"{PREFIX}build", "Which gate this is.")
    about.add_metric([], {"version": status.version, "store": status.store.kind, "tzdata": status.tzdata.version})
    yield about
    yield _gauge("start_timestamp_seconds", "When the gate started.", status.started)
    yield _gauge("store_healthy", "Whether the store can be written; nothing is granted else.", status.store.healthy)
    yield _gauge("store_bytes", "What the store takes.", status.store.bytes)
    yield _gauge("connections", "Open connections.", status.connections)
    yield _gauge("watchers", "Workers that watch their hours.", status.watchers_total)
    yield _gauge("config_valid", "0 while a configuration waits that is not taken over.", status.config_problem is None)
    yield _gauge("config_loaded_timestamp_seconds", "When the configuration in force was read.", status.config_loaded)
    yield _gauge("warnings", "Warnings in `gatectl status`.", len(status.warnings))
    yield _gauge("overrides", "Overrides of operators in force.", len(status.overrides))
    yield _gauge("pauses", "Pauses of operators in force.", len(status.pauses))


def _sends(status: StatusOut) -> Iterator[Metric]:
    yield _counters("answers", "Answers to claims.", ["decision"], _answers(status.counts))
    yield _counters("observed", 'Grants that mode = "enforce" would have refused.', [], [([], status.counts.observed)])
    yield _gauge("schedules", "Schedules that the ledger knows.", status.schedules_total)
    yield _gauge("in_doubt", "Occurrences in doubt: claimed, and nobody knows whether sent.", status.doubts_total)
    yield _gauge("missed", "Missed occurrences that the ledger remembers.", status.missed_total)


def _answers(counts: Counts) -> Rows:
    names = [name for name in counts.__struct_fields__ if name != "observed"]
    return [([name], getattr(counts, name)) for name in names]


def _schedules(schedules: list[ScheduleInfo]) -> Iterator[Metric]:
    """Of those used last, as many as a status names."""
    for name, what in [
        ("sent", "Occurrences sent."),
        ("refused", "Claims refused."),
        ("doubt", "Occurrences that fell in doubt."),
        ("missed", "Occurrences missed."),
    ]:
        rows: Rows = [([info.schedule], getattr(info, name)) for info in schedules]
        yield _counters(f"schedule_{name}", what, ["schedule"], rows)
    newest: Rows = [([info.schedule], info.at.timestamp()) for info in schedules]
    yield _gauges("schedule_newest_timestamp_seconds", "The newest occurrence that was claimed.", ["schedule"], newest)
    paused: Rows = [([info.schedule], float(info.paused is not None)) for info in schedules]
    yield _gauges("schedule_paused", "Whether it is paused, by hours or an operator.", ["schedule"], paused)


def _rules(rules: list[RuleInfo]) -> Iterator[Metric]:
    rows: Rows = [([info.rule], float(info.open)) for info in rules]
    yield _gauges("rule_open", "Whether the hours of a [[fetch]] rule are open.", ["rule"], rows)


def _pools(pools: list[PoolInfo]) -> Iterator[Metric]:
    limits: Rows = [([pool.pool], pool.limit) for pool in pools if pool.limit is not None]
    yield _gauges("places_limit", "How many may run at once now.", ["pool"], limits)
    taken: Rows = [([pool.pool], pool.taken) for pool in pools]
    yield _gauges("places_taken", "Places that are taken now.", ["pool"], taken)
    elsewhere: Rows = [([pool.pool], pool.elsewhere) for pool in pools if pool.elsewhere is not None]
    yield _gauges("places_elsewhere", "Places that the gates of other hosts count with.", ["pool"], elsewhere)
    waiting: Rows = [([pool.pool], len(pool.waiting)) for pool in pools]
    yield _gauges("places_waiting", "Workers that wait for a place.", ["pool"], waiting)


def _gauge(name: str, what: str, value: float | datetime) -> Metric:
    number = value.timestamp() if isinstance(value, datetime) else float(value)
    return _gauges(name, what, [], [([], number)])


def _gauges(name: str, what: str, labels: list[str], rows: Rows) -> Metric:
    return _filled(GaugeMetricFamily(PREFIX + name, what, labels=labels), rows)


def _counters(name: str, what: str, labels: list[str], rows: Rows) -> Metric:
    return _filled(CounterMetricFamily(PREFIX + name, what, labels=labels), rows)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Rows) -> Metric:
    for values, value in rows:
        family.add_metric(values, value)
    return family
