"""From what ranks have recorded to a picture: rows, text for terminals, SVG."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import hang_observers as observers
import pytest

from lab import cli
from lab.base.terminal import can_write
from lab.collectives.lanes import Collective, Frame
from lab.grading.explain import CHECKS
from lab.grading.trace.picture import Picture, picture
from lab.grading.trace.svg import trace_svg
from lab.grading.trace.text import UNICODE, trace_text
from lab.ranks.reports import GroupResult, RankError, RankReport
from lab.ranks.server import server

CODE = Path("code").resolve()
SVG = "{http://www.w3.org/2000/svg}"


def lane(*texts: str, group: str = "0", done: bool = True, file: str = "train.py") -> list[Collective]:
    """ "all_reduce 3 @7" is an all_reduce of a tensor [3] at line 7 of the student's train.py."""
    found = []
    for number, text in enumerate(texts, 1):
        words, _, line = text.partition("@")
        name, *sizes = words.split()
        frames = (Frame(str(CODE / file), int(line), "evaluate", ""),) if line else ()
        found.append(Collective(group, number, name, tuple((int(size),) for size in sizes), done, frames))
    return found


def waiting(collectives: list[Collective]) -> list[Collective]:
    return [*collectives[:-1], replace(collectives[-1], done=False)]


def ok(*lanes: list[Collective]) -> GroupResult:
    return GroupResult([RankReport(rank, "ok", collectives=one) for rank, one in enumerate(lanes)], 0.1)


def hung(*lanes: list[Collective]) -> GroupResult:
    """Ranks whose last collective is not done were cut off in it; the others had ended."""
    reports = [
        RankReport(rank, "ok" if all(c.done for c in one) else "timeout", collectives=one, all_recorded=True)
        for rank, one in enumerate(lanes)
    ]
    return GroupResult(reports, 1.0)


def drawn(result: GroupResult, **options: bool | int) -> str:
    return trace_text(picture(result, CODE), **options).rstrip()  # type: ignore[arg-type]


def expected(text: str) -> str:
    return dedent(text).strip("\n")


def test_collectives_that_all_ranks_came_to_are_joined():
    both = lane("all_reduce 3 @7", "broadcast 2 @9")
    assert drawn(ok(both, both, both)) == expected("""
        rank  0   1   2
           1  ●───●───●  all_reduce [3]  train.py:7 in evaluate()
           2  ●───●───●  broadcast [2]   train.py:9 in evaluate()

          ● met
    """)
    assert picture(ok(both, both), CODE).summary == "2 collectives, all ranks came to each"


def test_the_missing_one_is_marked():
    result = hung(waiting(lane("barrier @5", "all_reduce 3 @7")), lane("barrier @5"))
    assert drawn(result) == expected("""
        rank  0   1
           1  ●───●  barrier         train.py:5 in evaluate()
           2  ◐   ✗  all_reduce [3]  train.py:7 in evaluate()
                     rank 0 waits here
                     rank 1 did not come: it returned from evaluate()

          ● met   ◐ waits   ✗ did not come
    """)
    assert picture(result, CODE).summary == "1 collective that all ranks came to, 1 that was missed"


def test_in_ascii_and_at_60_columns():
    long = lane("all_gather_into_tensor 1024 @7", file="a_long_module_name.py")
    result = hung(waiting(lane("all_reduce 3 @7")), long, long)
    text = drawn(result, width=60, unicode=False)
    assert text == expected("""
        rank  0   1   2
           1  @   x   x  all_reduce [3]
                         train.py:7 in evaluate()
                         rank 0 waits here
           1  x   ?   ?  all_gather_into_tensor [1024]
                         a_long_module_name.py:7 in evaluate()

          @ waits   ? came, and went on   x did not come
    """)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 60


def test_colour_is_never_the_only_sign():
    result = hung(waiting(lane("all_reduce 3 @7")), [])
    plain, coloured = drawn(result), drawn(result, colour=True)
    assert "\x1b[31m✗\x1b[0m" in coloured
    for code in ("\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


def test_different_calls_get_a_row_each():
    result = hung(waiting(lane("all_reduce 3 @7")), waiting(lane("barrier @9")))
    assert drawn(result) == expected("""
        rank  0   1
           1  ◐   ✗  all_reduce [3]  train.py:7 in evaluate()
                     rank 0 waits here
           1  ✗   ◐  barrier         train.py:9 in evaluate()
                     rank 1 waits here

          ◐ waits   ✗ did not come
    """)


def test_tensors_of_different_sizes_get_a_row_each():
    result = hung(waiting(lane("all_reduce 3 @7")), lane("all_reduce 4 @7"))
    assert drawn(result) == expected("""
        rank  0   1
           1  ◐   ✗  all_reduce [3]  train.py:7 in evaluate()
                     rank 0 waits here
           1  ✗   ◇  all_reduce [4]  train.py:7 in evaluate()

          ◐ waits   ◇ came, and went on   ✗ did not come
    """)


@pytest.mark.parametrize(
    ("report", "note"),
    [
        (
            RankReport(
                1,
                "raised",
                error=RankError("ValueError", "no", [], None, None),
                student_frame=Frame("/x/train.py", 4, "evaluate", ""),
            ),
            "it raised ValueError at train.py:4",
        ),
        (
            RankReport(
                1,
                "raised",
                error=RankError("LeftBehindError", "", [Frame(str(CHECKS / "o.py"), 4, "meet", "")], None, None),
            ),
            "it returned from evaluate()",
        ),
        (RankReport(1, "exited", exit_code=0), "its process has ended"),
        (RankReport(1, "killed", exit_code=-9), "its process was killed"),
        (
            RankReport(1, "timeout", student_frame=Frame("/x/train.py", 4, "evaluate", "")),
            "it was at train.py:4",
        ),
    ],
    ids=["raised", "raised by the check", "exited", "killed", "stuck"],
)
def test_what_became_of_the_missing_rank_is_said(report: RankReport, note: str):
    waits = RankReport(0, "timeout", collectives=waiting(lane("all_reduce 3 @7")))
    text = drawn(GroupResult([waits, report], 1.0))
    assert f"rank 1 did not come: {note}\n" in text


def test_calls_of_a_wrapper_share_a_row():
    frame = Frame("/venv/torch/nn/parallel/distributed.py", 9, "__init__", "")
    every = [replace(c, frames=(frame,)) for c in lane("all_gather 1", "broadcast 2", "broadcast 3")]
    assert drawn(ok(every, every)) == expected("""
        rank  0   1
         1-3  ●───●  all_gather, broadcast x2  DDP's constructor, in the check

          ● met
    """)


def test_calls_in_turn_are_counted():
    frame = Frame("/venv/torch/autograd/graph.py", 9, "_engine_run_backward", "")
    every = [replace(c, frames=(frame,)) for c in lane(*["all_gather 1", "reduce_scatter 2"] * 5)]
    assert "1-10  ●───●  all_gather x5, reduce_scatter x5  backward pass" in drawn(ok(every, every))


def test_another_group_has_its_own_ranks_only():
    inner = lane("all_reduce 3 @7", group="1")
    assert drawn(ok(lane("barrier @5") + inner, lane("barrier @5"), lane("barrier @5") + inner)) == expected("""
        rank  0   1   2
           1  ●───●───●  barrier         train.py:5 in evaluate()
           1  ●───────●  all_reduce [3]  train.py:7 in evaluate()

          ● met
    """)


def test_a_long_picture_is_shortened_in_the_middle():
    every = lane(*(f"all_reduce {number} @{number}" for number in range(1, 201)))
    one = picture(ok(every, every), CODE)
    assert (one.met, len(one.rows), one.left_out) == (200, 60, 140)
    lines = trace_text(one).splitlines()
    assert "   ⋮  140 rows are left out here" in lines
    assert lines[-3].split() == ["200", "●───●", "all_reduce", "[200]", "train.py:200", "in", "evaluate()"]
    assert "140 rows are left out here" in trace_svg([("2 ranks", one)], "Trace")


def test_only_what_all_ranks_remember_is_drawn():
    every = lane("barrier @1", "barrier @2", "barrier @3")
    assert picture(ok(every, every[1:]), CODE).met == 2


def test_no_collectives_no_picture():
    one = picture(ok([], []), CODE)
    assert (one.summary, trace_text(one)) == ("no collectives", "")
    ET.fromstring(trace_svg([("2 ranks", one)], "Trace"))


def test_which_streams_take_the_signs():
    assert [can_write(io.TextIOWrapper(io.BytesIO(), code), UNICODE) for code in ("utf-8", "ascii")] == [
        True,
        False,
    ]
    assert not can_write(io.StringIO(), UNICODE)  # which has no encoding


# SVG --------------------------------------------------------------------------------------------------------


def svg(one: Picture, title: str = "Trace") -> ET.Element:
    return ET.fromstring(trace_svg([("2 ranks", one)], title))


def test_the_svg_says_in_words_what_it_shows():
    root = svg(picture(hung(waiting(lane("all_reduce 3 @7")), []), CODE), "Exercise 6.2")
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert description is not None
    assert title.text == "Exercise 6.2"
    assert description.text == (
        "2 ranks: 0 collectives that all ranks came to, 1 that was missed. Number 1, all_reduce [3], "
        "train.py:7 in evaluate(): rank 0 waits here; rank 1 did not come: it returned from evaluate()."
    )
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"


def test_in_a_page_it_takes_the_pages_colours_and_is_not_shrunk_at_half_width():
    one = picture(hung(waiting(lane("all_reduce 3 @7")), []), CODE)
    text = trace_svg([("2 ranks", one)], "Trace", inline=True)
    root = ET.fromstring(text)
    assert not list(root.iter(f"{SVG}rect")), "a white sheet in a dark page"
    assert root.find(f"{SVG}g").get("fill") == "currentColor"
    assert int(root.get("width")) <= 480
    assert min(int(element.get("font-size")) for element in root.iter(f"{SVG}text")) >= 12


def test_the_svg_needs_nothing_else_and_what_ranks_say_is_escaped():
    evil = [
        replace(one, name="<script>", frames=(Frame(str(CODE / "<b>&.py"), 7, "</text><image/>\x00", ""),))
        for one in lane("all_reduce 3 @7")
    ]
    text = trace_svg([("2 ranks", picture(ok(evil, evil), CODE))], "<i> & </title>")
    root = ET.fromstring(text)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "desc", "rect", "g", "text", "line", "circle", "path"),
    }
    assert "href" not in text
    assert "<script" not in text


def test_ids_differ_between_pictures():
    first, second = (svg(picture(ok(lane(name), lane(name)), CODE), name) for name in ("barrier", "reduce"))
    assert first.get("aria-labelledby") != second.get("aria-labelledby")


# On real ranks ----------------------------------------------------------------------------------------------


def test_ranks_are_traced_to_their_end_when_nothing_hangs(tmp_path: Path):
    (tmp_path / "train.py").write_text(
        "import torch.distributed as dist\n\n\ndef evaluate(rank):\n    for _ in range(300): dist.barrier()\n"
    )
    result = server().run(observers.call_evaluate, 2, code=tmp_path, trace=True)
    assert result.ok
    one = picture(result, tmp_path)
    assert (one.met, one.missed) == (300, 0)
    result = server().run(observers.call_evaluate, 2, code=tmp_path)
    assert result.reports[0].collectives == [], "nobody has asked"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["6"], "6 is a section; trace one of its exercises: 6.1, 6.2, 6.3"),
        (["9.9"], "there is no exercise 9.9"),
    ],
)
def test_bad_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str):
    assert cli.main(["trace", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_an_exercise_that_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", "60")
    svg_file = tmp_path / "no" / "folder" / "x.svg"
    assert cli.main(["trace", "4.0", "--code", "exercises", "--svg", str(svg_file)]) == 1
    out, err = capsys.readouterr()
    assert "not started: see TODO 4.0" in out
    assert "cannot be written: No such file or directory" in err
