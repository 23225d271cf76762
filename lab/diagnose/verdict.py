"""From the evidence to what is said: the cause first, then what else was seen."""

import dataclasses
import re
from collections.abc import Iterator

from lab.diagnose import access, ended_well, logs, nccl_log, nodes, overcome, shared, slurm_job
from lab.diagnose.evidence import Evidence
from lab.diagnose.filled import filled
from lab.diagnose.symptoms.code import CODE
from lab.diagnose.symptoms.table import brings_about
from lab.diagnose.told import course, cut_off, ends, exceptions, launched, parted, versions, waited
from lab.diagnose.told.finding import UNKNOWN, Finding, interrupted
from lab.diagnose.told.states import STATES
from lab.diagnose.trained import at_once, wrongly
from lab.slurm import messages

_TASKS = re.compile(r"^job \d+(?:_\d+)?: (\d+) ranks? on ", re.M)  # by run.sh
_IN_THREAD = "Exception in thread"  # which ends that thread only
_LIMIT = re.compile(r"CANCELLED .*DUE TO TIME LIMIT")
_PLACE = re.compile(r", (?:at|in what) ([^,]+\.py, line \d+(?:, in \S+?)?)(?:, calls)?\.$")
_OF_CODE = {symptom.name: symptom.pattern for symptom in CODE}
_FAILED_NODE = re.compile(r"^srun: error: Node failure on ([\w.-]+)", re.M)
_IN_HOME = re.compile(r"/\.local/lib/python[\d.]+/site-packages/(\w+)")
_NO_CHECKPOINT = re.compile(r"^(?P<line>warning: the checkpoint .+ could not be written .*?)\.?$", re.M)

_BEGINS_AGAIN = ("NODE_FAIL", "PREEMPTED", "REQUEUED")  # after these


def findings(evidence: Evidence) -> list[Finding]:
    """All that is known, causes before consequences, with the commands filled in. Empty where nothing is "
    "wrong."""
    if came_through(evidence) is not None or breaks_off(evidence):
        course_of_it = wrongly.went_wrong(evidence.log, alone=True) or shared.one_core(evidence.log)
        return [filled(course_of_it, evidence)] if course_of_it else []
    found = _behind_its_cause(sorted(_found(evidence), key=lambda finding: finding.order), evidence.log)
    ended_so = bool(found) and found[0].order >= logs.AFTER_ALL and found[0].name in ("exited", "ended-by-signal")
    if (not found or ended_so) and not _goes_well(evidence):
        error = logs.first_error(evidence.log, alone=not found)
        found[:0] = [error] if error else []
    if found and found[0].order == logs.WARNED and _trained(evidence.log):
        found.clear()  # warnings only, of a program that did its work
    if (course_of_it := wrongly.went_wrong(evidence.log, alone=not found)) is not None:
        first = bool(found) and wrongly.before_it_was_stopped(course_of_it, found[0].name)
        found.insert(0 if first else len(found), course_of_it)
    once = [one for at, one in enumerate(found) if all(one.name != before.name for before in found[:at])]
    # What the first one explains need not be said again: the exception behind it, the others' waiting for it.
    again = {
        "raised",
        "library-said",
        "program-said",
        "failed",
        UNKNOWN,
        "nccl-timeout",
        "gloo-timeout",
        "collective-timeout",
    }
    again |= {
        "rank-lost",
        "nobody-listens",
        "nccl-network",
        "nccl-cuda",
        "ended-by-signal",
        "exited",
        "killed",
        "slurm-daemon",
        "collectives-differ",
        "nccl-bootstrap",
        "container-not-started",
        "unused-parameters",
    }
    once = [
        one
        for one in once
        if one is once[0]
        or (one.name not in again and one.order < logs.WARNED and not brings_about(once[0].name, one.name))
    ]
    once = [nccl_log.over_roce(one, evidence.log) for one in _at_home(_placed(once, evidence.log), evidence.log)]
    return [filled(one, evidence) for one in once]


def came_through(evidence: Evidence) -> ended_well.End | None:
    """The end of a run of which neither its records, nor Slurm, nor its log say that anything failed."""
    slurm = evidence.now.state if evidence.now else evidence.state
    known = evidence.status or evidence.lanes or evidence.missing_log or slurm not in ("", "COMPLETED")
    end = None if known else ended_well.end_of(evidence.log, completed=slurm == "COMPLETED")
    if end is None or course.is_cut_short(evidence.log) or logs.complains(end.rest):
        return None
    return end


def breaks_off(evidence: Evidence) -> bool:
    """Whether a job is known by its log alone, and that ends while the program trains, whatever came before."""
    if evidence.status or evidence.lanes or evidence.missing_log or evidence.state or evidence.now:
        return False
    rest = ended_well.breaks_off(evidence.log)
    return rest is not None and not logs.complains(rest)


def _placed(found: list[Finding], log: str) -> list[Finding]:
    """With the user's line, where the first one is an exception of which a rule has more to say."""
    if found and found[0].name in _OF_CODE:
        raised = exceptions.exception(log)
        if raised and _OF_CODE[found[0].name].search(raised.saw) and (place := _PLACE.search(raised.saw)):
            saw = f"{found[0].saw.rstrip('. ')}, at {place[1]}."
            found[0] = dataclasses.replace(found[0], saw=saw, do=(f"look at {place[1]}", *found[0].do))
    return found


def _at_home(found: list[Finding], log: str) -> list[Finding]:
    """With what is in ~/.local, where versions do not fit and the log shows that one of them is from there."""
    if not found or found[0].name not in ("library-said", "mixed-versions", "mixed-libraries", "raised", UNKNOWN):
        return found
    names = dict.fromkeys(_IN_HOME.findall(log))
    name = next((one for one in names if re.search(rf"\b{one.replace('_', '[-_.]')}\b", found[0].saw)), None)
    if name is None or not re.search(r"(?:Import|ModuleNotFound|Attribute)Error|[Vv]ersion", found[0].saw):
        return found
    found[0] = dataclasses.replace(
        found[0],
        means=f"{name} comes from ~/.local, where pip install --user puts it, before that of the environment or "
        f"of the "
        "container, which sees your home: it was made for another version of the rest.",
        do=(
            "PYTHONNOUSERSITE=1 {rerun}    # without ~/.local; apptainer: --env PYTHONNOUSERSITE=1, or --no-home",
            f"python -m pip list --user    # what is there; pip uninstall {name} takes it away",
        ),
    )
    return found


def _behind_its_cause(found: list[Finding], log: str) -> list[Finding]:
    """Put a time limit behind the error that was there before: what had failed stood still until then."""
    if not found or found[0].name != "time-limit":
        return found
    limit = _LIMIT.search(log)
    before = log[: limit.start()] if limit else log
    trained = max(overcome.since(before, len(before)), before.rfind("[METRIC]") + 1)
    rest = before[trained:]  # what training went on after, was lived through
    names = logs.stopped_by(rest, trained=bool(trained))
    raised = None if _IN_THREAD in rest else exceptions.exception(rest)
    causes = [one for one in found if one.name in names or one == raised]
    if not causes:
        return found
    late = max(causes[0].order + 1, 4)
    found = [dataclasses.replace(one, order=late) if one.name == "time-limit" else one for one in found]
    return sorted(found, key=lambda one: (one is not causes[0], one.order))


def _goes_well(evidence: Evidence) -> bool:
    """Whether the run or Slurm says that nothing went wrong so far."""
    states = (evidence.now.state if evidence.now else "", evidence.state)
    return evidence.status in ("done", "running") or any(
        state.startswith(("RUNNING", "PENDING", "COMPLET", "CONFIGURING")) for state in states
    )


def _trained(log: str) -> bool:
    """Whether a log shows training, and no process of it that ended otherwise than by itself."""
    shown = "[METRIC]" in log or overcome.since(log, len(log)) > 0
    return shown and ends.ended(log) is None and not messages.end_in(log)


def _found(evidence: Evidence) -> Iterator[Finding]:
    in_log = messages.end_in(evidence.log)
    if evidence.now is not None:
        stopped = STATES[in_log].saw if in_log in _BEGINS_AGAIN else ""
        if evidence.status == "interrupted":
            stopped = "The run was told to stop, and has saved."
        elif evidence.status == "running" and evidence.now.state == "PENDING" and not stopped:
            stopped = STATES["REQUEUED"].saw  # a node that dies writes nothing into the log
        waits = slurm_job.waiting(evidence.jobid, evidence.now, stopped)
        if waits is not None:
            yield waits
    tasks = _TASKS.findall(evidence.log)
    if tasks and 0 < evidence.world_size < int(tasks[-1]):
        yield Finding(
            "worlds-of-one",
            f"Slurm started {tasks[-1]} ranks, but the run's world had {evidence.world_size}: several "
            f"runs of it "
            f"trained "
            "apart, and wrote to one folder.",
            "RANK and WORLD_SIZE of another launcher were left in the shell, or each torchrun met only itself.",
            ("unset RANK LOCAL_RANK WORLD_SIZE   # then submit again; its numbers are worth nothing",),
            order=-1,
        )
    if evidence.now is not None and evidence.now.exit_code == "0:53":
        yield Finding(
            "log-not-writable",
            "Slurm could not open the job's log, and did not begin it (exit code 0:53).",
            "The folder of --output or --error is not there on the node, or not yours to write to.",
            ("scontrol show job {job}   # StdOut= and StdErr=: is the folder there? Slurm makes none",),
            order=0,
        )
    if evidence.missing_log:
        yield Finding(
            "log-missing",
            f"The job's log is not there: Slurm says that it is {evidence.missing_log}.",
            "It was deleted or moved, or lies where this machine does not see it.",
            ("sacct -j {job} --format=JobID,State,ExitCode,NodeList   # what Slurm has kept of it",),
            order=6,
        )
    if evidence.status == "done" and not evidence.lanes:
        if (lost := _NO_CHECKPOINT.search(evidence.log)) is not None:
            yield Finding(
                "no-checkpoint",
                f"The run is done, but of its checkpoints not all could be written: {lost['line']}.",
                "Its results are there; what would be needed to go on from it, or to use its weights, may not be.",
                ("df -h . ; quota -s ; du -sh results/*", "{rerun}   # with --output-dir on another disk"),
                order=0,
            )
        # By a later job, which wrote to the same log and was refused.
        yield from (one for one in logs.symptoms(evidence.log) if one.name == "run-id-taken")
        return
    if evidence.state in STATES:
        yield STATES[evidence.state]
    # Of memory a symptom tells, which knows the kernel's words too; of a job put back into the queue, Slurm above.
    if in_log in STATES and in_log != "OUT_OF_MEMORY" and not (in_log == "REQUEUED" and evidence.now is not None):
        stopped_by = STATES[in_log]
        if in_log == "NODE_FAIL" and (node := _FAILED_NODE.search(evidence.log)) is not None:
            stopped_by = dataclasses.replace(stopped_by, saw=f"A node of the job failed. It is {node[1]}.")
        yield stopped_by
    if evidence.status == "interrupted":
        yield interrupted(evidence.reason or "no reason on record")
    if (not_whole := cut_off.checkpoint(evidence.log, evidence.earlier)) is not None:
        yield not_whole
    for several_lines_say in (
        versions.differ,
        launched.in_each_task,
        launched.without_gpus,
        launched.beyond_the_gpus,
        launched.on_one_gpu,
        waited.alone,
        waited.left_alone,
        waited.one_missing,
        access.lost,
        shared.card_of_all,
        shared.node_rank,
        shared.build_lock,
        shared.one_core,
        shared.fetched_by_all,
        at_once.cache_of_all,
        at_once.opened_before_fork,
        at_once.at_the_end,
        at_once.empty_option,
        nccl_log.by_tcp,
        nodes.meets_elsewhere,
        nodes.asked_too_much,
        nodes.silent_before_limit,
    ):
        if (one := several_lines_say(evidence.log)) is not None:
            yield one
    if (all_waited := waited.together(evidence.log)) is not None:
        yield all_waited
    said = logs.symptoms(evidence.log)
    if evidence.status == "failed":  # the run may have written down what no log holds
        known = {one.name for one in said}
        said += [one for one in logs.symptoms(f"{evidence.reason}\n") if one.name not in known]
    yield from said
    raised = shared.raised(evidence.log)
    if (apart := waited.apart(evidence.log)) is not None:
        # Where a rank has failed, the others are left behind in whatever they were in.
        yield dataclasses.replace(apart, order=4) if raised and raised.name == "raised" else apart
    if (busy := waited.busy(evidence.log)) is not None:
        yield busy
    if (hung := parted.from_dumps(evidence.lanes, evidence.world_size)) is not None:
        # A rank that has failed does not come to the next collective: then the others' waiting is no cause.
        failed = raised is not None or any(one.name == "program-said" for one in said)
        follows = failed and hung.name in ("rank-missing", "rank-without-dump")
        yield dataclasses.replace(hung, order=4) if follows else hung
    if raised is not None:
        yield raised
    ended = ends.ended(evidence.log)
    if ended is not None and not (raised and ended.name == "interrupted"):  # it saved, went on, and failed later
        yield ended
    if evidence.status == "failed" and evidence.reason:
        yield Finding(
            "failed",
            f"The run says of itself: {evidence.reason.rstrip('. ')}.",
            "The lab knows no more about it than that.",
            ("{rerun}",),
            order=9 if exceptions.is_consequence(evidence.reason) else 5,
        )
