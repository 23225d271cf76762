"""The check of exercise 2.1 accepts different right answers and names what is wrong with the others."""

from pathlib import Path

import pytest
from answers.bank import outcome_of, verdict, with_answer

from lab.grading.diagnosis import Failed

RIGHT = {
    "match statement": """
        for names in (TORCHRUN, SRUN):
            present = [name for name in names if name in environ]
            if present and len(present) < 3:
                raise ValueError(f"missing {set(names) - set(present)}")
            if present:
                break
        else:
            raise ValueError("no launcher: RANK and SLURM_PROCID are not set")
        try:
            rank, local_rank, world_size = (int(environ[name]) for name in names)
        except ValueError as error:
            raise ValueError(f"not a number in {names}") from error
        if not (0 <= local_rank <= rank < world_size):
            raise ValueError("contradiction")
        return LaunchEnvironment(rank=rank, local_rank=local_rank, world_size=world_size)
    """,
    "own error class": """
        class LaunchError(ValueError):
            pass
        launcher = TORCHRUN if set(TORCHRUN) & set(environ) else SRUN
        numbers = {}
        for field, name in zip(("rank", "local_rank", "world_size"), launcher):
            if environ.get(name) is None:
                raise LaunchError(f"{name} is missing")
            if not environ[name].strip().isdigit():
                raise LaunchError(f"{name}={environ[name]}")
            numbers[field] = int(environ[name])
        launch = LaunchEnvironment(**numbers)
        if launch.rank >= launch.world_size or launch.local_rank > launch.rank:
            raise LaunchError(f"impossible: {launch}")
        return launch
    """,
}

REFERENCE = """
names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN
missing = [name for name in names if name not in environ]
if missing:
    raise ValueError(f"{missing} not set")
values = [environ[name] for name in names]
if not all(value.isdecimal() for value in values):
    raise ValueError(f"{names} must be numbers, got {values}")
rank, local_rank, world_size = map(int, values)
if not local_rank <= rank < world_size:
    raise ValueError("contradiction")
return LaunchEnvironment(rank, local_rank, world_size)
"""

WRONG = {
    "rank as local rank": (
        "rank-as-local-rank",
        REFERENCE.replace("LaunchEnvironment(rank, local_rank,", "LaunchEnvironment(rank, rank,"),
    ),
    "world of one": (
        "silent-world-of-one",
        "if not any(name in environ for name in TORCHRUN + SRUN):\n    return LaunchEnvironment(0, 0, 1)\n"
        + REFERENCE,
    ),
    "all defaults": (
        "srun-not-read",
        """
        return LaunchEnvironment(
            int(environ.get("RANK", 0)), int(environ.get("LOCAL_RANK", 0)), int(environ.get("WORLD_SIZE", 1))
        )
        """,
    ),
    "default local rank": (
        "missing-variable-guessed",
        "environ = {'LOCAL_RANK': '0', **environ} if 'RANK' in environ else environ\n" + REFERENCE,
    ),
    "KeyError": (
        "not-a-value-error",
        REFERENCE.replace("if missing:\n    raise ValueError", "if False:\n    raise"),
    ),
    "TypeError": (
        "not-a-value-error",
        "if 'RANK' not in environ and 'SLURM_PROCID' not in environ:\n    return int(None)\n" + REFERENCE,
    ),
    "strings": (
        "strings-returned",
        REFERENCE.replace("LaunchEnvironment(rank, local_rank, world_size)", "LaunchEnvironment(*values)"),
    ),
    "world size hard-coded": (
        "world-size-hard-coded",
        REFERENCE.replace("local_rank, world_size)", "local_rank, 4)"),
    ),
    "os.environ": ("reads-os-environ", "environ = os.environ\n" + REFERENCE),
    "chooses by os.environ": (
        "reads-os-environ",
        REFERENCE.replace("any(name in environ for", "any(name in os.environ for"),
    ),
    "srun first": (
        "srun-before-torchrun",
        REFERENCE.replace(
            "TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN",
            "SRUN if any(name in environ for name in SRUN) else TORCHRUN",
        ),
    ),
    "torchrun only": (
        "srun-not-read",
        REFERENCE.replace(" if any(name in environ for name in TORCHRUN) else SRUN", ""),
    ),
    "falls back to srun": (
        "mixed-launchers",
        REFERENCE.replace("if any(name in", "if all(name in"),
    ),
    "negative": ("bad-number-accepted", REFERENCE.replace("value.isdecimal()", "value.lstrip('-').isdecimal()")),
    "no contradiction": (
        "contradiction-accepted",
        REFERENCE.replace("if not local_rank <= rank < world_size", "if 0"),
    ),
    "off by one": ("contradiction-accepted", REFERENCE.replace("rank < world_size", "rank <= world_size")),
    "local rank unchecked": ("contradiction-accepted", REFERENCE.replace("local_rank <= rank <", "0 <= rank <")),
    "asserts": (
        "not-a-value-error",
        REFERENCE.replace(
            "if not local_rank <= rank < world_size:\n    raise ValueError('contradiction')", ""
        ).replace(
            'if not local_rank <= rank < world_size:\n    raise ValueError("contradiction")',
            "assert local_rank <= rank < world_size",
        ),
    ),
    "silent message": ("error-names-nothing", REFERENCE.replace("{missing} not set", "bad environment")),
    "no return": ("no-launch-environment", REFERENCE.replace("return ", "")),
    "tuple": (
        "no-launch-environment",
        REFERENCE.replace(
            "return LaunchEnvironment(rank, local_rank, world_size)", "return rank, local_rank, world_size"
        ),
    ),
    "swapped": (
        "wrong-numbers",
        REFERENCE.replace("LaunchEnvironment(rank, local_rank", "LaunchEnvironment(local_rank, rank"),
    ),
    "bug": ("raised", "names = TORCHRUN\nreturn environ[names]"),
}


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize("code", [REFERENCE, *RIGHT.values()], ids=["reference", *RIGHT])
def test_a_right_answer_passes(tmp_path: Path, code: str):
    assert verdict("2.1", with_answer(tmp_path, "2.1", code)) == "passed"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "code"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_gets_its_diagnosis(tmp_path: Path, name: str, code: str):
    assert verdict("2.1", with_answer(tmp_path, "2.1", code)) == name


def test_the_lines_show_the_environment_and_the_answer(tmp_path: Path):
    outcome = outcome_of("2.1", with_answer(tmp_path, "2.1", WRONG["world of one"][1]))
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.saw == "with nothing set: you returned rank 0, local_rank 0, world_size 1."
    assert outcome.diagnosis.look == "distributed_utils.py:38  return LaunchEnvironment(0, 0, 1)"
