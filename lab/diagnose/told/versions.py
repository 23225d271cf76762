"""Whether the ranks of a job run the same software: NCCL, CUDA and PyTorch as each of them names its own."""

import re

from lab.base.words import one_line
from lab.diagnose.told.finding import Finding

# "[rank3]: ...", "3: ..." (srun --label), "node01:100:231 [0] NCCL INFO ...".
_WHO = re.compile(
    r"^(?:\[[^\]]*\] )?(?:\[rank(?P<rank>\d+)\]:|(?P<label>\d{1,5}):|(?P<node>[\w.-]+):\d+:\d+ \["
    r"|(?P<host>[A-Za-z][\w.-]*\d[\w.-]*): )"
)
_VERSIONS = {
    "NCCL": re.compile(r"NCCL version (\d+\.\d+(?:\.\d+)?)"),
    "PyTorch": re.compile(r"(?:PyTorch|[Tt]orch)(?: version)?(?:: ?|==| )v?(\d+\.\d+(?:\.\d+)?)"),
}
_FAILED = re.compile(r"NCCL WARN|NCCL error|nccl\w+Error|NCCL failure|Gloo|gloo|Message truncated|mismatch")


def differ(log: str) -> Finding | None:
    """The first library of which ranks or nodes name different versions, in a job whose ranks could not talk."""
    if _FAILED.search(log) is None:
        return None
    for name, pattern in _VERSIONS.items():
        named: dict[str, set[str]] = {}  # who -> the versions that it has named
        for line in log.splitlines():
            if (
                name.lower().removeprefix("py") in line.lower()
                and (version := pattern.search(line))
                and (who := _WHO.match(line))
            ):
                rank = who["rank"] or who["label"]
                named.setdefault(f"rank {rank}" if rank else who["node"] or who["host"], set()).add(version[1])
        # Who has named two of them is no witness: an earlier attempt is in the log too.
        sure = {who: next(iter(versions)) for who, versions in named.items() if len(versions) == 1}
        nodes = {who: version for who, version in sure.items() if not who.startswith("rank ")}
        told = nodes if len(set(nodes.values())) > 1 else sure
        if len(set(told.values())) > 1:
            parts = ", ".join(f"{version} on {who}" for who, version in _one_of_each(told).items())
            return Finding(
                "versions-differ",
                f"The ranks run different versions of {name}: {one_line(parts, 200)}.",
                "They cannot understand each other: a node has another environment, or another library comes "
                "first "
                "there, from a module or LD_LIBRARY_PATH.",
                (
                    "srun python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version(), "
                    "torch.__file__)'",
                    "srun --ntasks-per-node=1 bash -c 'hostname; echo $LD_LIBRARY_PATH'    # alike on all nodes?",
                ),
                order=1,
            )
    return None


def _one_of_each(told: dict[str, str]) -> dict[str, str]:
    """For each version the first who has it."""
    first: dict[str, str] = {}
    for who, version in told.items():
        first.setdefault(version, who)
    return {who: version for version, who in first.items()}
