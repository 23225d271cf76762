"""Whether the ranks of a job run the same software: NCCL, CUDA and PyTorch as each of them names its own."""

import re
from collections.abc import Iterator

from lab.base.words import one_line
from lab.diagnose.told import exceptions
from lab.diagnose.told.finding import Finding

# "node01:100:231 [0] NCCL INFO ...", "[node01:3] ...", "node01: ...", "node01 2.10.0+cu128", "host=node01".
_NAME = r"(?!rank|epoch|step|(?:py)?torch|nccl|cuda)[A-Za-z][\w.-]{0,60}"
_NUMBERED = rf"{_NAME}\d[\w.-]{{0,60}}"
_HOST = re.compile(
    rf"^(?:\d[\d:T.,/-]{{6,}} ){{0,2}}(?:\[(?P<bracket>{_NUMBERED})(?::\d{{1,5}})?\]|(?P<node>{_NAME}):\d+:\d+ \["
    rf"|(?P<first>{_NUMBERED})(?=[:,]? ))|\b(?:host|node)(?:name)?\b[ =:]{{1,2}}(?P<named>{_NAME}\d)\b",
    re.I,
)
# "[rank3]: ...", "rank 3 ...", "3: ..." (srun --label).
_RANK = re.compile(r"\brank[ =:]{0,2}(\d{1,5})\b|^(\d{1,5}): ", re.I)
_NUMBER = r"(\d+\.\d+(?:\.\d+)?)"
_IS = r"[ :=v'\"]{1,4}"
_VERSIONS = {
    "NCCL": re.compile(
        rf"\bnccl(?:[ _-]?(?:version|cu\d+))?{_IS}{_NUMBER}|\bnccl\S{{0,12}}{_IS}?\((\d[\d, ]+)\)", re.I
    ),
    "PyTorch": re.compile(
        rf"\b(?:py)?torch(?:\.__version__|[ _]version)?{_IS}{_NUMBER}"
        rf"|(?<![\w.+-]){_NUMBER}\S{{0,4}}\+(?:cu\d|rocm)",
        re.I,
    ),
    "CUDA": re.compile(rf"\btorch\b.{{0,80}}?(?:\bcuda(?:[ _]version)?{_IS}{_NUMBER}|\+cu(\d{{3}})\b)", re.I),
}
_TELLS = re.compile(r"nccl|torch|\+cu\d|\+rocm", re.I)
_OF_SEVERAL = re.compile(
    r"\bcompiled\b|\bdetected\b|\brequires?\b|\bexpect|mismatch|site-packages|load_entry_point|://"
)
_FAILED = re.compile(
    r"NCCL WARN|NCCL error|nccl\w+Error|NCCL failure|Gloo|gloo|Message truncated|mismatch"
    r"|Watchdog caught|Dist(?:Backend|Store)Error"
)


def differ(log: str) -> Finding | None:
    """The libraries of which ranks or nodes name different versions, in a job whose ranks could not talk."""
    if _FAILED.search(log) is None:
        return None
    told = {name: who for name, who in _told(log).items() if len(set(who.values())) > 1}
    if not told:
        return None
    if "PyTorch" in told:
        told.pop("CUDA", None)
    parts = "; of ".join(
        f"{name}: {', '.join(f'{version} on {who}' for who, version in _one_of_each(of).items())}"
        for name, of in told.items()
    )
    raised = exceptions.exception(log)
    return Finding(
        "versions-differ",
        f"The ranks run different versions of {one_line(parts, 200)}.",
        "They cannot understand each other: a node has another environment, or another library comes first "
        "there, from a module or LD_LIBRARY_PATH.",
        (
            "srun python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version(), torch.__file__)'",
            "srun --ntasks-per-node=1 bash -c 'hostname; echo $LD_LIBRARY_PATH'    # alike on all nodes?",
        ),
        order=4 if raised and raised.name == "raised" else 1,
    )


def _told(log: str) -> dict[str, dict[str, str]]:
    """Of each library who has which version: the nodes where these differ, else nodes and ranks."""
    named: dict[str, dict[str, set[str]]] = {name: {} for name in _VERSIONS}
    for line in log.splitlines():
        if not _TELLS.search(line) or _OF_SEVERAL.search(line) or not (who := list(_who(line))):
            continue
        for name, pattern in _VERSIONS.items():
            said = {_written(next(filter(None, found.groups()))) for found in pattern.finditer(line)}
            if len(said) == 1:
                for one in who:
                    named[name].setdefault(one, set()).update(said)
    told = {}
    for name, versions in named.items():
        # Who has named two of them is no witness: an earlier attempt is in the log too.
        sure = {who: next(iter(said)) for who, said in versions.items() if len(said) == 1}
        nodes = {who: version for who, version in sure.items() if not who.startswith("rank ")}
        told[name] = nodes if len(set(nodes.values())) > 1 else sure
    return told


def _who(line: str) -> Iterator[str]:
    """The node and the rank of which a line tells."""
    if (host := _HOST.search(line)) is not None:
        yield next(filter(None, host.groups()))
    if (rank := _RANK.search(line)) is not None:
        yield f"rank {rank[1] or rank[2]}"


def _written(version: str) -> str:
    """A version with dots: of "2, 27, 5", and of "128" as in cu128."""
    parts = re.findall(r"\d+", version)
    return f"{version[:-1]}.{version[-1]}" if version.isdecimal() else ".".join(parts)


def _one_of_each(told: dict[str, str]) -> dict[str, str]:
    """For each version the first who has it."""
    first: dict[str, str] = {}
    for who, version in told.items():
        first.setdefault(version, who)
    return {who: version for version, who in first.items()}
