"""What a log says: the symptoms in it, the exception of the rank that failed first, and how processes ended."""

import re
import signal
from collections import defaultdict
from pathlib import Path

from lab.base.words import one_line
from lab.diagnose.finding import Finding, interrupted
from lab.diagnose.symptoms.entry import Symptom
from lab.diagnose.symptoms.table import SYMPTOMS
from lab.slurm import messages

# "[rank1]: Traceback", "1: Traceback" (srun --label), "[rank1]:[E1128 ...".
_RANK = re.compile(r"^(?:\[rank(\d+)\]:|(\d{1,5}):)\s?")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')
_EXCEPTION = re.compile(r"^(?P<type>(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit))(?::\s*(?P<text>.*))?$")
# Not where anything began: torchrun's own report, and ranks that have lost the one that failed.
_CONSEQUENCE = re.compile(
    r"ChildFailedError|SignalException|SystemExit|[Cc]onnection (?:closed|reset) by|[Bb]roken ?[Pp]ipe"
    r"|ConnectionReset"
    r"|another rank has ended|Timed out waiting|Timed out after|Watchdog caught|remote process exited"
    r"|ncclRemoteError"
    r"|failed to recv, got 0 bytes|Rendezvous\w+Error|likely closed|pair closure|communicator was aborted|EPIPE"
    r"|operations have failed or timed out|DataLoader worker .{0,80}(?:exited unexpectedly|killed by)"
)
# Raised by the system, the driver or a library below PyTorch: the line that called it is not to blame.
_ENVIRONMENT = re.compile(
    r"CUDA(?: driver)? error|NCCL|nccl\w*Error|CUBLAS|CUDNN|cuDNN|CUSOLVER|CUFFT|AcceleratorError|Dist(?:Backend"
    r"|Network|Store)Error"
    r"|[Gg]loo|TCPStore|c10d|Connection\w*Error|TimeoutError|^(?:OS|IO|Blocking\w*|Interrupted)Error"
    r"|^ImportError: (?:/|lib)"
    r"|^MemoryError|\.so\b|TorchScript|Triton"
)
_NOT_OURS = (
    "site-packages",
    "dist-packages",
    "/lib/python",
    "/bin/",
    "<frozen",
    "<string>",
    "<stdin>",
    "/torch/",
    "/lab/training/",
    "/lab/runs/",
    "/lab/base/",
)
# PyTorch's warnings are of what went wrong at first and was tried again, or did no harm: "[rank1]:[W1128 ...".
_WARNING = re.compile(r"^(?:\[rank\d+\]:|\d{1,5}:)? ?(?:\[W(?:\d{4})? |W\d{4} ).*\n?", re.M)
_LONG = re.compile(r"^.{4001,}$", re.M)
_MOST = 1 << 18  # characters at both ends of what all patterns are tried on
# Words of which every line that a symptom is seen in holds one, whatever is seen there.
_TELLS = re.split(
    r"\|",
    "error|fail|warn|fatal|not|no |cannot|can't|unable|invalid|kill|denied|exceed|signal|timed|timeout|"
    "missing|nan| inf|lost|xid|oom|out of|assert|cancel|unrecognized|mismatch|break|illegal|sigill|busy|"
    "reset|closed|pipe|unexpected|exit|main.py|srun|slurm|sbatch|run.sh|already|retry|again|alloc|full|"
    "symbol|version|compat|peer|errno|status=|/dev/shm|unreachable|refused|interface|architecture|sighup|"
    "broken|disabled|partially|renam|toomany|unauthorized|manifest|gpu|duplicate|ancdata|module|stale|"
    "twice|only once|inconsistent|differ|expired|launch|unavailable|unspecified|memory|limit|exercise|"
    "space|enroot|pyxis|abort|exec|ibv_|insufficient|died|address|incompatible|bad |corrupt|truncat",
)
_KEPT = 2000  # characters at both ends of a long line
WARNED = 10  # the order of what only a warning says
# torchrun's words for how a process ended. Before its report, torchrun names the rank on its node only.
_REPORTED = re.compile(r"(?P<who>rank)\s*:\s*(?P<rank>\d+) .*\n.*exitcode\s*:\s*(?P<code>-?\d+)")
_FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) (?P<who>local_rank): (?P<rank>\d+)")
_KILLED = "Nothing in a program can say that of itself: most often memory ran out, or somebody used kill -9."
_NEEDS_MEMORY = (
    "sacct -j {job} --format=JobID,State,ExitCode,ReqMem,MaxRSS    # was it at its limit?",
    "dmesg | grep -i oom     # on that node, if you may: was it the kernel?",
    "{rerun} --num-workers 2 --per-device-batch-size {half} --accumulate 2   # needs less memory",
)
UNKNOWN = "unknown"  # the name of a finding that says that the lab cannot explain what it saw
_NOT_KNOWN = (
    "The lab does not know this error. It comes from the system, the driver or a library, not from a line of "
    "yours: "
    "what was printed before it, on any rank or node, says more than the lines where it came up."
)
_LOOK_IT_UP = (
    "grep -n -m 5 -i -E 'error|warn' {log}    # the earliest lines",
    "NCCL_DEBUG=INFO TORCH_DISTRIBUTED_DEBUG=DETAIL {rerun}    # says more of itself",
)
_EXITED = "A program that ends itself says no more than it has printed: why is in its own last lines, if anywhere."
_LOOK_FOR_EXITS = ("tail -n 20 {log}", "grep -n 'exit(' exercises/*.py    # sys.exit(), os._exit()")
_MEANS: dict[int, str] = {
    signal.SIGTERM: "Somebody or something told the job to stop: scancel, a time limit, Ctrl-C.",
    signal.SIGSEGV: "Compiled code touched memory that is not its own: a broken installation, or mixed versions.",
    signal.SIGABRT: "Compiled code gave up: the lines above its end say why.",
    signal.SIGUSR1: "The warning a minute before the time is up came before the run had begun: too little time.",
    signal.SIGBUS: "Shared memory, or a file on disk, ran out underneath the process.",
}


def symptoms(log: str) -> list[Finding]:
    """A finding for every symptom that the log shows, told from its first place in it; causes before others."""
    log = _telling(_LONG.sub(_shortened, log))
    errors, warnings = _WARNING.sub("", log), "".join(_WARNING.findall(log))
    seen: list[tuple[int, int, Finding]] = []
    for symptom in SYMPTOMS:
        for text, order in ((errors, symptom.order), (warnings, WARNED)):
            if (found := _first(symptom, text)) is not None:
                seen.append((order, found.start(), _told(symptom, found, text, order)))
                break
    return [finding for *_, finding in sorted(seen, key=lambda one: one[:2])]


def _telling(log: str) -> str:
    """The lines that may say what went wrong: of a long log, most tell how training goes on."""
    told = [line for line in log.splitlines() if any(word in line.lower() for word in _TELLS)]
    text = "\n".join((*told, ""))
    return text if len(text) <= 2 * _MOST else f"{text[:_MOST]}\n{text[-_MOST:]}"


def _shortened(line: re.Match[str]) -> str:
    return f"{line[0][:_KEPT]} ... {line[0][-_KEPT:]}"


def _first(symptom: Symptom, text: str) -> re.Match[str] | None:
    """The first place in which a line says this, and not something else."""
    for found in symptom.pattern.finditer(text):
        if symptom.unless is None or not symptom.unless.search(_line(found, text)):
            return found
    return None


def _line(found: re.Match[str], text: str) -> str:
    begin, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.start())
    return text[begin : end if end >= 0 else None]


def _told(symptom: Symptom, found: re.Match[str], text: str, order: int) -> Finding:
    line = _line(found, text)
    rank = _RANK.match(line)
    said = {name: one_line(text or "", 200).rstrip(". ") for name, text in found.groupdict().items()}
    if "ms" in said:
        said["seconds"] = f"{int(said['ms'][:12]) / 1000:g}"
    said["line"] = one_line(_RANK.sub("", line).removeprefix("main.py: "), 200)
    said["rank"] = f"rank {rank[1] or rank[2]} " if rank else ""
    saw = symptom.saw.format_map(defaultdict(str, said))
    return Finding(symptom.name, saw[:1].upper() + saw[1:], symptom.means, symptom.do, order)


def is_consequence(text: str) -> bool:
    """Whether an error follows from that of another process."""
    return bool(_CONSEQUENCE.search(text))


def exception(log: str) -> Finding | None:
    """The first exception that is no consequence of another rank's, with the line of the user's own code."""
    blocks: dict[str, list[re.Match[str]]] = {}  # rank -> the frames of the traceback that is being read
    for line in log.splitlines():
        who = _RANK.match(line)
        rank = (who[1] or who[2]) if who else ""
        rest = line[who.end() :] if who else line
        if rest.startswith("Traceback (most recent call last)"):
            blocks[rank] = []
        elif frame := _FRAME.match(rest):
            blocks.setdefault(rank, []).append(frame)
        elif (said := _EXCEPTION.match(rest)) and blocks.get(rank):
            frames = blocks.pop(rank)
            if not is_consequence(rest):
                return _raised(rank, said, frames)
    return None


def _raised(rank: str, said: re.Match[str], frames: list[re.Match[str]]) -> Finding:
    own = [frame for frame in frames if not any(part in frame["file"] for part in _NOT_OURS)]
    text = one_line(f"{said['type']}: {said['text']}" if said["text"] else said["type"], 300)
    who = f"Rank {rank}" if rank else "A rank"
    if not own or _ENVIRONMENT.search(text):
        return Finding(UNKNOWN, f"{who} raised {text}.", _NOT_KNOWN, _LOOK_IT_UP, order=7)
    at = own[-1]
    where = f"{Path(at['file']).name}, line {at['line']}" + (f", in {at['function']}" if at["function"] else "")
    return Finding(
        "raised",
        f"{who} raised {text}, at {where}.",
        "One rank's error ends the job; what the others say of lost connections follows from it.",
        (f"look at {where}", "lab check    # finds most mistakes on this machine, within seconds"),
        order=3,
    )


def ended(log: str) -> Finding | None:
    """How the process that ended first was ended, when it could not say so itself."""
    reported = list(_REPORTED.finditer(log)) or list(_FAILED.finditer(log))
    found = sorted((*reported, *messages.TASK_ENDED.finditer(log)), key=re.Match.start)
    ends = [(messages.exit_code(match), match) for match in found]
    causes = [end for end in ends if end[0] not in messages.NO_CAUSE]
    if not causes and any(code == messages.SAVED for code, _ in ends):
        return interrupted(order=4)
    ends = causes or [end for end in ends if end[0] not in messages.SAYS_NOTHING]
    if not ends:
        return None
    code, match = ends[0]
    who = f"{'Local rank' if match['who'] == 'local_rank' else 'Rank'} {match['rank']}"
    if code > 0:
        return Finding("exited", f"{who} ended with exit code {code}.", _EXITED, _LOOK_FOR_EXITS, order=6)
    number = -code
    name = signal.Signals(number).name if number in signal.Signals.__members__.values() else f"signal {number}"
    saw = f"{who} was ended by {name}."
    if number == signal.SIGKILL:
        return Finding("killed", saw, _KILLED, _NEEDS_MEMORY, order=4)
    again = "{longer}" if number == signal.SIGUSR1 else "{rerun}"
    # SIGTERM is what the others get when one has failed; before abort() the program has said why.
    order = {int(signal.SIGTERM): 9, int(signal.SIGABRT): 8}.get(number, 4)
    return Finding("ended-by-signal", saw, _MEANS.get(number, "It did not end by itself."), (again,), order)
