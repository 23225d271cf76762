"""Answers to 2.1: rank and world size from the launcher's variables."""

from answers.entries import Bank, replaced

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
    "wrong-numbers",
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

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "2.1": """
names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN
missing = [name for name in names if name not in environ]
if missing:
    raise ValueError(f"missing: {missing}")
rank, local_rank, world_size = (int(environ[name]) for name in names)
if not local_rank <= rank < world_size:
    raise ValueError("contradiction")
return LaunchEnvironment(rank, local_rank, world_size)
""",
}

bank.right(
    "any of torchrun",
    whole={
        "2.1": """
names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN
missing = [name for name in names if name not in environ]
if missing:
    raise ValueError(f"missing: {', '.join(missing)}")
rank, local_rank, world_size = (int(environ[name]) for name in names)
if not 0 <= local_rank <= rank < world_size:
    raise ValueError(f"contradiction: {rank=} {local_rank=} {world_size=}")
return LaunchEnvironment(rank, local_rank, world_size)
"""
    },
)
bank.right(
    "sets and early returns",
    whole={
        "2.1": """
def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{name} is {text!r}, not a number") from error


def _checked(rank: int, local_rank: int, world_size: int) -> LaunchEnvironment:
    if rank < 0 or local_rank < 0 or rank >= world_size or local_rank > rank:
        raise ValueError("rank, local rank and world size contradict each other")
    return LaunchEnvironment(rank=rank, local_rank=local_rank, world_size=world_size)

for launcher, names in (("torchrun", TORCHRUN), ("srun", SRUN)):
    present = set(names) & set(environ)
    if not present and launcher == "torchrun":
        continue
    if absent := sorted(set(names) - present):
        raise ValueError(f"{launcher} should have set {absent}")
    return _checked(*map(_number, names, [environ[n] for n in names]))
"""
    },
)
bank.right(
    "dict of fields",
    whole={
        "2.1": """
uses_torchrun = not set(TORCHRUN).isdisjoint(environ)
source = dict(zip(("rank", "local_rank", "world_size"), TORCHRUN if uses_torchrun else SRUN))
values = {}
for field, name in source.items():
    raw = environ.get(name)
    if raw is None:
        raise ValueError("environment variable " + name + " is not set")
    values[field] = int(raw)
env = LaunchEnvironment(**values)
if env.local_rank not in range(env.rank + 1) or env.rank not in range(env.world_size):
    raise ValueError(str(env))
return env
"""
    },
)
bank.right(
    "key error translated",
    whole={
        "2.1": """
names = TORCHRUN
if all(environ.get(name) is None for name in TORCHRUN):
    names = SRUN
try:
    rank, local, world = [int(environ[name]) for name in names]
except KeyError as missing:
    raise ValueError(f"{missing.args[0]} is missing; start me with torchrun or srun") from None
if not (0 <= local <= rank and rank < world):
    raise ValueError(f"{rank}, {local}, {world} do not fit")
return LaunchEnvironment(rank, local, world)
"""
    },
)
bank.wrong(
    "srun-before-torchrun",
    "srun first",
    whole={
        "2.1": """
names = SRUN if any(n in environ for n in SRUN) else TORCHRUN
missing = [n for n in names if n not in environ]
if missing:
    raise ValueError(f"missing {missing}")
rank, local_rank, world_size = [int(environ[n]) for n in names]
if not 0 <= local_rank <= rank < world_size:
    raise ValueError("contradiction")
return LaunchEnvironment(rank, local_rank, world_size)
"""
    },
    slow=True,
)
bank.wrong(
    "reads-os-environ",
    "reads os environ",
    whole=replaced(
        STRAIGHT,
        (
            "rank, local_rank, world_size = (int(environ[name]) for name in names)\n"
            "if not local_rank <= rank < world_size:",
            "rank, local_rank, world_size = (int(os.environ[name]) for name in names)\n"
            "if not 0 <= local_rank <= rank < world_size:",
        ),
    ),
    slow=True,
)
bank.wrong(
    "missing-variable-guessed",
    "world of one by default",
    whole={
        "2.1": """
names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN
missing = [name for name in names[:2] if name not in environ]
if missing:
    raise ValueError(f"missing: {missing}")
rank = int(environ[names[0]])
local_rank = int(environ[names[1]])
world_size = int(environ.get(names[2], 1))
if not 0 <= local_rank <= rank < world_size:
    raise ValueError("contradiction")
return LaunchEnvironment(rank, local_rank, world_size)
"""
    },
)
bank.wrong(
    "contradiction-accepted",
    "rank may be world size",
    whole=replaced(
        STRAIGHT, ("if not local_rank <= rank < world_size:", "if not 0 <= local_rank <= rank <= world_size:")
    ),
    slow=True,
)
bank.wrong(
    "mixed-launchers",
    "each with its fallback",
    whole={
        "2.1": """
values = []
for t, s in zip(TORCHRUN, SRUN):
    value = environ.get(t, environ.get(s))
    if value is None:
        raise ValueError(f"neither {t} nor {s} is set")
    values.append(int(value))
rank, local_rank, world_size = values
if not 0 <= local_rank <= rank < world_size:
    raise ValueError("contradiction")
return LaunchEnvironment(rank, local_rank, world_size)
"""
    },
    slow=True,
)
bank.wrong(
    "mixed-launchers",
    "all of torchrun",
    whole={
        "2.1": """
names = TORCHRUN if all(name in environ for name in TORCHRUN) else SRUN
missing = [name for name in names if name not in environ]
if missing:
    raise ValueError(f"missing: {missing}")
rank, local_rank, world_size = (int(environ[name]) for name in names)
if not 0 <= local_rank <= rank < world_size:
    raise ValueError("contradiction")
return LaunchEnvironment(rank, local_rank, world_size)
"""
    },
    slow=True,
)
bank.wrong(
    "strings-compared",
    "compared as strings",
    whole=replaced(
        STRAIGHT,
        (
            "rank, local_rank, world_size = (int(environ[name]) for name in names)\n"
            "if not local_rank <= rank < world_size:",
            "rank, local_rank, world_size = (environ[name] for name in names)\n"
            'if not "0" <= local_rank <= rank < world_size:',
        ),
    ),
)
bank.wrong(
    "not-a-value-error",
    "key error comes out",
    whole={
        "2.1": """
names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN
rank, local_rank, world_size = (int(environ[name]) for name in names)
if not 0 <= local_rank <= rank < world_size:
    raise ValueError("contradiction")
return LaunchEnvironment(rank, local_rank, world_size)
"""
    },
    slow=True,
)
bank.wrong(
    "wrong-numbers",
    "swapped positions",
    whole=replaced(
        STRAIGHT,
        ("if not local_rank <= rank < world_size:", "if not 0 <= local_rank <= rank < world_size:"),
        (
            "return LaunchEnvironment(rank, local_rank, world_size)",
            "return LaunchEnvironment(local_rank, rank, world_size)",
        ),
    ),
    slow=True,
)
bank.wrong(
    "error-names-nothing",
    "says not what is missing",
    whole={
        "2.1": """
names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN
if not all(name in environ for name in names):
    raise ValueError("not started by a launcher")
rank, local_rank, world_size = (int(environ[name]) for name in names)
if not 0 <= local_rank <= rank < world_size:
    raise ValueError("contradiction")
return LaunchEnvironment(rank, local_rank, world_size)
"""
    },
    slow=True,
)
bank.wrong(
    "zero-taken-for-missing",
    "rank zero is falsy",
    whole={
        "2.1": """
names = TORCHRUN if any(int(environ.get(name, 0)) for name in TORCHRUN[:2]) else SRUN
missing = [name for name in names if name not in environ]
if missing:
    raise ValueError(f"missing: {missing}")
rank, local_rank, world_size = (int(environ[name]) for name in names)
if not 0 <= local_rank <= rank < world_size:
    raise ValueError("contradiction")
return LaunchEnvironment(rank, local_rank, world_size)
"""
    },
)
bank.wrong(
    "error-not-raised",
    "error is not raised",
    whole=replaced(
        STRAIGHT,
        (
            'if not local_rank <= rank < world_size:\n    raise ValueError("contradiction")',
            'if not 0 <= local_rank <= rank < world_size:\n    ValueError("contradiction")',
        ),
    ),
    slow=True,
)
bank.wrong("bad-number-accepted", "negative numbers pass", whole=STRAIGHT)
bank.wrong(
    "contradiction-accepted",
    "local rank against world",
    whole=replaced(
        STRAIGHT,
        (
            "if not local_rank <= rank < world_size:",
            "if not (0 <= rank < world_size and 0 <= local_rank < world_size):",
        ),
    ),
    slow=True,
)
bank.wrong(
    "silent-world-of-one",
    "falls back to alone",
    whole={
        "2.1": """
try:
    names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN
    rank, local_rank, world_size = (int(environ[name]) for name in names)
    if not 0 <= local_rank <= rank < world_size:
        raise ValueError("contradiction")
except (KeyError, ValueError):
    return LaunchEnvironment(0, 0, 1)
return LaunchEnvironment(rank, local_rank, world_size)
"""
    },
    slow=True,
)
bank.wrong(
    "not-a-value-error",
    "assert for contradictions, again",
    whole=replaced(
        STRAIGHT,
        (
            'if not local_rank <= rank < world_size:\n    raise ValueError("contradiction")',
            "assert 0 <= local_rank <= rank < world_size",
        ),
    ),
    slow=True,
)

# ---- right for most jobs

bank.wrong(
    "good-environment-refused",
    "no more than eight processes on a node",
    if_contradiction="if not local_rank <= rank < world_size or local_rank >= 8:",
)
bank.wrong(
    "good-environment-refused",
    "no more than 1024 processes",
    if_contradiction="if not local_rank <= rank < world_size or world_size > 1024:",
    slow=True,
)
bank.wrong(
    "torchrun-not-read",
    "torchrun's variables only where torchrun has given the run an id",
    choose="names = TORCHRUN if 'TORCHELASTIC_RUN_ID' in environ else SRUN",
)
bank.wrong(
    "world-of-one-refused",
    "a single process that a launcher has started",
    if_contradiction="if world_size < 2 or not local_rank <= rank < world_size:",
)
bank.wrong(
    "result-remembered",
    "the first result for all calls",
    choose="global _launch\nif '_launch' in globals():\n    return _launch\n"
    "names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN",
    result="_launch = LaunchEnvironment(rank, local_rank, world_size)\nreturn _launch",
)
bank.wrong(
    "first-node-refused",
    "the local rank must be below the rank",
    if_contradiction="if not local_rank < rank < world_size:",
)
bank.wrong(
    "group-not-there-yet",
    "rank 0 of the group alone says so",
    if_contradiction="if not local_rank <= rank < world_size and dist.get_rank() == 0:",
)
bank.wrong(
    "mixed-launchers",
    "srun's numbers after an error with torchrun's",
    whole={
        "2.1": """
def read(names):
    missing = [name for name in names if name not in environ]
    if missing:
        raise ValueError(f"{missing} not set")
    rank, local_rank, world_size = (int(environ[name]) for name in names)
    if not 0 <= local_rank <= rank < world_size:
        raise ValueError("contradiction")
    return LaunchEnvironment(rank, local_rank, world_size)

problems = []
for names in (TORCHRUN, SRUN):
    try:
        return read(names)
    except ValueError as error:
        problems.append(str(error))
raise ValueError("; ".join(problems))
"""
    },
    slow=True,
)
bank.wrong(
    "zero-taken-for-missing",
    "asks whether a number is there, and 0 is none",
    choose="names = TORCHRUN if any(int(environ.get(name, 0)) for name in TORCHRUN) else SRUN",
)
bank.wrong(
    "wrong-numbers",
    "the variables in alphabetical order, which the comparison refuses",
    values="values = [environ[name] for name in sorted(names)]",
    slow=True,
)
bank.wrong(
    "wrong-numbers",
    "the numbers under each other's names, which the comparison refuses",
    numbers="local_rank, rank, world_size = map(int, values)",
    slow=True,
)
bank.wrong(
    "first-node-refused",
    "the local rank must be below the rank, but in a world of one",
    if_contradiction="if (rank, local_rank, world_size) == (0, 0, 1):\n"
    "    return LaunchEnvironment(0, 0, 1)\n"
    "if not local_rank < rank < world_size:",
    slow=True,
)

# ---- other variables beside those that count, and zeros that are taken for missing

bank.wrong(
    "srun-not-read",
    "torchrun where a name ends like one of its own",
    choose="names = TORCHRUN if any(key.endswith(TORCHRUN) for key in environ) else SRUN",
    slow=True,
)
bank.wrong(
    "srun-not-read",
    "torchrun where there is a port to meet at",
    choose="names = TORCHRUN if 'MASTER_PORT' in environ else SRUN\n"
    "names = TORCHRUN if any(name in environ for name in TORCHRUN) else names",
    slow=True,
)
bank.wrong(
    "wrong-numbers",
    "the first variable that ends like the name",
    values="values = [next(value for key, value in environ.items() if key.endswith(name)) "
    "if name == names[0] and names[0] in environ else environ[name] for name in names]",
    slow=True,
)
bank.wrong(
    "zero-taken-for-missing",
    "the numbers are asked whether they are true",
    whole={
        "2.1": """
names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN
values = {name: int(environ[name]) if name in environ else None for name in names}
missing = [name for name, value in values.items() if not value]
if missing:
    raise ValueError(f"not set: {', '.join(missing)}. Start this program with torchrun or srun.")
rank, local_rank, world_size = values.values()
if not 0 <= local_rank <= rank < world_size:
    raise ValueError(f"rank {rank}, local rank {local_rank}, world size {world_size}")
return LaunchEnvironment(rank, local_rank, world_size)
"""
    },
    slow=True,
)
bank.wrong(
    "torchrun-not-read",
    "srun in a job of Slurm's, which torchrun may be in too",
    choose="names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN\n"
    "names = SRUN if 'SLURM_JOB_ID' in environ else names",
    slow=True,
)

# ---- conditions that cannot be false

bank.wrong(
    "srun-not-read",
    "or between names, of which only the last is asked for",
    choose='if "RANK" or "LOCAL_RANK" or "WORLD_SIZE" in environ:\n    names = TORCHRUN\nelse:\n    names = SRUN',
    slow=True,
)
