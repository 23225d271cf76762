"""Launch environments, good and broken, and simulated machines, drawn anew for every run."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

FIELDS = ("rank", "local_rank", "world_size")

TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")

SRUN = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")


SRUN_AND_TORCHRUN = "torchrun, which srun has started"


@dataclass(frozen=True)
class Case:
    """One environment, and the (rank, local_rank, world_size) it stands for; None where it must be refused."""

    kind: str
    environ: dict[str, str]
    expected: tuple[int, int, int] | None = None
    missing: tuple[str, ...] = ()

    def missing_fields(self) -> list[str]:
        """The fields whose variables are missing."""
        return [FIELDS[names.index(one)] for one in self.missing for names in (TORCHRUN, SRUN) if one in names]

    def __str__(self) -> str:
        return "with " + (" ".join(f"{name}={value}" for name, value in self.environ.items()) or "nothing set")


def draw_cases() -> list[Case]:
    """Complete environments first, then broken ones."""
    places = draw_places()
    cases = [Case("torchrun", name_values(TORCHRUN, place), place) for place in [*places[:2], (0, 0, 1)]]
    cases += [Case("srun", name_values(SRUN, place), place) for place in [*places[2:], (0, 0, 2)]]
    node, nodes = random.randrange(1, 3), 3
    both = (7 * node + 2, 2, 7 * nodes)
    cases.append(Case("both", name_values(TORCHRUN, both) | name_values(SRUN, (node, 0, nodes)), both))

    cases.append(Case("none", {}, missing=("RANK", "SLURM_PROCID")))
    for names in (TORCHRUN, SRUN):
        environ = name_values(names, random.choice(places))
        for name in names:
            # A guess of one rank, or of local rank 0, fits the first process: nothing else would refuse it.
            base = name_values(names, (0, 0, 2)) if name == names[2] else environ
            rest = {other: value for other, value in base.items() if other != name}
            cases.append(Case("missing", rest, missing=(name,)))
        for name in names:
            for value in ("", "two", "1.5", "-1"):
                cases.append(Case("number", environ | {name: value}))
        for numbers in ((4, 0, 4), (7, 1, 4), (1, 2, 4), (0, 0, 0)):
            cases.append(Case("contradiction", name_values(names, numbers)))
    # Each is missing once, and srun's numbers fit what is left: nothing else refuses a mixture of the two.
    rank, local_rank, _ = draw_place(3, 4)
    for missing in TORCHRUN:
        rest = {name: value for name, value in name_values(TORCHRUN, both).items() if name != missing}
        cases.append(Case("mixed", rest | name_values(SRUN, (rank, local_rank, 24))))
    # The first of several processes and the only one, and nodes of more processes than most have.
    further = [(TORCHRUN, (0, 0, 7)), (SRUN, (0, 0, 1)), (TORCHRUN, draw_large()), (SRUN, draw_large())]
    local_rank = random.randrange(1, 4)  # on the first node it is the rank
    further.append((random.choice((TORCHRUN, SRUN)), (local_rank, local_rank, 8)))
    for names, place in further:
        cases.append(Case("torchrun" if names is TORCHRUN else "srun", name_values(names, place), place))
    return [*cases, *draw_beside()]


def draw_beside() -> list[Case]:
    """Places whose launcher sets other variables too, with names like those that count, as real ones do."""
    cases: list[Case] = []
    for kind, names in (("srun", SRUN), ("torchrun", TORCHRUN), ("srun", SRUN)):
        node, each = random.randrange(2, 5), random.randrange(6, 9)
        place = (each * node + 1, 1, each * 6)
        others: dict[str, object] = {"GROUP_RANK": node, "LOCAL_WORLD_SIZE": each, "SLURM_JOB_ID": 40_000 + node}
        if kind == "srun":
            others = {"PMI_SIZE": place[2], "PMIX_RANK": place[0]} if cases else {"MASTER_PORT": 29_000 + place[0]}
        beside = {name: str(value) for name, value in others.items()}
        cases.append(Case(kind, beside | name_values(names, place), place))
    return cases


def draw_large() -> tuple[int, int, int]:
    """(rank, local_rank, world_size) of more than a thousand processes, more than 32 on a node."""
    each, node, nodes = random.randrange(48, 97), random.randrange(22, 40), 40
    local_rank = random.randrange(33, each)
    return each * node + local_rank, local_rank, each * nodes


def draw_places() -> list[tuple[int, int, int]]:
    """Two places for torchrun and two for srun, from whose rank nobody can compute the local rank by one rule.

    The first of each launcher contradicts itself where its numbers are compared as text: "9" < "12" is false.
    """
    while True:
        each = random.sample([3, 4, 5, 6], 4)  # processes of a node
        nodes = random.sample([2, 3, 5, 6], 4)
        places = [draw_place(number, on_each) for number, on_each in zip(nodes, each, strict=True)]
        as_text = any(str(rank) < str(size) for rank, _, size in places[::2])
        if not as_text and not any(follows(places[:2], rule) or follows(places[2:], rule) for rule in RULES):
            return places


# What the local rank is taken for: (rank, world size) -> local rank.
RULES: list[Callable[[int, int], int]] = [
    *(lambda rank, size, n=n: rank % n for n in range(1, 33)),
    *(lambda rank, size, n=n: rank // n for n in range(1, 33)),
    *(lambda rank, size, n=n: rank % max(1, size // n) for n in range(1, 9)),
    lambda rank, size: size - rank,
    lambda rank, size: size - rank - 1,
]


def follows(places: Sequence[tuple[int, int, int]], rule: Callable[[int, int], int]) -> bool:
    return all(rule(rank, size) == local_rank for rank, local_rank, size in places)


def draw_place(nodes: int, each: int) -> tuple[int, int, int]:
    """(rank, local_rank, world_size) on a later node of `each` processes, so that no two are equal."""
    node, local_rank = random.randrange(1, nodes), random.randrange(1, each)
    return each * node + local_rank, local_rank, each * nodes


def name_values(names: tuple[str, ...], numbers: tuple[int, int, int]) -> dict[str, str]:
    return {name: str(number) for name, number in zip(names, numbers, strict=True)}


def draw_setup() -> dict[str, Any]:
    """What setup() is called with, and on which simulated machines after that.

    `place` of a machine is (rank, local_rank, world_size), `index` the GPU that it should choose, `shown` what
    CUDA_VISIBLE_DEVICES is there, and `master` the host:port where the ranks meet. Nodes have more GPUs than
    processes, so that the rank gives the GPU of none; nor is it GPU 0 that it would give. A second node, of
    another size, shows a number that is right by chance on the first.
    """
    # More than a day, so that a part of it (timeout.seconds) is not the whole.
    timeout = 86_400 + random.randrange(40, 400)
    node, local_rank = random.choice([(1, 2), (2, 1), (3, 1), (3, 2)])
    place, other = (3 * node + local_rank, local_rank, 12), (5 * 2 + 3, 3, 30)
    machines = [
        {"name": name, "environ": name_values(names, of), "place": list(of), "gpus": gpus, "index": index}
        for name, names, of, gpus, index in (
            ("torchrun", TORCHRUN, place, 4, local_rank),
            ("srun", SRUN, place, 4, local_rank),
            ("srun --gpus-per-task=1", SRUN, place, 1, 0),
            ("torchrun", TORCHRUN, other, 8, 3),
        )
    ]
    # No port that anybody would think of.
    master = f"node{random.randrange(10, 99)}:{random.randrange(31_001, 31_999)}"
    # The last two are small, and what waits there waits shortly.
    short = random.randrange(20, 40)
    for name, names, of, gpus in (("torchrun", TORCHRUN, (0, 0, 1), 1), ("srun", SRUN, (1, 1, 2), 2)):
        machines.append(
            {"name": name, "environ": name_values(names, of), "place": list(of), "gpus": gpus, "index": of[1]}
        )
    for number, machine in enumerate(machines):
        machine["timeout"] = timeout if number < 4 else short
    # At last the launcher says which of the node's GPUs a process is shown.
    for name, gpus, index in (("srun", 4, local_rank), ("srun --gpus-per-task=1", 1, 0)):
        shown = ",".join(str(number) for number in random.sample(range(4, 8), gpus))
        machines.append(
            {"name": name, "environ": name_values(SRUN, place), "place": list(place), "gpus": gpus, "index": index}
            | {"timeout": short, "shown": shown}
        )
    return {"timeout": timeout, "machines": machines, "master": master}


def draw_launchers() -> dict[str, Any]:
    """Who is which rank, and how often each launcher's turn comes: no answer is right every time.

    As if each of the three ranks were alone on its node: all have the local rank 0. Only at last they share one.
    """
    order = [random.choice((1, 2))]  # not its own number: what the first group's rank was shows in the second
    order += random.sample([rank for rank in range(3) if rank not in order], 2)
    launchers = ["torchrun", "srun", *random.choices(["torchrun", "srun"], k=random.randrange(6))]
    names = {"torchrun": TORCHRUN, "srun": SRUN}
    environs = [[name_values(names[launcher], (rank, 0, 3)) for rank in order] for launcher in launchers]
    # At last as if all three were on one node: there srun has started a single process, the torchrun of all.
    launchers.append(SRUN_AND_TORCHRUN)
    environs.append([name_values(TORCHRUN, (rank, rank, 3)) | name_values(SRUN, (0, 0, 1)) for rank in order])
    return {"order": order, "launchers": launchers, "environs": environs}
