"""What ranks said before others waited for them in vain, and whether it ran when it was started otherwise."""

import re

from lab.base.words import one_line

IN_VAIN = re.compile(
    r"Watchdog caught collective operation timeout|Timed out waiting \d+ms|failed to pass monitoredBarrier"
)
_LEAVES = re.compile(
    r"\b(?:early[- _]?stop\w*|stopping|out of patience|leaving|shutting down|final barrier|breaking out"
    r"|training (?:is )?(?:done|finished|complete\w*)|(?:done|finished) training)\b",
    re.I,
)
_SAID_BY = re.compile(r"^(?:\[?[Rr]ank ?(?P<rank>\d{1,6})\]?:?|(?P<label>\d{1,6}):) ?(?P<said>\S.*)$")
_FIRST_OF_ALL = re.compile(r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=1,")
_OVER_P2P = re.compile(r"NCCL INFO (?:Channel|Ring) .* via P2P/")
_WITHOUT_P2P = re.compile(r"\bNCCL_P2P_DISABLE=1\b")
_RUNS = re.compile(
    r"\b(?:step|iter\w*|epoch|it)\W{0,3}\d.{0,80}\bloss\W{0,3}\d|\bloss\W{1,3}\d.{0,80}\b(?:step|epoch)\b|\bok$"
)


def leaving(log: str) -> dict[int, str]:
    """Rank -> the line in which it says that it stops or is through, before anybody gave up waiting."""
    said: dict[int, str] = {}
    for line in IN_VAIN.split(log)[0].splitlines():
        if _LEAVES.search(line) and (by := _SAID_BY.match(line)) is not None:
            said.setdefault(int(by["rank"] or by["label"]), by["said"])
    return said


def who_left(log: str, ranks: set[int]) -> str:
    """What the ranks that stopped said, in words, where others went on; "" where none did, or all."""
    gone = {rank: said for rank, said in leaving(log).items() if rank in ranks}
    if not gone or set(gone) == ranks:
        return ""
    rank, said = next(iter(gone.items()))
    return f"rank {rank} said: {one_line(said, 160)}"


def runs_without_p2p(log: str) -> bool:
    """Whether the same was started again without P2P, and trained."""
    last = [found.end() for found in IN_VAIN.finditer(log)][-1:]
    tried = _WITHOUT_P2P.search(log, last[0]) if last else None
    return tried is not None and any(_RUNS.search(line) for line in log[tried.end() :].splitlines())


def first_over_p2p(log: str) -> bool:
    """Whether the first collective of all did not end, and the GPUs of one node talk by P2P."""
    return _FIRST_OF_ALL.search(log) is not None and _OVER_P2P.search(log) is not None and "via NET/" not in log
