"""What is said of a job in which the lab finds nothing that it knows: it goes on, it is done, or look there."""

import shlex

from lab.base.terminal import Page
from lab.base.words import one_line
from lab.diagnose import overcome
from lab.diagnose.evidence import Evidence
from lab.diagnose.told import course
from lab.diagnose.verdict import came_through

_BROKEN_OFF = (
    "It is still running, was killed from outside (a time limit, memory, the node), or what it said last "
    "was not "
    "written any more, or into another file: from this log it cannot be told."
)


def say_nothing_found(page: Page, evidence: Evidence) -> bool:
    """Returns whether that is because the lab does not know enough."""
    status, log = evidence.status, evidence.log
    slurm = evidence.now.state.split()[0] if evidence.now and evidence.now.state else ""
    if status == "done":
        page.say("The run is done, nothing went wrong.", lead="  ")
        return False
    if not status and not log.strip() and slurm == "COMPLETED":
        page.say("Slurm says that the job has ended, and that nothing went wrong.", lead="  ")
        return False
    said = slurm or evidence.state  # Slurm knows better than a program that may have been killed
    if said in ("RUNNING", "CONFIGURING", "COMPLETING") or (status == "running" and not said):
        who = "Slurm" if slurm else "It"
        page.say(f"{who} says that it is running, and its log shows no error.", lead="  ")
        page.say("squeue --me   # is it still there?", lead="  try    ")
        if evidence.files:
            logs = shlex.join(evidence.files[-2:])
            page.line(f"         tail -f {logs}   # does it still move? if not, it hangs: see docs/failures.md")
        return False
    if said in ("", "COMPLETED") and course.is_complete(log):
        page.say("It trained for all its epochs, and its log shows no error.", lead="  ")
        return False
    if (end := came_through(evidence)) is not None:
        page.say("The run came to its end, and nothing failed after it.", lead="  ")
        page.say(one_line(end.said), lead="  last   ")
        return False
    last = [line for line in log.splitlines() if line.strip()][-1:]
    if last and overcome.trains(last[0]):
        page.say("The log ends in the midst of training, and shows nothing that stopped it.", lead="  ")
        page.say(one_line(last[0]), lead="  last   ")
        page.say(_BROKEN_OFF, lead="  means  ")
        job = evidence.jobid or "JOB"
        page.line(f"  try    sacct -j {job} --format=JobID,State,ExitCode,End,NodeList    # how Slurm saw it end")
        page.line("         squeue --me    # or is it still running?")
        return True
    page.say("Nothing here that the lab knows.", lead="  ")
    if evidence.now is not None and slurm:
        page.say(f"{evidence.now.state}, exit code {evidence.now.exit_code or 'unknown'}", lead="  Slurm  ")
    if not log.strip() and evidence.jobid:
        page.line(f"  try    scontrol show job {evidence.jobid}   # StdErr= is its log; then lab diagnose LOG")
        return True
    if last:
        page.say(last[0][:300], lead="  last   ")
    page.say("docs/failures.md lists symptoms, causes and commands", lead="  try    ")
    return True
