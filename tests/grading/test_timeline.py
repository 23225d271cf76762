"""Timelines of section 9: what real ranks did when, from a student's own modules."""

import shutil
from pathlib import Path

import pytest

from lab import cli
from lab.base.errors import UserError
from lab.grading.trace.timeline import STEPS, Span, Timeline, record
from lab.syllabus.syllabus import syllabus

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "solutions"


def changed(folder: Path, module: str, right: str, wrong: str) -> Path:
    code = Path(shutil.copytree(SOLUTIONS, folder / "code", ignore=shutil.ignore_patterns("__pycache__")))
    file = code / "from_scratch" / f"{module}.py"
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    return code


def test_in_text_each_lane_is_a_row_of_one_width():
    spans = (Span("a", "F0", 0, 0, 2), Span("a", "long label", 1, 3, 4), Span("rank b", "B", 1, 2, 4))
    lines = Timeline("x", ("a", "rank b"), spans, "It says what there is to see.", STEPS).text(28).splitlines()
    assert lines == [
        "x, 0 to 4 steps",
        "a       F0--------.....long-",
        "rank b  ..........B---------",
        "It says what there is to",
        "see.",
    ]


def test_a_pipeline_is_drawn_as_it_ran():
    gpipe, other = record(syllabus()["9.6"], SOLUTIONS)
    assert [gpipe.name, other.name] == ["GPipe", "1F1B"]
    assert [span.label for span in gpipe.of("rank 0")] == ["F0", "F1", "F2", "F3", "B0", "B1", "B2", "B3"]
    assert [span.label for span in other.of("rank 2")] == ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"]
    for timeline in (gpipe, other):
        at = {(span.lane, span.label): span for span in timeline.spans}
        for micro in range(4):
            for before, behind in ((0, 1), (1, 2)):
                assert at[f"rank {before}", f"F{micro}"].end <= at[f"rank {behind}", f"F{micro}"].begin
                assert at[f"rank {behind}", f"B{micro}"].end <= at[f"rank {before}", f"B{micro}"].begin
        assert min(span.begin for span in timeline.spans) == 0
        assert "of the ranks' time was bubble" in timeline.said


def test_buckets_are_drawn_as_they_went(tmp_path: Path):
    [timeline] = record(syllabus()["9.2"], SOLUTIONS)
    for rank in (0, 1):
        layers, reduced = timeline.of(f"rank {rank}: backward"), timeline.of(f"rank {rank}: all-reduce")
        assert [span.label for span in layers] == ["6", "5", "4", "3", "2", "1"]
        assert [span.label for span in reduced] == ["4 MiB"] * 3
        # When the first bucket's two layers are done, and before the last one is.
        assert layers[1].end <= reduced[0].begin < layers[-1].begin
    assert timeline.said.startswith("2 of rank 0's 3 all-reduces began before its last layer was done.")
    late = changed(tmp_path, "ddp", "while self.begun < len(self.buckets):", "while False:")
    [timeline] = record(syllabus()["9.2"], late)
    assert timeline.said.startswith("0 of rank 0's 3 all-reduces")


def test_a_ring_is_drawn_with_its_parts(tmp_path: Path):
    [timeline] = record(syllabus()["9.1"], SOLUTIONS)
    assert timeline.lanes == ("rank 0 to 1", "rank 1 to 2", "rank 2 to 3", "rank 3 to 0")
    assert [span.label for span in timeline.of("rank 1 to 2")] == [f"part {part}" for part in (1, 0, 3, 2, 1, 0)]
    assert [span.kind for span in timeline.of("rank 1 to 2")] == [0, 0, 0, 1, 1, 1]
    assert "Rank 0 sent 72 bytes: 1.50 times its tensor of 48." in timeline.said
    copies = changed(tmp_path, "ring", "dist.isend(outgoing,", "dist.isend(outgoing.clone(),")
    [timeline] = record(syllabus()["9.1"], copies)
    assert {span.label for span in timeline.spans} == {"12 bytes"}


def test_a_step_in_two_dimensions_is_drawn_with_whom_and_how_many_bytes():
    [timeline] = record(syllabus()["9.7"], SOLUTIONS)
    rows = [(span.label, span.kind) for span in timeline.of("rank 2")]
    assert rows == [("gather with 3: 2696", 0), ("scatter with 3: 2696", 0), ("reduce with 0: 2696", 1)]
    assert "rank 0 sent 5392 bytes inside of its node and 2696 between nodes." in timeline.said


def test_others_have_none_and_one_that_does_not_run_is_a_sentence():
    assert record(syllabus()["9.3"], SOLUTIONS) == []
    with pytest.raises(UserError, match=r"9\.6 has passed, but the run for its picture has not ended well"):
        record(syllabus()["9.6"], ROOT / "exercises")


def test_lab_trace_prints_it_below_the_collectives(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["trace", "9.6", "--code", "solutions"]) == 0
    out = capsys.readouterr().out
    assert out.index("4 collectives") < out.index("GPipe, 0 to ") < out.index("1F1B, 0 to ")


def test_in_a_notebook_one_of_several_is_chosen_and_each_is_a_picture_with_its_words():
    from lab.notebook.traced import timeline_figure

    one = Timeline("ring", ("rank 0",), (Span("rank 0", "part 1", 0, 0, 1),), "Seen.", STEPS)
    two = Timeline("1F1B", ("rank 0",), (Span("rank 0", "F0", 0, 0, 20), Span("rank 0", "B0", 1, 30, 50)), "Idle.")
    card = timeline_figure([one], "9.1")
    assert card.text == "ring. rank 0: part 1.\nSeen."
    assert "radio" not in card.html
    assert "ms<" not in card.html
    card = timeline_figure([one, two], "9.6")
    assert card.html.count('<input type="radio"') == card.html.count("<svg") == 2
    assert "1F1B: 1F1B. rank 0: F0, B0.\nring: Seen. 1F1B: Idle." in card.text
    assert ">50 ms<" in card.html


@pytest.mark.slow
def test_the_card_of_a_trace_has_it_once_the_exercise_has_passed():
    from lab.notebook.traced import trace_card

    card = trace_card(syllabus()["9.6"], SOLUTIONS)
    assert card.html.count('<input type="radio"') == 2
    assert "GPipe: GPipe. rank 0: F0, F1, F2, F3, B0, B1, B2, B3;" in card.text
    stub = trace_card(syllabus()["9.6"], ROOT / "exercises")
    assert "bubble." not in stub.text
