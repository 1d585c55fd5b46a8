"""Prometheus metrics of controller, switch and workers: read from an overview when they are scraped, kept nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from switchsum.view.facts import Facts, Overview
from switchsum.view.late import find_late, shares_now, stands
from switchsum.view.losses import lost_of
from switchsum_protocol.reports import CallSpan
from switchsum_protocol.states import SwitchPresence

RANK: Final = ("job", "rank")
SWITCH: Final = ("switch", "reason")
"""Labels; the name of the only switch is empty, which to Prometheus is no label."""
WORKER_COUNTERS: Final = {
    "begun": ("switchsum_collectives_begun", "Collectives that a worker has begun."),
    "finished": ("switchsum_collectives_finished", "Collectives that have finished at a worker."),
    "collective_s": ("switchsum_collective_seconds", "Time of a worker inside collectives, and waiting for them."),
    "rounds": ("switchsum_rounds", "Rounds of slots that were completed at a worker."),
    "frames_sent": ("switchsum_worker_frames_sent", "Contributions that a worker has sent, repeats included."),
    "bytes_sent": ("switchsum_worker_sent_bytes", "Bytes of frames that a worker has sent."),
    "frames_received": ("switchsum_worker_frames_received", "Frames that a worker has received."),
    "bytes_received": ("switchsum_worker_received_bytes", "Bytes of frames that a worker has received."),
    "repeats": ("switchsum_repeats", "Contributions that a worker has sent again."),
    "held": ("switchsum_repeats_held", "Repeats to which the switch answered that it waits for others."),
    "duplicates": ("switchsum_duplicates", "Results that came to a worker once more."),
    "marked": ("switchsum_marked", "Results that said that a queue on the way was long (ECN)."),
}
"""Name and meaning of each field of a report that only grows while a worker is connected."""
WORKER_GAUGES: Final = {
    "age_s": ("switchsum_worker_report_age_seconds", "Time since the latest report of a worker."),
    "waiting_s": (
        "switchsum_worker_waiting_seconds",
        "For how long no result came while an operation was in flight.",
    ),
    "idle_s": ("switchsum_worker_idle_seconds", "For how long a worker has had no operation in flight."),
    "waiting_slots": ("switchsum_worker_waiting_slots", "Slots with a contribution whose result is to come."),
}


class Metrics(Collector):
    """What an overview says, as metrics."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    def describe(self) -> Iterable[Metric]:
        """Return nothing: names are checked when they are collected."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        seen = self._overview
        yield from _controller(seen)
        yield from _switch(seen)
        yield from _jobs(seen.jobs)
        yield from _members(seen.jobs)
        yield from _workers(seen.jobs)
        yield from _late(seen.jobs)


def exposition(overview: Overview, accept: str) -> tuple[bytes, str]:
    """Return the metrics in the format that a scraper accepts, and that format's media type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(overview))
    try:
        encoder, kind = choose_encoder(accept)
        kind.encode("latin-1")  # it repeats parts of what was asked for, and becomes a header
    except (ValueError, TypeError):  # what is asked for is no version, or has characters that no header has
        encoder, kind = choose_encoder("")
    return encoder(registry), kind


def _controller(seen: Overview) -> Iterator[Metric]:
    info = seen.info
    described = {
        "version": info.package_version,
        "wire_version": str(info.wire_version),
        "lanes_per_frame": str(info.lanes_per_frame),
        "switch": info.switch,
        "program_digest": info.program_digest,
    }
    yield InfoMetricFamily("switchsum", "The controller, its switch and the program of that.", described)
    yield GaugeMetricFamily("switchsum_slots_free", "Slots of the switch that no job has.", info.free_slots)
    up = GaugeMetricFamily("switchsum_switch_up", "1: the switch answers the controller.", labels=["switch"])
    states = {one.switch: one.state for one in seen.switches.switches} or {"": ""}
    for name, state in states.items():
        up.add_metric([name], int(state != SwitchPresence.AWAY and not (seen.trouble and len(states) == 1)))
    yield up


def _switch(seen: Overview) -> Iterator[Metric]:
    packets = CounterMetricFamily(
        "switchsum_switch_packets", "Packets that the switch treated specially.", labels=SWITCH
    )
    octets = CounterMetricFamily("switchsum_switch_bytes", "Bytes of these packets.", labels=SWITCH)
    by_switch = {one.switch: one.counters for one in seen.counted.switches if one.counters}
    # Each switch by itself: a sum of those that are there would fall, which passes for counters that began anew.
    for name, counters in (by_switch or {"": seen.counted.counters}).items():
        for counter in counters:
            packets.add_metric([name, counter.reason], counter.packets)
            octets.add_metric([name, counter.reason], counter.bytes)
    loss = GaugeMetricFamily(
        "switchsum_port_simulated_loss_ratio", "Probability of the drop simulator.", labels=["port", "direction"]
    )
    for port in seen.ports.ports:
        loss.add_metric([str(port.port), "ingress"], port.ingress_loss)
        loss.add_metric([str(port.port), "egress"], port.egress_loss)
    yield from (packets, octets, loss)


def _jobs(jobs: list[Facts]) -> Iterator[Metric]:
    workers = GaugeMetricFamily("switchsum_job_workers", "World size of a job.", labels=["job"])
    slots = GaugeMetricFamily("switchsum_job_slots", "Slots of a job.", labels=["job"])
    states = GaugeMetricFamily("switchsum_job_state", "1: the job is in this state.", labels=["job", "state"])
    members = GaugeMetricFamily("switchsum_job_members", "Members of a job by state.", labels=["job", "state"])
    for facts in jobs:
        job = facts.job
        workers.add_metric([job.job], job.workers)
        slots.add_metric([job.job], job.slot_count + job.own_slot_count)
        states.add_metric([job.job, job.state], 1)
        found = [member.state for member in job.members]
        for state in sorted(set(found)):
            members.add_metric([job.job, state], found.count(state))
    yield from (workers, slots, states, members)


def _members(jobs: list[Facts]) -> Iterator[Metric]:
    frames = CounterMetricFamily("switchsum_contributions", "Contributions that came to the switch.", labels=RANK)
    octets = CounterMetricFamily("switchsum_contribution_bytes", "Bytes of these contributions.", labels=RANK)
    results = CounterMetricFamily("switchsum_results", "Results of complete rounds that went to a member.", labels=RANK)
    outcomes = CounterMetricFamily(
        "switchsum_contribution_outcomes", "What became of contributions.", labels=[*RANK, "reason"]
    )
    lost = GaugeMetricFamily(
        "switchsum_link_lost_frames", "About how many contributions and answers a link has lost.", labels=RANK
    )
    for facts in jobs:
        for member in facts.counters.values():
            labels = [member.job, str(member.rank)]
            frames.add_metric(labels, member.contributions)
            octets.add_metric(labels, member.contribution_bytes)
            results.add_metric(labels, member.results)
            for count in member.reasons:
                outcomes.add_metric([*labels, count.reason], count.packets)
        for worker in facts.workers:
            if worker.rank in facts.counters and worker.age_s >= 0:
                lost.add_metric([facts.job.job, str(worker.rank)], lost_of(facts, worker))
    yield from (frames, octets, results, outcomes, lost)


def _late(jobs: list[Facts]) -> Iterator[Metric]:
    time = GaugeMetricFamily(
        "switchsum_rank_time_ratio", "Part of the last ten seconds that a rank spent so.", labels=[*RANK, "spent"]
    )
    late = GaugeMetricFamily(
        "switchsum_rank_late_seconds", "By how much a rank is late in most steps; 0: it is not named.", labels=RANK
    )
    cost = GaugeMetricFamily(
        "switchsum_job_late_cost_ratio", "How much faster the job would be without its late rank.", labels=["job"]
    )
    density = GaugeMetricFamily(
        "switchsum_rank_density_ratio", "Part of the rows of sparse allreduces that a rank had, lately.", labels=RANK
    )
    for facts in jobs:
        found = None if stands(facts.workers) else find_late(facts.calls)
        cost.add_metric([facts.job.job], 0.0 if found is None else found.gain)
        span = facts.calls.spans[0] if facts.calls.spans else CallSpan(seconds=0.0)
        for worker in facts.workers:
            labels = [facts.job.job, str(worker.rank)]
            spent_so = shares_now(span, worker)
            if any(spent_so.values()):  # else nothing is known
                for spent, share in spent_so.items():
                    time.add_metric([*labels, spent], share)
                is_late = found is not None and found.rank == worker.rank
                late.add_metric(labels, found.late_s if found is not None and is_late else 0.0)
            if worker.recent.sparse_all_rows:
                density.add_metric(labels, worker.recent.sparse_rows / worker.recent.sparse_all_rows)
    yield from (time, late, cost, density)


def _workers(jobs: list[Facts]) -> Iterator[Metric]:
    reported = [(facts.job.job, one) for facts in jobs for one in facts.workers if one.age_s >= 0]
    about = InfoMetricFamily("switchsum_worker", "Where a worker is.", labels=RANK)
    for job, worker in reported:
        about.add_metric([job, str(worker.rank)], {"host": worker.host, "link": worker.link})
    yield about
    for named, family in ((WORKER_COUNTERS, CounterMetricFamily), (WORKER_GAUGES, GaugeMetricFamily)):
        for field, (name, text) in named.items():
            metric = family(name, text, labels=RANK)
            for job, worker in reported:
                metric.add_metric([job, str(worker.rank)], getattr(worker, field))
            yield metric
