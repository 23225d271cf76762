"""Ranks that waited in vain in a collective: for whom, and what that one did, where the log shows it."""

import re
from collections.abc import Iterator
from pathlib import Path

from lab.base.words import one_line, rank_list
from lab.diagnose.told.exceptions import RANK
from lab.diagnose.told.finding import UNKNOWN, Finding
from lab.diagnose.told.left_behind import IN_VAIN, first_over_p2p, leaving, runs_without_p2p, who_left

_WAITED = re.compile(
    r"[Rr]ank (?P<rank>\d+)\]?.{0,120}Watchdog caught collective operation timeout: "
    r"WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<call>\w+),(?P<sizes>.{0,200}?)Timeout\(ms\)=(?P<ms>\d+)"
)
# Of a group's first collective: who asked another rank in vain for how to meet, and for how many milliseconds.
_ASKED = re.compile(
    r"\[(?P<rank>\d+)\] is setting up NCCL communicator and retrieving ncclUniqueId from \[(?P<other>\d+)\]"
    r".{0,200}?timeout after (?P<ms>\d+) ?ms"
)
_GROUPS = re.compile(r"\[PG (?:ID )?(\d+) PG GUID|\[PG (\d+) Rank")
_SIZE = re.compile(r"NumelIn=(\d+)")
# Of these every rank brings as much as the others.
_ALIKE = (
    *("ALLREDUCE", "BROADCAST", "REDUCE", "ALLGATHER", "_ALLGATHER_BASE"),
    *("REDUCE_SCATTER", "_REDUCE_SCATTER_BASE"),
)
_GATHERS = ("_ALLGATHER_BASE", "ALLGATHER", "ALLGATHER_COALESCED", "ALLGATHER_INTO_TENSOR_COALESCED")
_SMALL = 16  # numbers: a barrier, a flag, a loss
_SAVES = re.compile(r"\bsav(?:e|ing)\w*\b.{0,80}(?:state|checkpoint|model|\.pt)|state_dict", re.I)
_RANKS = re.compile(r"^job \d+(?:_\d+)?: (\d+) ranks? on ", re.M)
_SIZES = re.compile(r"\bworld_size\W{1,3}(\d{1,6})\b|\bWORLD_SIZE=(\d{1,6})\b")
_NAMED_RANKS = re.compile(r"^\[rank(\d{1,6})\]:|^\s+rank\s+: (\d{1,6}) \(local_rank", re.M)
# A line for one rank only, and a call in it: "if rank == 0: save(model)".
_FOR_ONE = re.compile(
    r"^(?:\[rank(?P<rank>\d+)\]:)?[ \t]+File \"(?P<file>(?!.*(?:site|dist)-packages)[^\"]+)\", "
    r"line (?P<line>\d+).*\n"
    r"(?:\[rank\d+\]:)?\s+(?P<code>if .{0,80}?(?:rank\w*(?:\(\))? ?== ?0|not \w*rank\b"
    r"|is_(?:\w+_)?(?:main|master|zero|rank_zero)\w*)"
    r".{0,80}?: ?\S.*)",
    re.M,
)
# "rank 0: decoding images: 40%", "0: 3/17 files", and bars of what is done once, by one rank.
_NAMED = re.compile(
    r"^(?:\[?[Rr]ank ?(?P<rank>\d+)\]?:?"
    r"|(?P<label>\d{1,5}):) ?(?P<doing>\S.{0,200}?\b(?P<part>\d{1,3}(?:\.\d+)?) ?%.*)$"
)
_ONCE = re.compile(
    r"^\W*(?P<doing>(?:\w+ ){0,3}?(?:Map|Filter|Group|Tokeniz|Running tokenizer|Download|Extract|Generat"
    r"|Preprocess|Process|Prepar"
    r"|Decod|Convert|Index|Build|Cach|Copy|Scan|Pack|Saving|Creating)\w*\b.{0,80}?\b(?P<part>\d{1,3}) ?%.*)$"
)
_TRAINS = re.compile(r"\bloss|\b[Ee]poch\b|\[METRIC\]|\b[Aa]cc(?:uracy)?\b|\btop-?\d|\butil|\bmem")
_DECIDED_ALONE = (
    "It stopped by itself, and the others went on: what a rank decides by its own numbers (early stopping, a "
    "check for nan, no data) all ranks must decide together. No network and no timeout is to blame."
)
_ONE_MORE = (
    "It has called one collective more than the others, mostly in what it alone does and all must do together: "
    "saving a "
    "trainer's or a sharded checkpoint, evaluating, a barrier under 'if rank == 0'. What came before is in order."
)


def apart(log: str) -> Finding | None:
    """Ranks that waited in different collectives under one number: each for what the others would not call."""
    groups = {first or second for first, second in _GROUPS.findall(log)}
    if len(groups) > 1:
        return None  # each group of ranks has numbers of its own
    calls: dict[str, dict[tuple[str, str], set[int]]] = {}
    for one in _waits(log):
        size = _SIZE.search(one["sizes"])
        calls.setdefault(one["number"], {}).setdefault((one["call"], size[1] if size else ""), set()).add(
            int(one["rank"])
        )
    for number, sides in calls.items():
        if (gathers := _gathers_alone(log, number, sides)) is not None:
            return gathers
        if len(sides) > 1 and all(call in _ALIKE for call, _ in sides):
            parts = "; ".join(
                f"{rank_list(sorted(ranks))} called {call}" + (f" with {int(size):,} numbers" if size else "")
                for (call, size), ranks in sides.items()
            )
            if left := who_left(log, {rank for ranks in sides.values() for rank in ranks}):
                return Finding(
                    "collectives-differ",
                    f"As collective number {number} {parts}. Before, {left}",
                    _DECIDED_ALONE,
                    (
                        "grep -n -i -E 'stop|patience|isnan' *.py    # all_reduce the measure, or broadcast "
                        "rank 0's answer",
                        "lab check 6.2    # lab trace 6.2 shows the ranks side by side",
                    ),
                    order=1,
                )
            return Finding(
                "collectives-differ",
                f"As collective number {number} {parts}.",
                "Collectives are matched by their order: one of the ranks had fewer or more of them before, "
                "mostly "
                "fewer batches, or a collective of its own.",
                (
                    "lab check 3.2 3.3    # has every rank as many batches?",
                    "FLIGHT_RECORDER=1 {rerun}    # then lab diagnose {run} names the ranks and the lines",
                ),
                order=1,
            )
    return None


def _gathers_alone(log: str, number: str, sides: dict[tuple[str, str], set[int]]) -> Finding | None:
    """One rank that gathers what is sharded, as FSDP's state_dict() does, while others are at a barrier."""
    gathering = [(call, ranks) for (call, _), ranks in sides.items() if call in _GATHERS]
    others = [(call, size, ranks) for (call, size), ranks in sides.items() if call not in _GATHERS]
    if len(gathering) != 1 or len(gathering[0][1]) != 1 or not others:
        return None
    if any(int(size or 0) > _SMALL for _, size, _ in others):
        return None
    (call, (rank,)), (other, _, ranks) = gathering[0], others[0]
    if rank and not _SAVES.search(log):
        return None
    saves = " in saving a checkpoint" if _SAVES.search(log) else ""
    return Finding(
        "collectives-differ",
        f"As collective number {number} rank {rank} alone called {call}{saves}, while {rank_list(sorted(ranks))} "
        f"called {other}, as a barrier does.",
        "What is sharded (FSDP, ZeRO-3) is gathered by all ranks together: state_dict(), summon_full_params(), a "
        "forward pass or generate() under 'if rank == 0' waits for the others in vain, and they wait at the next "
        "barrier. A longer timeout does not help.",
        (
            "grep -n -E 'rank == 0|is_main_process|state_dict' *.py    # state_dict() on all ranks; only "
            "torch.save "
            "below the condition",
            "lab check 6.2    # lab trace 6.2 shows the ranks side by side",
        ),
        order=1,
    )


def together(log: str) -> Finding | None:
    """All ranks in one and the same collective, and none of them missing: what held it up is not in the log."""
    waits = list(_waits(log))
    ranks = sorted({int(one["rank"]) for one in waits})
    alike = {(one["number"], one["call"], *_SIZE.findall(one["sizes"])) for one in waits}
    named = {int(one or other) for one, other in _NAMED_RANKS.findall(log)}
    sizes = [*_RANKS.findall(log), *(one or other for one, other in _SIZES.findall(log))]
    size = max(map(int, sizes), default=max(named | set(ranks), default=0) + 1)
    groups = {first or second for first, second in _GROUPS.findall(log)}
    if len(ranks) < 2 or len(alike) > 1 or len(groups) > 1 or len(ranks) != size or ranks[-1] >= size:
        return None
    one = waits[0]
    tried = runs_without_p2p(log)
    if tried or first_over_p2p(log):
        so = "with NCCL_P2P_DISABLE=1, further down, the same program runs" if tried else "GPUs talk by P2P"
        return Finding(
            "gpu-peer-access",
            f"All {size} ranks stood still in {one['call']}, their collective number {one['number']}; {so}.",
            f"{'T' if tried else 'Likeliest, not proved: t'}he GPUs do not reach each other's memory (P2P), "
            "though the machine says so: PCIe's access control (ACS) or the IOMMU leads it astray. Your "
            "administrators can switch these off. No line of yours, and no timeout, is to blame.",
            (
                "NCCL_P2P_DISABLE=1 {rerun}    # through the host's memory, until then",
                "lspci -vvv | grep ACSCtl    # as root: SrcValid+ anywhere? then setpci, the BIOS, or iommu=pt",
            ),
            order=1 if tried else 7,
        )
    return Finding(
        UNKNOWN,
        f"All {size} ranks waited in {one['call']}, their collective number {one['number']}, until the timeout of "
        f"{int(one['ms']) / 1000:g} s.",
        "None of them was missing, and why it did not end cannot be told from this log: a GPU, a link between two "
        "or NCCL itself stood still, or a rank came to it only after the others.",
        (
            "FLIGHT_RECORDER=1 {rerun}    # then lab diagnose {run} names the ranks and the lines",
            "NCCL_DEBUG=INFO {rerun}    # how the GPUs are joined; NCCL_P2P_DISABLE=1: does it run without P2P?",
            "py-spy dump --pid PID    # of each rank while it hangs: where is it?",
        ),
        order=7,
    )


def alone(log: str) -> Finding | None:
    """One rank that waited in vain in a line that only it runs."""
    found = list(_waits(log))
    place = _FOR_ONE.search(log)
    if place is None or len({one["rank"] for one in found}) != 1:
        return None
    rank = found[0]["rank"]
    if place["rank"] not in (rank, None):
        return None
    where = f"{Path(place['file']).name}, line {place['line']}"
    return Finding(
        "collectives-differ",
        f"Only rank {rank} came to {found[0]['call']}, its collective number {found[0]['number']}, at {where}: "
        f"{one_line(place['code'], 120)}",
        "The others never run what stands behind that condition: a collective in it (a barrier, or one in saving "
        "a checkpoint) waits for them in vain.",
        (
            f"look at {where}: call it on all ranks; most such functions write on rank 0 only by themselves",
            "lab check 6.2    # lab trace 6.2 shows the ranks side by side",
        ),
        order=1,
    )


def left_alone(log: str) -> Finding | None:
    """One rank that waited in vain after the others had said that they were through."""
    waits = list(_waits(log))
    if len({(one["rank"], one["number"]) for one in waits}) != 1:
        return None
    rank, gone = int(waits[0]["rank"]), leaving(log)
    if not gone or rank in gone:
        return None
    who, said = next(iter(gone.items()))
    return Finding(
        "collectives-differ",
        f"Rank {rank} alone waited in {waits[0]['call']}, its collective number {waits[0]['number']}; "
        f"{rank_list(sorted(gone))} had gone (rank {who}: {one_line(said, 120)}).",
        _ONE_MORE,
        (
            "grep -n -E 'rank == 0|is_global_zero|is_main_process' *.py    # what is below it that all must call?",
            "lab check 6.2    # lab trace 6.2 shows the ranks side by side",
        ),
        order=1,
    )


def one_missing(log: str) -> Finding | None:
    """All but one rank in one and the same collective, and that one silent."""
    waits = list(_waits(log))
    ranks = {int(one["rank"]) for one in waits}
    alike = {(one["number"], one["call"]) for one in waits}
    named = {int(one or other) for one, other in _NAMED_RANKS.findall(log)}
    rank = _missing(log, ranks)
    if len(ranks) < 2 or len(alike) != 1 or rank is None or rank in named:
        return None
    one = waits[0]
    return Finding(
        "nccl-timeout",
        f"{rank_list(sorted(ranks)).capitalize()} waited in vain in {one['call']}, their collective number "
        f"{one['number']}, until the timeout of {int(one['ms']) / 1000:g} s; rank {rank} did not come to it.",
        f"Why rank {rank} did not come, this log does not say: its GPU, its data, its node or a line that it "
        f"stood still "
        "in. The others' timeouts follow from it; a longer one would not help.",
        (
            f"py-spy dump --pid PID    # of rank {rank}, the next time, while it hangs: in which line?",
            "nvidia-smi ; dmesg | grep -i xid    # on its node: is its GPU still there?",
            "FLIGHT_RECORDER=1 {rerun}    # then lab diagnose {run} names the ranks and the lines",
        ),
        order=7,
    )


def busy(log: str) -> Finding | None:
    """The rank that was at work on something else while the others gave up waiting for it."""
    asked = list(_ASKED.finditer(log))
    if IN_VAIN.search(log) is None and not asked:
        return None
    found = [(int(one["rank"]), int(one["ms"])) for one in (*_waits(log), *asked)]
    waiting = {rank for rank, _ in found}
    missing = int(asked[0]["other"]) if asked else _missing(log, waiting)
    at_work: tuple[int | None, re.Match[str]] | None = None
    for line in log.splitlines():
        if (named := _NAMED.match(line)) and not _TRAINS.search(line):
            at_work = int(named["rank"] or named["label"]), named
        elif (once := _ONCE.match(RANK.sub("", line))) and not _TRAINS.search(line):
            at_work = missing, once
        elif _TRAINS.search(line) and not IN_VAIN.search(line):
            at_work = None  # that was done, and training had begun
    if at_work is None or at_work[0] in waiting or float(at_work[1]["part"]) >= 100:
        return None
    rank, doing = at_work[0], one_line(IN_VAIN.split(at_work[1]["doing"])[0].strip(), 120)
    who = f"Rank {rank}" if rank is not None else "A rank"
    others = rank_list(sorted(waiting)) if waiting else "the others"
    limit = f", after {max(ms for *_, ms in found) / 1000:g} s" if found else ""
    return Finding(
        "rank-busy",
        f"{who} was still at work when {others} gave up waiting for it{limit}: {doing}",
        "What one rank does while the others wait for it in a collective must end before their timeout.",
        (
            "lab fetch cifar10 --data-dir data    # what is done once for all ranks, done before the job",
            "grep -n timeout exercises/*.py    # or a longer one: init_process_group(..., "
            "timeout=timedelta(hours=2))",
        ),
        order=1 if asked else 5,  # where nobody has met yet, it looks as if ranks were missing
    )


def _waits(log: str) -> Iterator[re.Match[str]]:
    """Each rank's line, or lines, about a collective in which it has waited in vain."""
    for line in log.splitlines():
        if "Watchdog caught" in line and (found := _WAITED.search(line)) is not None:
            yield found


def _missing(log: str, waiting: set[int]) -> int | None:
    """The one rank that did not wait, where the log says how many there were, or only one number is left out."""
    size = int(said[-1]) if (said := _RANKS.findall(log)) else max(waiting, default=0) + 1
    left = [rank for rank in range(min(size, 1 << 16)) if rank not in waiting]
    return left[0] if len(left) == 1 else None
