"""`lab plan`: what it says, what it refuses, and whether its formulas are those of the papers."""

import json
import math

import pytest

from lab.base.errors import UsageError, UserError
from lab.cli import main
from lab.plan.hardware import CARDS, card_of
from lab.plan.layout import DDP, FSDP, PP, TP, ZERO, Layout
from lab.plan.measured import constants
from lab.plan.memory import filled, memory, stages
from lab.plan.network import describe
from lab.plan.timing import PRODUCTS, Range, compute_seconds, daly, step
from lab.plan.traffic import traffic

SMALL = ("--gpus", "16", "--width", "128", "--depth", "4")


def plan(capsys, *argv) -> dict:
    assert main(["plan", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def vit():
    return describe("vit", "bf16", width=128, depth=4)


def test_the_example_of_the_docs_says_what_fits_in_80_columns(capsys):
    argv = ["plan", "--gpus", "1024", "--model", "vit", "--width", "4096", "--depth", "48", "--memory", "80"]
    assert main([*argv, "--images", "1e9", "--mtbf", "12"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    fits = {line[:20].strip(): line.split()[-7] for line in text.splitlines()[5:12]}
    assert fits["DDP"] == fits["ZeRO-1"] == "no"
    assert fits["FSDP full"] == fits["HSDP 128x8"] == "yes"
    for part in ("between nodes", "GPU-hours", "Daly 2006", "nothing was measured"):
        assert part in text


def test_the_numbers_of_the_table_are_those_of_the_json(capsys):
    told = plan(capsys, *SMALL, "--steps", "1000", "--mtbf", "24")
    names = [layout["name"] for layout in told["layouts"]]
    assert names == ["DDP", "ZeRO-1", "FSDP full", "FSDP grad", "HSDP 2x8", "TP 2 x DDP 8", "PP 2 x DDP 8"]
    for layout in told["layouts"]:
        held, took = layout["bytes"], layout["step_seconds"]
        parts = [size for part, size in held.items() if part != "total"]
        assert max(parts) < held["total"] <= sum(parts)
        assert took["best"] <= took["middle"] <= took["worst"]
        assert layout["efficiency"]["worst"] <= layout["efficiency"]["middle"] <= layout["efficiency"]["best"] <= 1
        assert layout["gpu_hours"]["middle"] == pytest.approx(1000 * took["middle"] * 16 / 3600)
        sent = sum(one["sent"] for one in layout["traffic"])
        assert layout["sent_inside_node"] + layout["sent_between_nodes"] == pytest.approx(sent)


def test_adam_takes_16_bytes_a_parameter_and_each_strategy_shares_its_part(vit):
    held = {kind: memory(vit, Layout(kind, 8, 8, 1), "adam") for kind in (DDP, ZERO)}
    ddp = held[DDP]
    assert (ddp.parameters, ddp.gradients, ddp.optimizer) == tuple(n * vit.parameters for n in (4, 4, 8))
    assert held[ZERO].parameters == ddp.parameters
    assert ddp.optimizer / 8 <= held[ZERO].optimizer < ddp.optimizer / 4
    fsdp = memory(vit, Layout(FSDP, 8, 8, 1, shards=8), "adam")
    filling = 4 * sum(filled(shape, 8) - math.prod(shape) for shape in vit.shapes) / 8
    assert fsdp.parameters == vit.parameters / 8 * 4 + filling
    assert memory(vit, Layout(DDP, 8, 8, 1), "sgd").optimizer == ddp.parameters


def test_activations_of_a_block_are_those_of_korthikanti(vit):
    """34 bytes a token and unit of width with dropout masks of a byte; without them 32, and norms' statistics."""
    block = vit.blocks[1]
    tokens, width = vit.tokens, 128
    assert block.kept_cast == pytest.approx(32 * tokens * width, rel=0.05)
    whole = memory(vit, Layout(DDP, 8, 8, 16), "adam").activations
    halved = memory(vit, Layout(TP, 8, 8, 8, tensor=2), "adam").activations  # 16 images in a group of two
    assert whole - halved == 16 * len(vit.blocks) * 24 * tokens * width / 2


def test_checkpointing_keeps_the_inputs_and_one_block(vit):
    layout = Layout(DDP, 8, 8, 16)
    kept = memory(vit, layout, "adam").activations
    less = memory(vit, layout, "adam", checkpoint=True).activations
    inputs = 16 * sum(block.entering_bytes for block in vit.blocks)
    assert less == pytest.approx(inputs + 16 * (max(b.kept for b in vit.blocks) + vit.root.kept))
    assert less < kept / 2


def test_activations_grow_with_the_images_and_a_pipeline_keeps_a_stage_of_each(vit):
    assert memory(vit, Layout(DDP, 1, 1, 8), "sgd").activations == 8 * sum(unit.kept for unit in vit.units)
    assert [len(stage) for stage in stages(vit, 3)] == [2, 1, 1]
    piped = memory(vit, Layout(PP, 2, 2, 8, stages=2, micro=8), "sgd").activations
    first = sum(unit.kept for unit in vit.blocks[:2]) + vit.root.kept
    assert piped == pytest.approx(2 * 2 * first)  # 16 images in 8 micro-batches, two of them alive


def test_a_ring_sends_twice_its_payload_and_one_of_a_nodes_ranks_crosses(vit):
    (gradients,) = traffic(vit, Layout(DDP, 16, 8, 1))
    assert gradients.sent == 2 * 4 * vit.parameters * 15 / 16
    assert gradients.between == gradients.sent / 8
    hybrid = traffic(vit, Layout("HSDP", 16, 8, 1, shards=8))
    assert [one.between > 0 for one in hybrid] == [False, False, True]
    full, grad = (traffic(vit, Layout(kind, 16, 8, 1, shards=16)) for kind in (FSDP, "FSDP grad"))
    root = 2 * sum(filled(shape, 16) for shape in vit.root.shapes)  # is gathered once
    assert full[0].payload == 2 * grad[0].payload - root


def test_the_bubble_of_a_pipeline_is_that_of_its_micro_batches(vit):
    alone = Range(1.0, 1.0, 1.0)
    layout = Layout(PP, 4, 4, 8, stages=4, micro=16)
    assert step(layout, [], alone, CARDS["h100"], "ndr").seconds == Range(1 + 3 / 16, 1 + 3 / 16, 1 + 3 / 16)


def test_a_step_of_small_operators_is_of_memory_and_kernels_and_not_of_flops(capsys):
    """The small vit's captured step took 3.05 ms on one H200: its FLOPs alone ask for a tenth of that."""
    network, card = describe("vit", "bf16"), CARDS["h200"]
    small = compute_seconds(network, 128, card)
    assert small.best < 3.05e-3 < small.worst
    assert small.middle > 3 * network.flops * 128 / card.peak("bf16")
    # Every operator at its roof, or a kernel's least: twice the images are less than twice as long.
    assert small.middle < compute_seconds(network, 256, card).middle < 2 * small.middle
    # Large matrices are of FLOPs.
    wide = describe("vit", "bf16", width=2048, depth=6)
    assert 0.3 < wide.flops * 128 / card.peak("bf16") / compute_seconds(wide, 128, card).middle < PRODUCTS[1]
    told = " ".join(plan(capsys, *SMALL)["notes"])
    operators = describe("vit", "bf16", width=128, depth=4).operators
    assert f"Eager, the CPU issues {operators} operators for it" in told


def test_blocks_that_are_alike_are_counted_once_and_stand_for_each_other():
    two, five = (describe("vit", "bf16", width=64, depth=depth) for depth in (2, 5))
    assert five.operators - two.operators == 3 * len(two.blocks[1].work)
    times = [compute_seconds(network, 8, CARDS["a100"]).middle for network in (two, five)]
    each = describe("vit", "bf16", width=64, depth=3)
    assert times[1] - times[0] == pytest.approx(3 * (compute_seconds(each, 8, CARDS["a100"]).middle - times[0]))


@pytest.mark.parametrize(
    ("write", "between", "interval"), [(60, 24 * 3600, 3179.6), (10, 3600, 261.7), (100, 40, 40)]
)
def test_the_checkpoint_interval_is_dalys(write, between, interval):
    assert daly(write, between) == pytest.approx(interval, rel=2e-3)
    # No interval around it loses less, by the exact expectation of Daly's equation 13 without restarts.
    if write < 2 * between:

        def lost(t):
            return between * math.expm1((t + write) / between) / t

        assert lost(daly(write, between)) <= 1.0005 * min(lost(interval * n / 100) for n in range(50, 200))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--gpus", "0"), "--gpus 0: it is more than 0"),
        (("--gpus", "12"), "--gpus 12 are not whole nodes of 8: take 8, or another --gpus-per-node"),
        (("--gpus", "8", "--card", "h300"), "--card h300: not in the table; take one of v100-16"),
        (("--gpus", "8", "--network", "fast"), "--network fast: not in the table"),
        (("--gpus", "8", "--width", "100"), "--width 100 cannot be split into attention heads of 64"),
        (("--gpus", "8", "--model", "cnn", "--width", "64"), "--model cnn has one size only: leave them out"),
        (
            ("--gpus", "8", "--model", "cnn", "--image-size", "64"),
            "--image-size 64: --model cnn has one size only",
        ),
        (("--gpus", "8", "--image-size", "33"), "--image-size 33: a vit cuts it into patches of 4 pixels; take a"),
        (("--gpus", "8", "--model", "gpt"), "--model gpt: the planner knows cnn, resnet18"),
        (
            ("--gpus", "8", "--global-batch-size", "100"),
            "--global-batch-size 100 cannot be divided among 8 devices",
        ),
        (("--gpus", "8", "--card", "t4"), "--precision bf16: Tesla T4 has no units for it; take fp16 or fp32"),
        (("--gpus", "8", "--memory", "-1"), "--memory -1: it is more than 0"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_the_repair(capsys, argv, said):
    assert main(["plan", *argv]) == UsageError.exit_code
    assert said in capsys.readouterr().err


def test_a_layout_that_cannot_be_is_explained(capsys):
    told = plan(capsys, "--gpus", "1", "--model", "cnn")
    assert [one["name"] for one in told["layouts"]] == ["DDP"]
    assert told["why_not"]["FSDP full"] == "there is one device"
    assert "no attention heads" in plan(capsys, "--gpus", "2", "--model", "cnn")["why_not"]["TP"]


def test_where_nothing_fits_it_is_said_with_what_would_need_the_least(capsys):
    argv = ("--gpus", "2", "--width", "512", "--depth", "2", "--memory", "0.05")
    told = plan(capsys, *argv)
    least = min(told["layouts"], key=lambda one: one["bytes"]["total"])
    assert {one["fits"] for one in told["layouts"]} == {"no"}
    assert told["notes"][0].startswith(f"Nothing fits into 0.05 GiB: {least['name']} needs the least, 0.")
    assert "--checkpoint-activations" in told["notes"][0]
    assert "--checkpoint-activations" not in plan(capsys, *argv, "--checkpoint-activations")["notes"][0]
    assert "Nothing fits" not in " ".join(plan(capsys, *argv[:-2])["notes"])


def test_measurements_take_the_place_of_data_sheets_as_far_as_they_reach(root, capsys):
    file = root / "docs/results/gpu/results.csv"
    network = describe("resnet18", "bf16")
    known = constants(file, network, 8, 128)
    assert 128 / 41_000 < known.alone.middle < 128 / 39_000  # images a second of one device, captured
    assert known.steps[DDP].best < known.steps[DDP].middle < known.steps[DDP].worst
    far = constants(file, network, 64, 128)
    assert DDP not in far.steps
    assert any("64 devices are more than 4 times the 4" in said for said in far.not_predicted)
    with pytest.raises(UserError, match=r"no finished run of --model vit --precision bf16 of this size"):
        constants(file, describe("vit", "bf16", width=64, depth=1), 8, 128)
    argv = ("--gpus", "8", "--model", "resnet18", "--per-device-batch-size", "128", "--results", str(file))
    rows = {one["name"]: one for one in plan(capsys, *argv)["layouts"]}
    assert rows["DDP"]["from_measurements"]
    assert not rows["ZeRO-1"]["from_measurements"]


def test_cards_have_a_peak():
    for short, card in CARDS.items():
        assert card_of(card.name) is card_of(short) is card
        assert card.peak("fp16") > card.peak("fp32")
