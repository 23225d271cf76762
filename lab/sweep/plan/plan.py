"""Which jobs a sweep consists of: device counts x strategies x what else is varied, each with its baseline."""

import itertools
from collections.abc import Sequence
from typing import TypeVar

from lab.runs.options.precision import DEFAULT_BUCKET_CAP_MB
from lab.sweep.compare.columns import BASELINE
from lab.sweep.plan.check import check_job, check_sweep, without_those_that_compare_nothing
from lab.sweep.plan.sweep import Job, Sweep

T = TypeVar("T")


def plan_jobs(*sweeps: Sweep) -> list[Job]:
    """The jobs of one sweep or of several, none of them twice: repeat by repeat, the baselines first.

    A first repeat of everything is then there early, and what drifts on a machine drifts for all points alike.
    A baseline is always there, also when it was not asked for: without it there is no efficiency. A job that the
    options of --compare leave as it is, is left out.

    Raises:
        UsageError: a value makes no sense; the sentence says what to write instead.
    """
    jobs: dict[str, Job] = {}
    for sweep in sweeps:
        check_sweep(sweep)
        for job in _jobs(sweep):
            jobs.setdefault(job.run_id, job)
    for job in jobs.values():
        check_job(job)
    return sorted(without_those_that_compare_nothing(list(jobs.values())), key=lambda job: job.repeat)


def _jobs(sweep: Sweep) -> list[Job]:
    counts = sorted(set(sweep.devices))
    wrapped = [strategy for strategy in dict.fromkeys(sweep.strategies) if strategy != BASELINE]
    points = [(BASELINE, 1), *((strategy, count) for count in counts for strategy in wrapped)]
    jobs = []
    for scaling in dict.fromkeys(sweep.scalings):
        batches = sweep.global_batches if scaling == "strong" else sweep.per_device_batches
        varied = itertools.product(
            _several(batches),
            _several(sweep.precisions, ""),
            _several(sweep.workers, 0),
            [(), sweep.compare] if sweep.compare else [()],
            points,
            _several(sweep.bucket_caps, DEFAULT_BUCKET_CAP_MB),
            range(1, sweep.repeats + 1),
        )
        for batch, precision, workers, extra, (strategy, count), cap, repeat in varied:
            if strategy != "ddp":
                cap = DEFAULT_BUCKET_CAP_MB  # so that a job without buckets is one job
            jobs.append(Job(strategy, count, sweep, scaling, batch, precision, cap, workers, extra, repeat))
    return jobs


def _several(values: Sequence[T], *default: T) -> list[T]:
    """The values without doubles, or the default where there are none."""
    return list(dict.fromkeys(values)) or list(default)
