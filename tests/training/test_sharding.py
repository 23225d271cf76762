"""--shard: what the options refuse, what FSDP2 does on real ranks, and whether the records tell its bytes."""

import csv
import pickle
from pathlib import Path

import pytest
import tiny_run
import torch

from lab.base.errors import UsageError, UserError
from lab.ranks.rank import Rank
from lab.runs import options
from lab.training.networks.sharding import shard_as_asked
from lab.training.stepping.together import ranks_per_node

FSDP = ("--strategy", "fsdp")
CHOICES = {"full": (), "grad": ("--shard", "grad"), "hybrid": ("--shard", "hybrid", "--shard-ranks", "2")}


def resolve(*argv, world_size=4, node=4):
    return options.resolve(options.parse([*argv]), world_size, ranks_per_node=node)


@pytest.mark.parametrize(
    ("argv", "world_size", "node", "said"),
    [
        (("--shard", "grad"), 4, 4, "--shard grad is for --strategy fsdp, not for ddp"),
        (("--strategy", "fsdp1", "--shard", "grad"), 4, 4, "not for fsdp1, which has full sharding only here"),
        ((*FSDP, "--shard-ranks", "2"), 4, 4, "for --shard hybrid only"),
        ((*FSDP, "--shard", "hybrid"), 2, 1, "2 cannot be divided so; start 4, 6, 8"),
        ((*FSDP, "--shard", "hybrid"), 5, 1, "5 cannot be divided so"),
        ((*FSDP, "--shard", "hybrid"), 4, 4, "all ranks are on one node; use --shard-ranks 2"),
        ((*FSDP, "--shard", "hybrid"), 4, 1, "there is 1 rank on each node; use --shard-ranks 2"),
        ((*FSDP, "--shard", "hybrid"), 6, None, "different numbers of ranks; use --shard-ranks 2 or 3"),
        ((*FSDP, *CHOICES["hybrid"][:3], "3"), 4, 4, "3 ranks to a copy do not divide 4 into several copies"),
    ],
)
def test_what_cannot_be_sharded_so_is_refused(argv, world_size, node, said):
    batch = ("--global-batch-size", str(8 * world_size))
    with pytest.raises(UsageError, match=said):
        resolve(*argv, *batch, world_size=world_size, node=node)


def test_a_copy_is_shared_by_the_ranks_of_a_node():
    resolved, warnings = resolve(*FSDP, "--shard", "hybrid", world_size=8, node=4)
    assert (resolved.shard_ranks, warnings) == (4, [])
    assert resolve(*FSDP, "--shard", "hybrid", "--shard-ranks", "2", world_size=8, node=4)[0].shard_ranks == 2
    assert resolve(*FSDP, "--shard", "full", world_size=1, node=1)[1] == [
        "--shard full has no effect on one rank, which has no other to share with"
    ]
    assert options.shard_options(resolved) == {"shards": 4}
    assert options.shard_options(resolve(*FSDP, "--shard", "grad")[0]) == {}


@pytest.mark.parametrize(
    ("hosts", "size"), [("aabb", 2), ("aaaa", 4), ("abcd", 1), ("abab", None), ("aaab", None), ("abb", None)]
)
def test_ranks_of_a_node(hosts, size):
    assert ranks_per_node(list(hosts)) == size


# On real ranks ---------------------------------------------------------------------------------------------

STEPS = 4
PLAIN = {"net": {"dropout": 0.0}, "noise": 0.0, "double": True}


def train_and_listen(rank: Rank) -> dict:
    """A run, and the collectives that PyTorch noted meanwhile."""
    result = tiny_run.train(rank)
    recorded = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())["entries"]
    names = ("profiling_name", "process_group", "input_sizes", "input_dtypes")
    result["called"] = [[one[name] for name in names] for one in recorded]
    return result


def sent_in_a_step(called: list, shards: int, copies: int) -> tuple[float, float]:
    """MiB in the copy and between the copies, from the collectives of a run of one epoch.

    gloo has no reduce-scatter: there it is an all-reduce in the group that gathers. The run's own sums are of
    three numbers or fewer.
    """
    widths = {"Float": 4, "BFloat16": 2}
    called = [one for one in called if one[3][0] in widths and torch.Size(one[2][0]).numel() > 3]
    gathers = [number for number, one in enumerate(called) if one[0] == "gloo:all_gather"]
    reduces = [number for number, one in enumerate(called) if one[0] == "gloo:all_reduce"]
    its_copy = called[gathers[0]][1]
    within = between = 0.0
    for name, group, sizes, dtypes in called[gathers[0] : reduces[-1] + 1]:  # what follows is the evaluation
        size = torch.Size(sizes[0]).numel() * widths[dtypes[0]]
        if name == "gloo:all_gather":
            assert group == its_copy
            within += size * (shards - 1)
        elif group == its_copy:
            within += size * (shards - 1) / shards
        else:
            between += 2 * size * (copies - 1) / copies
    return within / STEPS / 2**20, between / STEPS / 2**20


def summary(tmp_path: Path) -> dict[str, str]:
    with (tmp_path / "results" / "r" / "run.csv").open(newline="") as file:
        return list(csv.DictReader(file))[-1]


@pytest.mark.parametrize(
    ("choice", "more", "net"),
    [
        ("full", (), {}),
        ("full", ("--accumulate", "2"), {"width": 5}),  # 5 filters on 2 ranks: the last shards are filled up
        ("grad", ("--precision", "bf16"), {"norm": True}),
        ("hybrid", (), {}),
    ],
    ids=["full", "accumulated", "grad", "hybrid"],
)
def test_the_bytes_in_the_records_are_those_that_were_sent(tiny, tmp_path, choice, more, net):
    copies = 2 if choice == "hybrid" else 1
    argv = (*FSDP, *CHOICES[choice], *more, "--epochs", "1", "--no-checkpoints")
    group = tiny(*argv, world_size=2 * copies, observe=train_and_listen, net=net)
    assert group.values[0]["ended"] == "done"
    within, between = sent_in_a_step(group.values[0]["called"], 2, copies)
    row = summary(tmp_path)
    assert (row["shard"], row["shard_ranks"]) == (choice, "2")
    assert within > 0
    assert float(row["shard_group_mb"]) == pytest.approx(within, rel=1e-5)
    assert float(row["copies_group_mb"]) == pytest.approx(between, rel=1e-5)
    assert (between > 0) == (choice == "hybrid")
    assert f"  sharding   {choice}, " in group.reports[0].output


def test_whatever_is_sharded_the_training_is_the_same_and_a_rank_holds_its_share(tiny, tmp_path):
    argv = (*FSDP, "--epochs", "1", "--clip-norm", "0.1", "--no-checkpoints")
    records, held, sent = {}, {}, {}
    for choice, more in CHOICES.items():
        records[choice] = tiny(*argv, *more, world_size=4, **PLAIN).values[0]["records"]
        row = summary(tmp_path)
        held[choice], sent[choice] = float(row["held_mb"]), float(row["shard_group_mb"])
        (tmp_path / "results").rename(tmp_path / choice)
    for choice in ("grad", "hybrid"):
        assert records[choice][0] == pytest.approx(records["full"][0], rel=0, abs=1e-12), choice
    assert held["grad"] == held["full"] < held["hybrid"]
    assert sent["hybrid"] < sent["grad"] < sent["full"]


def test_a_wrapping_that_knows_no_copies_is_refused(tiny):
    group = tiny(*FSDP, *CHOICES["hybrid"], world_size=4, one_mesh=True)
    for value in group.values:
        assert value["ended"].startswith(
            "UserError: --shard hybrid: wrap_model() has sharded blocks.0.0.weight on a mesh of 4 ranks, not "
            "2 x 2: hand **options.shard_options(args) on"
        )


def wrap(rank: Rank) -> list[str]:
    """What the run says of models that are sharded in other ways than asked."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    said = []
    for choice, shape in (("full", (2, 1)), ("grad", None), ("grad", (2,)), ("full", (1, 2))):
        names = ("copies", "shards")[: len(shape or ())]
        args = options.parse([*FSDP, "--shard", choice])
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
        if shape is not None:
            fully_shard(model, mesh=init_device_mesh("cpu", shape, mesh_dim_names=names))
        else:
            fully_shard(model[0])
        try:
            said.append(str(shard_as_asked(model, args)[1]))
        except UserError as error:
            said.append(str(error))
    return said


def test_a_wrapping_that_shards_in_another_way_is_named(tiny):
    other, part, one_unit, one_copy = tiny(observe=wrap).values[0]
    assert "has sharded 0.weight on a mesh of 2 x 1 ranks, which is hybrid" in other
    assert "has returned a Sequential that fully_shard has not sharded as a whole" in part
    assert "--shard grad has no effect: the model is one unit" in one_unit
    assert one_copy == "[]"
