"""Whether a log shows that its run came to its end: what it complained of on the way, it then lived through."""

import re
from dataclasses import dataclass

from lab.diagnose import overcome

_WORK = r"(?:pre-?|fine-?)?train(?:ing)?|fine-?tuning|optimi[sz]ation|experiment"
_OVER = r"(?:complete[d]?|finished|done|ended|over|succeeded)"
# A library's own words after its last step.
_OF_A_LIBRARY = re.compile(
    r"`?\w*\.?fit`? stopped: `?max_\w+=\S+ reached|Training completed\. Do not forget to share"
    r"|'train_runtime': |\btrain_runtime\s+= |\*{3,} train metrics \*{3,}|\bOptimizer stripped from "
    r"|\d+ epochs completed in [\d.]+ |\[after training is done\]|exiting program at iteration \d"
    r"|[Ee]arly stopping (?:triggered|at epoch|after)|worker group successfully finished"
    r"|\bepoch \d+: early stopping$|^done training in [\d.]+|- done training in [\d.]+",
    re.I,
)
_OF_A_PROGRAM = re.compile(
    rf"\b(?:{_WORK})\b(?: (?:loop|process|job|procedure|script|run))?(?::| has| is| was| have)?"
    rf"(?: been| all| now| successfully){{0,2}} ?{_OVER}\b"
    rf"|\b(?:finished|completed|finishing|done(?: with)?|end of|ending) (?:the "
    rf"|all )?(?:model )?(?:{_WORK}|epochs)\b"
    r"|\b(?:total |overall )?(?:training|train|wall|elapsed|run) ?time\b(?:\W{1,3}| is | was )\d"
    r"|\btotal time\b\W{1,3}\d|\bfinal (?:\w+ ){0,2}?(?:acc\w*|loss|score|metrics?|results?|top-?1|miou"
    r"|map|f1|wer|bleu)\b"
    r"|\bbest (?:\w+ )?(?:acc\w*|loss|score)\b.{1,40}\bat (?:epoch|step)\b"
    r"|\bsav(?:ed|ing) (?:the )?final (?:checkpoint|model|weights)|\bfinal (?:checkpoint|model"
    r"|weights) (?:saved|written)"
    r"|\b(?:all )?done\b.{0,20}(?:\bacc|\bloss|best|after \d|in \d)|\bfinished (?:in|after) \d"
    r"|\ball \d* ?epochs? (?:completed?|finished|done)",
    re.I,
)
# Of a part of the work, of what comes before it, or of how it failed.
_OF_A_PART = re.compile(
    r"(?<!at )(?<!best )\bepochs?\b\W{0,3}\d|(?<!at )\b(?:step|iter(?:ation)?|batch|fold|stage|phase|part"
    r"|trial)\b\W{0,3}\d"
    r"|n't\b|\b(?:not|never|before|until|when|if|once|after training|will|should|would|whether"
    r"|with(?:out)? errors?"
    r"|fail\w*|errors?|abort\w*|exceptions?|crash\w*|interrupt\w*|premature\w*|killed|cancel\w*|early exit"
    r"|download\w*|data|datasets?|extract\w*|unpack\w*|preprocess\w*|tokeniz\w*|load\w*|install\w*|compil\w*"
    r"|warm-?up|set-?up|initiali[sz]\w*|prepar\w*|convert\w*|cop(?:y|ied)\w*|staging|sanity|profil\w*|dry[- ]run"
    r"|previous\w*|resum\w*|already|expected|estimated|eta|remaining)\b",
    re.I,
)
# A wrapper's: the exit code of what it ran, or that it came to its own end.
_CODE_ZERO = re.compile(
    r"\b(?:exit|return|ret|rc)(?:ed|s|ing)?[ _-]?(?:with |on )?(?:exit |return )?(?:code|status"
    r"|value)?\W{0,5}\b0(?![.\d:]*[1-9]\d*)\b"
    r"|\bstatus\W{0,3}0\b|\bCOMPLETED\b.{0,80}\b0:0\b|\bExitCode=0:0|State: COMPLETED|Successfully completed\."
    r"|\bexits? successfully|\bexited successfully|(?:status|State)\W{1,3}(?:SUCCEEDED|SUCCESS|COMPLETED)\b"
    r"|\(success\)|JobState=COMPLETED|WorkerState\.SUCCEEDED",
    re.I,
)
_DONE = re.compile(
    r"^\W*(?:\[[^\]]{0,40}\]\W*)*(?:all )?(?:done|finished|complete[d]?|end(?: of job)?|bye)\W*$", re.I
)
_DONE_AT = re.compile(
    rf"\b(?:job|script|run|program)\b(?: \S{{1,30}})? (?:has |was |is )?{_OVER}\b|\b(?:finished|ended"
    rf"|done|end) (?:at|on)\b",
    re.I,
)
_WARNS_AT_EXIT = re.compile(
    r"destroy_process_group\(\) was not called before|process group has NOT been destroyed before"
)
_ALL_OF = re.compile(r"(\d+) ?/ ?(\d+)")
_EPOCHS = re.compile(r"\bepochs?\b\W{0,3}\d+ ?/ ?\d+", re.I)
_PERCENT = re.compile(r"(\d+)%\|?")

_NOT_ZERO = r"(?:-\d|[1-9]\d{0,2}\b(?![.:/%]\d))"
_BADLY = re.compile(
    r"^srun: error: (?!.{0,200}Exited with exit code 0$)|^(?:sbatch|salloc): error: |CANCELLED AT"
    r"|\bDUE TO TIME LIMIT"
    r"|ChildFailedError|failed \(exitcode: -?[1-9]|^\S+\.py FAILED$|\bexitcode\s*: -?[1-9]"
    r"|^\[rank\d+\]: (?:Traceback|(?:\w+\.)*\w*(?:Error|Exception)\b)|^\d{1,5}: Traceback"
    r"|\bprocess \d+ terminated with|died with <Signals"
    rf"|\b(?:exit|return|ret|rc)(?:ed|s|ing)?[ _-]?(?:with )?(?:exit |return )?(?:code|status"
    rf"|value)\W{{0,5}}{_NOT_ZERO}"
    rf"|\b(?:exited|returned|failed)(?: with)?(?: error)?(?: code| status)?\W{{1,3}}{_NOT_ZERO}(?!\w)"
    r"|\b(?:FAILED|CANCELLED|TIMEOUT|OUT_OF_ME\+?\w*|NODE_FAIL|PREEMPTED)\+?\b.{0,80}\b\d+:\d+\b"
    r"|\(failed -?\d+\)"
    r"|State: (?:FAILED|CANCELLED|TIMEOUT|OUT_OF_MEM\w*|NODE_FAIL)|(?:status|State)\W{1,3}(?:FAILED"
    r"|FAILURE|ERROR)\b"
    r"|(?:mpirun|mpiexec|orterun|prterun|prun)\b.{0,20} (?:noticed|detected)|BAD TERMINATION"
    r"|MPI_ABORT was invoked"
    r"|non-zero (?:exit|status|return)|\brank \d+ (?:exited with code [1-9]|died from signal)"
    r"|(?:^|: line \d+: +\d+ )(?:Killed|Segmentation fault|Aborted|Bus error|Terminated|Illegal instruction)\b"
    r"|\(core dumped\)|^terminate called |Fatal Python error|Caught signal \d|^SystemExit: [1-9]"
    r"|^\S{1,100}: error: (?:unrecognized arguments|the following arguments|argument )|^KeyboardInterrupt$"
    r"|: command not found$|can't open file '|oom[-_]kill|^FATAL: |^slurmstepd: error: (?:Exceeded|Detected)"
)
_TRIED_AGAIN = re.compile(
    r"will restart worker group|[Rr]estarting (?:worker group|the (?:job|run|training)|from)"
    r"|DUE TO JOB REQUEUE|DUE TO PREEMPTION"
    r"|\bSLURM_RESTART_COUNT=[1-9]|\b[Rr]etrying (?:the )?(?:job|command|run|training|step)\b"
    r"|\b[Aa]ttempt [2-9]\b"
)
_OF_NCCL = "NCCL INFO"  # it numbers its own results: "Plugin load returned 2"
_EXCEPTION = re.compile(r"^(?:\d+: )?Traceback \(most recent call last\)")
_AT_THE_TOP = re.compile(r'^\s+File "[^"]+", line \d+, in <module>')
_A_GOOD_WHILE = 5  # lines that show training
_LONGEST = 1000  # characters of a line that are looked at


@dataclass(frozen=True)
class End:
    """The line that says that a run came to its end, and what is in the log after the last sign of its work."""

    said: str
    rest: str


def end_of(log: str, *, completed: bool = False) -> End | None:
    """The end that a log shows, where no process of it ended badly; None where it shows none.

    What a program of several ranks prints of itself does not count as the end where a rank ended otherwise, nor
    what a wrapper says after an exception that ended it.

    Args:
        completed: Slurm's records say so.
    """
    lines = overcome.IGNORED.sub("", log).splitlines()
    seen = _read(lines)
    if seen is None:
        return None
    worked = max(seen.trained, seen.own)
    if seen.at_the_top > seen.own or seen.raised > worked:
        return None
    sure = max(seen.own, seen.code_zero, seen.all_epochs)
    weak = max(seen.wrapper, seen.at_exit) if seen.trained >= 0 and seen.raised < 0 else -1
    last = max(sure, weak)
    if last < seen.trained and not (completed and seen.trained >= 0):
        return None
    if last < 0 and not completed:
        return None
    if worked < 0 and seen.raised >= 0:
        return None
    said = lines[last] if last >= 0 else "COMPLETED"
    return End(said.strip(), "".join(f"{line}\n" for line in lines[worked + 1 :]))


def breaks_off(log: str) -> str | None:
    """The last lines of a log that ends while its program trains, and no process ended; None of any other.

    What was printed before them did not stop it: the program has gone on for a good while.
    """
    lines = overcome.IGNORED.sub("", log).rstrip().splitlines()
    if not lines or not overcome.trains(lines[-1]):
        return None
    seen = _read(lines)
    if seen is None or seen.at_the_top >= 0:
        return None
    steps = [at for at, line in enumerate(lines) if at > seen.raised and overcome.trains(line)]
    if len(steps) < _A_GOOD_WHILE:
        return None
    return "".join(f"{line}\n" for line in lines[steps[-_A_GOOD_WHILE] :])


@dataclass
class _Signs:
    """The last line of each kind; -1: there is none."""

    trained: int = -1
    own: int = -1
    all_epochs: int = -1
    code_zero: int = -1
    wrapper: int = -1
    at_exit: int = -1
    raised: int = -1
    at_the_top: int = -1
    badly: int = -1


def _read(lines: list[str]) -> _Signs | None:
    """What the lines show; None where a process ended badly, and was not started again."""
    seen = _Signs()
    for at, long in enumerate(lines):
        line = long[:_LONGEST]
        if _OF_NCCL in line:
            continue
        if _TRIED_AGAIN.search(line):
            seen.badly = seen.raised = seen.at_the_top = -1
        elif _BADLY.search(line):
            seen.badly = at
        elif _EXCEPTION.match(line):
            if not (at and lines[at - 1].startswith("Exception in thread")):
                seen.raised = at
                if at + 1 < len(lines) and _AT_THE_TOP.match(lines[at + 1]):
                    seen.at_the_top = at
        elif _CODE_ZERO.search(line):
            seen.code_zero = at
        elif _OF_A_LIBRARY.search(line) or (_OF_A_PROGRAM.search(line) and not _OF_A_PART.search(line)):
            seen.own = at
        elif overcome.trains(line):
            seen.trained = at
            seen.all_epochs = at if _is_last_epoch(line) else -1
        elif _DONE.match(line) or _DONE_AT.search(line):
            seen.wrapper = at
        elif _WARNS_AT_EXIT.search(line):
            seen.at_exit = at
    return seen if seen.badly < 0 else None


def _is_last_epoch(line: str) -> bool:
    """Whether a line counts epochs, and stands at the last of each thing that it counts: "Epoch [50/50] "
    "100%"."""
    counts = [(int(one), int(other)) for one, other in _ALL_OF.findall(line)]
    return (
        _EPOCHS.search(line) is not None
        and all(one == other for one, other in counts)
        and all(int(percent) == 100 for percent in _PERCENT.findall(line))
    )
