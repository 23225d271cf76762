"""Answers to 2.1: rank and world size from the launcher's variables."""

from answers.entries import Bank

bank = Bank(
    "2.1",
    {
        "2.1": """
names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN  # choose
missing = [name for name in names if name not in environ]  # missing
if missing:  # if_missing
    raise ValueError(f"{missing} not set")  # say_missing
values = [environ[name] for name in names]  # values
if not all(value.isdecimal() for value in values):  # if_text
    raise ValueError(f"{names} must be whole numbers, got {values}")
rank, local_rank, world_size = map(int, values)  # numbers
if not local_rank <= rank < world_size:  # if_contradiction
    raise ValueError(f"{names} contradict each other: {values}")
return LaunchEnvironment(rank, local_rank, world_size)  # result
"""
    },
)

# ---- right

bank.right(
    "one launcher after the other, and int() says what is no number",
    whole={
        "2.1": """
for names in (TORCHRUN, SRUN):
    present = [name for name in names if name in environ]
    if present and len(present) < 3:
        raise ValueError(f"missing: {set(names) - set(present)}")
    if present:
        break
else:
    raise ValueError("no launcher: neither RANK nor SLURM_PROCID is set")
try:
    rank, local_rank, world_size = (int(environ[name]) for name in names)
except ValueError as error:
    raise ValueError(f"not a number in {names}") from error
if not (0 <= local_rank <= rank < world_size):
    raise ValueError("contradiction")
return LaunchEnvironment(rank=rank, local_rank=local_rank, world_size=world_size)
"""
    },
)
bank.right(
    "an error class of its own, derived from ValueError",
    whole={
        "2.1": """
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
"""
    },
)

# It says what to repair first, and nothing that is not so; the next run says the next.
bank.right("only the first missing variable is named", say_missing="raise ValueError(f'{missing[0]} not set')")

# ---- wrong

# github.com/meta-llama/llama-cookbook/issues/90, github.com/openai/gpt-oss/issues/266
bank.wrong(
    "rank-as-local-rank", "the rank as local rank", result="return LaunchEnvironment(rank, rank, world_size)"
)
bank.wrong(
    "silent-world-of-one",
    "a world of one where no launcher is seen",
    if_missing="if len(missing) == 3:\n    return LaunchEnvironment(0, 0, 1)\nif missing:",
)
bank.wrong(
    "missing-variable-guessed",
    "local rank 0 where the variable is missing",
    missing="environ = {names[1]: '0', **environ} if names[0] in environ else environ\n"
    "missing = [name for name in names if name not in environ]",
)
bank.wrong("not-a-value-error", "the KeyError of the dictionary", if_missing="if False:")
bank.wrong("strings-returned", "text in place of numbers", result="return LaunchEnvironment(*values)")
bank.wrong("world-size-hard-coded", "a fixed world size", result="return LaunchEnvironment(rank, local_rank, 4)")
bank.wrong(
    "reads-os-environ",
    "os.environ in place of the argument",
    choose="environ = os.environ\nnames = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN",
)
bank.wrong(
    "srun-before-torchrun",
    "srun's variables before torchrun's",
    choose="names = SRUN if any(name in environ for name in SRUN) else TORCHRUN",
)
bank.wrong("srun-not-read", "torchrun's variables only", choose="names = TORCHRUN")
# Slurm's many numbers: github.com/Lightning-AI/pytorch-lightning/issues/20391, github.com/tunib-ai/oslo/pull/150,
# github.com/lozingaro/slurm-job-template-disi/issues/3
bank.wrong(
    "other-slurm-variables",
    "Slurm's numbers of nodes in place of those of processes",
    choose="names = TORCHRUN if any(name in environ for name in TORCHRUN) "
    "else ('SLURM_NODEID', 'SLURM_LOCALID', 'SLURM_NNODES')",
)
bank.wrong(
    "mixed-launchers",
    "srun's variables where one of torchrun's is missing",
    choose="names = TORCHRUN if all(name in environ for name in TORCHRUN) else SRUN",
)
bank.wrong(
    "bad-number-accepted", "negative numbers", if_text="if not all(v.lstrip('-').isdecimal() for v in values):"
)
bank.wrong("contradiction-accepted", "ranks that contradict each other", if_contradiction="if False:")
bank.wrong(
    "contradiction-accepted",
    "a rank as large as the world size",
    if_contradiction="if not local_rank <= rank <= world_size:",
)
bank.wrong(
    "error-names-nothing",
    "an error that does not say what is missing",
    say_missing="raise ValueError('bad setup')",
)
bank.wrong(
    "no-launch-environment", "nothing is returned", result="LaunchEnvironment(rank, local_rank, world_size)"
)
bank.wrong("no-launch-environment", "a tuple is returned", result="return rank, local_rank, world_size")
bank.wrong(
    "wrong-numbers", "rank and local rank swapped", result="return LaunchEnvironment(local_rank, rank, world_size)"
)
bank.wrong(
    "environment-changed",
    "the variables are taken out of the mapping",
    values="values = [environ.pop(name) for name in names]",
)
bank.wrong(
    "reads-os-environ",
    "the launcher is chosen by os.environ",
    choose="names = TORCHRUN if any(name in os.environ for name in TORCHRUN) else SRUN",
)
bank.wrong(
    "not-a-value-error", "an assertion", if_contradiction="assert local_rank <= rank < world_size\nif False:"
)
bank.wrong(
    "local-rank-computed",
    "a fixed number of processes on a node",
    result="return LaunchEnvironment(rank, rank % 4, world_size)",
)

# ---- seen in other settings, on other ranks, in other hands

bank.right(
    "os.environ is asked through the argument only",
    choose="environ = dict(environ)\nnames = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN",
)
bank.right(
    "isinstance of Mapping",
    choose="assert isinstance(environ, Mapping)\n"
    "names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN",
)
bank.wrong(
    "contradiction-accepted",
    "assert for contradictions",
    if_contradiction="if rank >= world_size:",
)
bank.wrong(
    "contradiction-accepted",
    "only the local rank",
    if_contradiction="if local_rank > rank:",
)
bank.wrong(
    "bad-number-accepted",
    "try around all",
    whole={
        "2.1": "\ntry:\n"
        '    return LaunchEnvironment(int(environ["RANK"]), int(environ["LOCAL_RANK"]), '
        'int(environ["WORLD_SIZE"]))\nexcept Exception:\n    pass\ntry:\n'
        '    return LaunchEnvironment(int(environ["SLURM_PROCID"]), '
        'int(environ["SLURM_LOCALID"]), int(environ["SLURM_NTASKS"]))\nexcept Exception:\n'
        '    raise ValueError("RANK LOCAL_RANK WORLD_SIZE SLURM_PROCID SLURM_LOCALID '
        'SLURM_NTASKS missing")\n'
    },
)
bank.wrong(
    "local-rank-computed",
    "rank modulo 4",
    numbers="rank, local_rank, world_size = map(int, values)\nlocal_rank = rank % 4",
)
bank.wrong(
    "wrong-numbers",
    "local rank and rank change places",
    result="return LaunchEnvironment(local_rank, rank, world_size)",
)
bank.wrong(
    "raised",
    "local rank and world size swapped",
    numbers="rank, world_size, local_rank = map(int, values)",
)
bank.wrong(
    "error-not-raised",
    "ValueError made only",
    say_missing="ValueError(f'{missing} not set')",
    values="values = [environ.get(name, '0') for name in names]",
)
bank.wrong(
    "error-not-raised",
    "contradiction printed",
    if_contradiction="if not local_rank <= rank < world_size:\n    print('contradiction', rank)\nif False:",
)
bank.wrong(
    "local-rank-computed",
    "rank // 4",
    numbers="rank, local_rank, world_size = map(int, values)\nlocal_rank = rank // 4",
)
