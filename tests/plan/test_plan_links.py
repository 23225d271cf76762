"""`lab plan --bandwidth`: the links that were measured take the place of data sheets, as far as they reach."""

import json

import pytest

from lab.bandwidth.timings import COLLECTIVES, Timing, save
from lab.cli import main
from lab.plan.hardware import card_of
from lab.plan.links import links
from lab.plan.timing import collective_seconds
from lab.plan.traffic import ALL_GATHER, ALL_REDUCE, SEND, Traffic

CARD = card_of("h200")
ALPHA, BETA = 20e-6, 2e9  # far slower than any data sheet
SIZES = [2**n for n in range(10, 27, 2)]
SMALL = ("--gpus", "8", "--card", "h200", "--width", "128", "--depth", "4")


def file_of(path, *, ranks=4, nodes=1, device=CARD.name, collectives=COLLECTIVES):
    timings = []
    for name in collectives:
        rounds = (ranks - 1) * (2 if name == "all-reduce" else 1)
        timings += [
            Timing(name, ranks, nodes, size, rounds * (ALPHA + size / ranks / BETA), "nccl", device)
            for size in SIZES
        ]
    save(timings, path)
    return path


def of(collective, ranks, together, payload=1e9):
    return Traffic("gradients", collective, payload, 3, ranks, together, True)


def test_a_collective_takes_what_was_measured(tmp_path):
    found = links(file_of(tmp_path / "bandwidth.csv"), CARD)
    one = of(ALL_REDUCE, 8, 8)
    exact = 3 * 14 * ALPHA + 2 * 1e9 * 7 / 8 / BETA
    best, middle, worst = (collective_seconds(one, CARD, "ndr", case, found) for case in range(3))
    assert middle == pytest.approx(exact, rel=1e-4)  # six digits in the file
    assert best == pytest.approx(exact / 1.1, rel=1e-4)
    assert worst == pytest.approx(exact * 2, rel=1e-4)


@pytest.mark.parametrize(
    ("one", "nodes"),
    [
        (of(SEND, 4, 4), 1),  # not measured
        (of(ALL_REDUCE, 32, 32), 1),  # more than four times as many ranks
        (of(ALL_REDUCE, 8, 4), 1),  # crosses a network
        (of(ALL_REDUCE, 8, 8), 2),  # crosses none
        (of(ALL_GATHER, 8, 4), 2),  # two in a node were measured
    ],
)
def test_where_no_measurement_reaches_the_table_stays(tmp_path, one, nodes):
    found = links(file_of(tmp_path / "bandwidth.csv", nodes=nodes), CARD)
    assert found.of(one) is None
    assert collective_seconds(one, CARD, "ndr", 1, found) == collective_seconds(one, CARD, "ndr", 1)


def test_between_nodes_a_measurement_over_nodes_is_taken(tmp_path):
    found = links(file_of(tmp_path / "bandwidth.csv", nodes=2), CARD)
    assert found.seconds(of(ALL_REDUCE, 8, 2), 1) == pytest.approx(3 * 14 * ALPHA + 1.75e9 / BETA, rel=1e-4)


def test_the_plan_is_slower_and_says_of_what(tmp_path, capsys):
    def plan(*more):
        assert main(["plan", *SMALL, *more, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    file = file_of(tmp_path / "bandwidth.csv", collectives=COLLECTIVES[:2])
    before, after = plan(), plan("--bandwidth", str(file))
    ddp = [told["layouts"][0]["step_seconds"]["middle"] for told in (before, after)]
    assert ddp[1] > 2 * ddp[0]
    text = " ".join(after["notes"])
    assert (
        "all-reduce in a node (8 ranks): of bandwidth.csv, measured on 4 ranks that did nothing else, 20 us"
        in text
    )
    assert "Not in bandwidth.csv, so of data sheets: broadcast in a node (8 ranks), reduce-scatter" in text
    assert "bandwidth.csv" not in " ".join(before["notes"])
    assert main(["plan", *SMALL, "--bandwidth", str(file)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_file_beside_the_results_is_found_and_one_of_no_use_is_named(root, tmp_path, capsys):
    results = tmp_path / "results.csv"
    results.write_bytes((root / "docs/results/gpu/results.csv").read_bytes())
    argv = ["plan", "--gpus", "8", "--card", "h200", "--model", "resnet18", "--results", str(results), "--json"]
    file_of(tmp_path / "bandwidth.csv")
    assert main(argv) == 0
    assert "of bandwidth.csv, measured on 4 ranks" in capsys.readouterr().out
    file_of(tmp_path / "bandwidth.csv", device="cpu")
    assert main(argv) == 0
    assert "Links are of data sheets: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "bandwidth.csv is of cpu, and the plan of NVIDIA H200: take another --card"),
        ("collective,ranks\n", "lacks columns of a table of collectives: measure it again with lab bandwidth"),
    ],
)
def test_a_file_that_was_asked_for_and_is_of_no_use_is_refused(tmp_path, capsys, text, sentence):
    file = file_of(tmp_path / "bandwidth.csv", device="cpu")
    if text:
        file.write_text(text)
    assert main(["plan", *SMALL, "--bandwidth", str(file)]) in (1, 2)
    assert sentence in capsys.readouterr().err
