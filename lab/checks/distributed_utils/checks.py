"""Checks of section 2: ranks, devices and the process group."""

from lab.checks.common.look import Look
from lab.checks.distributed_utils.draw import draw_cases, draw_launchers, draw_setup
from lab.checks.distributed_utils.judge_environments import judge_environments
from lab.checks.distributed_utils.judge_leaving import judge_leaving
from lab.checks.distributed_utils.judge_setup import judge_setup
from lab.checks.distributed_utils.observe import leave_group, read_environments
from lab.checks.distributed_utils.observe_setup import join_group
from lab.grading.check import Group, Order, check

FILE = "distributed_utils.py"


@check("2.1", "reads torchrun's and srun's variables, and refuses to guess")
def reads_the_launch_environment(group: Group) -> None:
    decoy = {"RANK": "17", "LOCAL_RANK": "3", "WORLD_SIZE": "23"}  # in os.environ, to see what is read
    cases = draw_cases()
    given = {"decoy": decoy, "environments": [case.environ for case in cases]}
    reports = group.observe(Order(read_environments, 1, given, set_up_process_group=False))
    look = Look(group.code, FILE, "read_launch_environment")
    judge_environments(look, cases, reports, [int(value) for value in decoy.values()])


@check("2.2", "joins the process group with the backend and device of the machine")
def joins_the_process_group(group: Group) -> None:
    given = draw_setup()
    reports = group.observe(Order(join_group, 2, given, set_up_process_group=False, timeout=20))
    judge_setup(Look(group.code, FILE, "setup"), reports, given)


@check("2.3", "knows the main process, and leaves the group, if there is one")
def leaves_the_process_group(group: Group) -> None:
    given = draw_launchers()
    reports = group.observe(Order(leave_group, 3, given, set_up_process_group=False))
    judge_leaving(Look(group.code, FILE, "cleanup"), reports, given)
