"""The figures of the notebooks: what they show is right, and they say it in words too."""

import re
import shutil
from xml.etree import ElementTree

import pytest

from lab.sweep.compare.columns import RESULT_COLUMNS


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch):
    monkeypatch.setenv("LAB_GRADING", "1")


def all_figures():
    from lab.notebook import figures

    return {
        "one_step": figures.one_step(),
        "batch_parts": figures.batch_parts(),
        "rank_map": figures.rank_map(),
        "who_draws_what": figures.who_draws_what(),
        "without a sampler": figures.who_draws_what(sampler=False),
        "without set_epoch": figures.who_draws_what(set_epoch=False),
        "validation_parts": figures.validation_parts(),
        "ring_all_reduce": figures.ring_all_reduce(),
        "averaging": figures.averaging(),
        "memory": figures.memory(),
        "fsdp_timeline": figures.fsdp_timeline(),
        "fsdp_timeline of 5": figures.fsdp_timeline(blocks=5),
        "run_in_order": figures.run_in_order(),
        "sums_or_means": figures.sums_or_means(),
        "gradients_kept": figures.gradients_kept(),
        "scaling": figures.scaling(),
        "launches": figures.launches(),
        "graph_memory": figures.graph_memory(),
        "all_reduce_bytes": figures.all_reduce_bytes(),
        "zero_stages": figures.zero_stages(),
        "two_dimensions": figures.two_dimensions(),
        "two_dimensions of 16": figures.two_dimensions(nodes=4, ranks_per_node=4),
        "tensor_parallel_block": figures.tensor_parallel_block(),
        "pipeline_schedule": figures.pipeline_schedule(),
        "pipeline_schedule of GPipe": figures.pipeline_schedule(schedule="gpipe"),
    }


def test_every_figure_is_a_picture_with_its_content_in_words():
    for name, card in all_figures().items():
        pictures = re.findall(r"<svg.*?</svg>", card.html, flags=re.DOTALL)
        assert pictures, name
        for picture in pictures:
            svg = ElementTree.fromstring(picture)
            assert svg.get("role") == "img"
            assert len(svg.get("aria-label", "").split()) >= 8, name
        assert card.text.split()[0] in card.html
        assert "http" not in card.html.replace("http://www.w3.org/2000/svg", ""), name  # works offline


def test_every_figure_can_be_read_beside_a_file():
    """At half width a picture is not shrunk, and no text in it is smaller than 12 pixels."""
    from lab.notebook import figures

    for name, card in (all_figures() | {"eight": figures.batch_parts(ranks=8)}).items():
        for picture in re.findall(r"<svg.*?</svg>", card.html, flags=re.DOTALL):
            svg = ElementTree.fromstring(picture)
            assert float(svg.get("width")) <= 480, name
            sizes = [int(text.get("font-size")) for text in svg.iter() if text.get("font-size")]
            assert min(sizes) >= 12, name


def test_the_ring_ends_with_the_sum_everywhere_and_never_adds_twice():
    from lab.notebook import figures

    for ranks in (2, 3, 5):
        last = figures.ring_all_reduce(ranks=ranks).text.splitlines()[2 * (ranks - 1)]
        assert last.startswith(f"step {2 * (ranks - 1)}:")
        every = "+".join(map(str, range(ranks)))
        assert len(re.findall(rf"(?<![+\d]){re.escape(every)}(?![+\d])", last)) == ranks * ranks


def test_buckets_hold_every_layer_once_and_the_first_one_is_small():
    from lab.notebook.figures_wrapping import LAYERS_MB, buckets

    for cap in (0.1, 1, 5, 25, 1000):
        grouped = buckets(LAYERS_MB[::-1], cap)
        assert [i for group in grouped for i in group] == list(range(len(LAYERS_MB)))
    assert len(buckets(LAYERS_MB[::-1], 0.1)) == len(LAYERS_MB)
    assert len(buckets(LAYERS_MB[::-1], 1000)) == 2
    assert buckets([0.5, 0.6, 9, 9], 25)[0] == [0, 1]


def test_who_draws_what_shows_each_sample_once_or_tells_what_is_wrong():
    from lab.notebook import figures

    assert "draw 12 samples, 12 different ones of 12." in figures.who_draws_what(samples=12, ranks=3).text
    assert "12 different ones of 13" in figures.who_draws_what(samples=13, ranks=3).text
    for epoch, (drawn, left_out) in enumerate(
        draws_and_left_out(figures.who_draws_what(samples=13).text), start=1
    ):
        assert {left_out} == set(range(13)) - drawn, epoch
    assert "nobody draws" not in figures.who_draws_what(samples=12, ranks=3).text
    assert "draw 36 samples" in figures.who_draws_what(samples=12, ranks=3, sampler=False).text
    assert "Epoch 2 repeats the order" in figures.who_draws_what(set_epoch=False).text
    assert "repeats" not in figures.who_draws_what().text


def test_a_cut_block_sends_the_same_on_any_number_of_ranks_and_keeps_less():
    from lab.notebook import figures

    for ranks, part in ((2, "1/2"), (4, "1/4")):
        text = figures.tensor_parallel_block(ranks=ranks).text
        assert f"{part} of its columns" in text
        assert f"{part} of its rows" in text
        assert text.count("all-reduce") >= 4


def test_a_pipelines_bubble_is_that_of_the_formula_and_1f1b_keeps_less():
    from lab.notebook import figures

    for ranks, micros in ((3, 4), (2, 6), (4, 2)):
        share = f"{(ranks - 1) / (micros + ranks - 1):.0%}"
        for schedule, kept in (("gpipe", micros), ("1f1b", min(ranks, micros))):
            text = figures.pipeline_schedule(ranks=ranks, micro_batches=micros, schedule=schedule).text
            assert f"{share} of the time is bubble" in text
            assert f"Rank 0 keeps the activations of {kept} micro-batch" in text
    text = figures.pipeline_schedule(ranks=3, micro_batches=4).text
    assert "rank 1: . F0 F1 . B0 F2 B1 F3 B2 . B3 ." in text


def test_each_stage_of_zero_holds_less_and_the_last_one_a_share_of_all():
    from lab.notebook import figures

    assert "DDP 4.00; ZeRO-1 (9.3) 2.50; ZeRO-2 1.75; ZeRO-3, FSDP (9.4) 1.00" in figures.zero_stages(ranks=4).text
    assert "ZeRO-1 (9.3) 2.25; ZeRO-2 1.38; ZeRO-3, FSDP (9.4) 0.50" in figures.zero_stages(ranks=8).text


def draws_and_left_out(text: str) -> list[tuple[set[int], int]]:
    """For each epoch, what the ranks draw, and the one sample that the caption says is left out."""
    drawn = [
        set(map(int, re.findall(r"\b\d+(?=[,;.])", line))) for line in re.findall(r"epoch \d: (rank 0.*?\.)", text)
    ]
    left_out = [int(number) for number in re.findall(r"In epoch \d nobody draws (\d+)\.", text)]
    assert len(drawn) == len(left_out) == 2
    return list(zip(drawn, left_out, strict=True))


def test_sharding_divides_what_ddp_replicates():
    from lab.notebook import figures

    text = figures.memory(million_parameters=1024, ranks=4, optimizer="adam", blocks=100).text
    assert (
        "DDP: 15.26 GiB on every rank (parameters 3.81 GiB, gradients 3.81 GiB, optimizer state 7.63 GiB)" in text
    )
    assert "FSDP: 3.89 GiB on every rank (parameters 0.95 GiB, gradients 0.95 GiB, optimizer state 1.91" in text


def test_small_sizes_have_a_unit_that_shows_them():
    """The text of section 4 suggests these arguments."""
    from lab.notebook import figures

    text = figures.memory(million_parameters=0.11, ranks=2, optimizer="momentum", blocks=3).text
    assert "DDP: 1.26 MiB on every rank (parameters 0.42 MiB," in text
    assert "0.00" not in text
    assert "KiB" in figures.memory(million_parameters=0.01).text


def test_what_the_newcomer_could_not_read_is_said():
    from lab.notebook import figures

    sizes = figures.memory(million_parameters=100, ranks=4, optimizer="adam", blocks=12).text
    fsdp = sizes.split("FSDP: ")[1].split(")")[0]
    assert "one block and its gradient 0.06 GiB" in fsdp
    assert "MiB" not in fsdp, "one unit for what is added up"
    assert "So is the last one after its F, and gathered again at once" in figures.fsdp_timeline().text
    assert "One step of 1 block on" in figures.fsdp_timeline(blocks=1).text
    assert "1 node with 4 GPUs each" in figures.rank_map(nodes=1, gpus_per_node=4).text
    averaging = figures.averaging(bucket_cap_mb=25)
    assert "the first closed at 1 MiB" in averaging.text
    assert ">6.3<" in averaging.html, "the first bucket's box has its size, too"
    assert "2 of the last batch's 4 places are filler" in figures.batch_parts(10, 8, 4).text
    assert "filler" not in figures.batch_parts(12, 8, 4).text


def test_the_timeline_of_fsdp_gathers_twice_and_scatters_once_from_the_last_block_back():
    from lab.notebook.figures_sharding import moments

    steps = [(step.kind, step.block) for step in moments(2)]
    assert steps[:4] == [("all-gather", 0), ("forward", 0), ("all-gather", 1), ("forward", 1)]
    assert steps[4:7] == [("all-gather", 1), ("backward", 1), ("reduce-scatter", 1)]
    assert max(step.held for step in moments(5)) == 2, "one block and its gradient, however many there are"


def test_scaling_is_ideal_without_communication_and_worse_with_it():
    from lab.notebook import figures

    assert "16.0 times as fast as one (100% efficiency)" in figures.scaling(communication_ms=0).text
    assert "4.0 times as fast as one (25% efficiency), weak scaling 13.5 times (84%)" in figures.scaling().text


def test_results_are_shown_with_their_numbers_and_alternative_text(tmp_path, monkeypatch, root):
    from lab.notebook import figures, session

    for name in ("model", "data", "train", "main"):
        (tmp_path / "exercises").mkdir(exist_ok=True)
        (tmp_path / "exercises" / f"{name}.py").write_text("")
    monkeypatch.setattr(session, "HERE", tmp_path)
    assert "results/ has no results.csv yet" in figures.show_results().text
    (tmp_path / "results" / "figures").mkdir(parents=True)
    known = {"run_id": "one", "strategy": "none", "status": "done", "world_size": "1", "time_epoch_s": "2.5"}
    row = [known.get(column, "") for column in RESULT_COLUMNS]
    (tmp_path / "results" / "results.csv").write_text(",".join(RESULT_COLUMNS) + "\n" + ",".join(row) + "\n")
    for picture in (root / "docs" / "results" / "demo").glob("*.png"):
        shutil.copy(picture, tmp_path / "results" / "figures")
    card = figures.show_results()
    assert "time/epoch" in card.text
    assert len(re.findall(r'<img alt="[^"]{20,}"', card.html)) == 3


def test_own_efficiencies_are_compared_with_the_labs(tmp_path, monkeypatch, root):
    from lab.notebook import figures, session
    from lab.sweep import load

    def right(folder):
        runs = load(folder).query("status == 'done' and scaling == 'strong'")
        seconds = runs.groupby(["strategy", "world_size"])["time_epoch_s"].median()
        return seconds["none", 1] / (seconds.index.get_level_values("world_size") * seconds)

    (tmp_path / "exercises").mkdir()
    for name in ("model", "data", "train", "main"):
        (tmp_path / "exercises" / f"{name}.py").touch()
    monkeypatch.setattr(session, "HERE", tmp_path)
    assert "results/ has no results.csv yet" in figures.check_efficiency(right).text
    (tmp_path / "results").mkdir()
    shutil.copy(root / "docs" / "results" / "demo" / "results.csv", tmp_path / "results")
    said = figures.check_efficiency(right).text
    assert re.match(
        r"Yours are ours: none on 1 100%, ddp on 1 \d+%, fsdp on 1 \d+%, ddp on 2 \d+%, fsdp on 2 \d+%\.", said
    )
    speed_up = figures.check_efficiency(lambda folder: right(folder) * [1, 2, 1, 2, 1]).text
    assert re.match(r"ddp on 2: 1\.\d+ by yours, 0\.\d+ by ours\. Is it T\(1\) / \(N T\(N\)\)", speed_up)
    assert "returns nothing yet" in figures.check_efficiency(lambda folder: ...).text
    assert "not this: float" in figures.check_efficiency(lambda folder: 0.5).text


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("batch_parts(global_batch=9, ranks=2)", "global_batch=9 cannot be divided evenly among 2 ranks"),
        ("who_draws_what(samples=1000)", "samples=1000: this figure takes a whole number from 2 to 40"),
        ("who_draws_what(samples=2, ranks=3)", "samples=2: fewer than 3 ranks"),
        ("averaging(bucket_cap_mb=0)", "bucket_cap_mb=0: this figure takes a number above 0, up to 1000"),
        ("pipeline_schedule(schedule='2f2b')", "schedule='2f2b': this figure knows gpipe, 1f1b"),
        ("memory(optimizer='lion')", "optimizer='lion': this figure knows sgd, momentum, adam"),
        ("sums_or_means(right=(3,), samples=(1,))", "right=3: this figure takes a whole number from 0 to 1"),
        ("scaling(hidden=2)", "hidden from 0 to 1"),
    ],
)
def test_an_argument_that_makes_no_sense_is_said_in_one_sentence(call, sentence):
    from lab.notebook import figures
    from lab.notebook.show import Said

    with pytest.raises(Said, match=re.escape(sentence)):
        eval(f"figures.{call}", {"figures": figures})


def test_a_graph_closes_the_gaps_between_kernels_that_are_shorter_than_launches():
    from lab.notebook import figures

    assert "one by one 66 us, of which the GPU waits 20 us between kernels; as a graph 46 us" in (
        figures.launches(kernel_us=6, launch_us=10, kernels=6).text
    )
    assert "one by one 70 us, of which the GPU waits 0 us between kernels; as a graph 70 us" in (
        figures.launches(kernel_us=10, launch_us=10, kernels=6).text
    )


def test_the_mesh_says_who_talks_to_whom_and_how_much():
    from lab.notebook import figures

    card = figures.two_dimensions(nodes=2, ranks_per_node=2, mb=5392)
    gather, compute, scatter, reduce, caption = card.text.splitlines()
    assert gather.endswith("each rank sends 2696 MiB. Talking: ranks 0, 1; ranks 2, 3.")
    assert compute.endswith("each rank sends 0 MiB. Talking: no ranks.")
    assert scatter.endswith("each rank sends 2696 MiB. Talking: ranks 0, 1; ranks 2, 3.")
    assert reduce.endswith("each rank sends 2696 MiB. Talking: ranks 0, 2; ranks 1, 3.")
    assert (
        "5392 MiB inside of its node and 2696 MiB between nodes. With DDP over all 4 it sends 8088 MiB" in caption
    )
    one_node = figures.two_dimensions(nodes=1, ranks_per_node=4).text
    assert "0 MiB between nodes. With DDP over all 4 it sends 150 MiB" in one_node
