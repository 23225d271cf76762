"""The report: one page that needs nothing else, honest tables, and outlines that are never overwritten."""

import json
import re
import sys
from pathlib import Path

import pytest
from run_folders import write_run

import plot_results
from lab.sweep.collect.collect import collect
from lab.sweep.compare.frame import typed
from lab.sweep.compare.table import summary
from lab.sweep.draw.report import TEMPLATES, commands, fill, headlines
from lab.sweep.draw.report_tables import bottlenecks, resources, run_hours, scaling, system, unfinished


@pytest.fixture
def results(tmp_path) -> Path:
    folder = tmp_path / "results"
    write_run(folder, "none", 1, seconds=(8.0, 8.0))
    for repeat, seconds in enumerate((5.0, 5.2, 5.6), start=1):
        write_run(folder, "ddp", 2, run_id=f"ddp-2-{repeat}", repeat=repeat, seconds=(seconds, seconds))
    write_run(folder, "fsdp", 2, status="failed", reason="CUDA out of <memory>")
    return folder


@pytest.fixture
def rows(results):
    return collect(results).rows


def hours(folder: Path, started: str, ended: str | None) -> None:
    record = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    (folder / "status.json").write_text(
        json.dumps({**record, "started": started, "ended": ended}), encoding="utf-8"
    )


def test_the_page_is_whole_and_loads_nothing(results, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("lab.sweep.draw.plot.DPI", 30)
    collect(results)
    page = tmp_path / "out" / "report.html"
    assert plot_results.main([str(results / "results.csv"), "--report", str(page)]) == 0
    assert str(page) in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(?:src|href)\s*=\s*(?![\"']?data:)", text)
    assert text.count('<img src="data:image/svg+xml;base64,') >= 4
    assert all('alt="Plot: ' in image for image in re.findall(r"<img [^>]*>", text))
    for heading in ("Figures", "Measurements", "Bottlenecks", "System", "Resources", "Commands"):
        assert f"<h2>{heading}</h2>" in text
    assert "CUDA out of &lt;memory&gt;" in text
    assert "CUDA out of <memory>" not in text
    for name in TEMPLATES:
        assert (page.parent / f"report_{name}.md").is_file()


def test_an_outline_in_which_somebody_writes_is_left_alone(results, tmp_path, monkeypatch):
    monkeypatch.setattr("lab.sweep.draw.plot.DPI", 30)
    collect(results)
    page = tmp_path / "report.html"
    command = [str(results / "results.csv"), "--report", str(page)]
    plot_results.main(command)
    paper, pitch = tmp_path / "report_paper.md", tmp_path / "report_pitch.md"
    paper.write_text("my own words", encoding="utf-8")
    pitch.write_text(pitch.read_text(encoding="utf-8") + "stale", encoding="utf-8")
    plot_results.main(command)
    assert paper.read_text(encoding="utf-8") == "my own words"
    assert "stale" not in pitch.read_text(encoding="utf-8")


def test_the_scaling_table_has_medians_and_spreads(rows):
    (table,) = scaling(typed(rows))
    ddp = next(row for row in table.rows if row[0] == "ddp")
    assert ddp[1:4] == ("2", "3", "5.2 ± 0.3")
    assert ddp[5].startswith("77%")  # 8 / (2 x 5.2)
    assert "ddp | 2 | 3 | 5.2 ± 0.3" in table.markdown()


def test_what_the_terminals_table_warns_of_is_below_the_reports(rows):
    (table,) = scaling(typed(rows))
    assert "Only 20 steps were measured" in table.note
    others = [row | {"commit": "abc"} if row["strategy"] == "ddp" else row for row in rows]
    assert "Measured with different commits: 0123456789ab; abc." in scaling(typed(others))[0].note
    without = [row for row in rows if row["strategy"] != "none"]
    assert "No speed-up: there is no finished run of --strategy none" in scaling(typed(without))[0].note


def test_what_failed_is_in_a_table_of_its_own(rows):
    table = unfinished(typed(rows))
    assert [row[2:] for row in table.rows] == [("failed", "CUDA out of <memory>")]
    assert unfinished(typed([row for row in rows if row["status"] == "done"])).note == "every run is done"


def test_hours_count_nodes_and_devices(results, rows):
    for row in rows:
        hours(results / row["run_id"], "2026-03-01T10:00:00+00:00", "2026-03-01T10:30:00+00:00")
    hours(results / "ddp-2-3", "2026-03-01T10:00:00+00:00", None)  # it was killed
    assert run_hours(results / "none-1") == 0.5
    assert run_hours(results / "nowhere") is None
    (table,) = resources(typed(rows), results)
    *_, total = table.rows
    # four known runs: one on 1 rank, three on 2
    assert total[-2:] == ("2.000", "3.500")
    assert "1 run left no times" in table.note
    assert table.header[-2:] == ("node-hours", "rank-hours")
    on_gpus, on_cpus = resources(typed([rows[0] | {"device": "A card"}, *rows[1:]]), results)
    assert (on_gpus.header[-1], on_gpus.rows[-1][-1]) == ("GPU-hours", "0.500")
    assert (on_cpus.header[-1], on_cpus.rows[-1][-1]) == ("rank-hours", "3.000")
    assert on_gpus.title != on_cpus.title


@pytest.mark.parametrize("device", ["cpu", "A card", ""])
def test_devices_are_counted_once_however_many_nodes_they_are_on(tmp_path, device):
    run = write_run(tmp_path, "ddp", 8, nodes=2, device=device, status="failed")  # so gpus_per_node is empty
    hours(run, "2026-03-01T10:00:00+00:00", "2026-03-01T11:00:00+00:00")
    (table,) = resources(typed(collect(tmp_path).rows), tmp_path)
    assert table.rows[0][2:] == ("2", "4", "1.000", "2.000", "8.000")
    assert table.header[-1] == ("rank-hours" if device == "cpu" else "GPU-hours")
    write_run(tmp_path, "ddp", 8, run_id="done", nodes=2, device=device)
    assert dict(system(typed(collect(tmp_path).rows)).rows)["nodes x devices"] == "2 x 4"


def test_verdicts_come_from_the_profiles(results, rows):
    assert "No run was profiled" in bottlenecks(typed(rows), results).note
    folder = results / "ddp-2-1" / "profile"
    folder.mkdir()
    share = {"data": 0.1, "communication": 0.62, "launch": 0.0}
    summary = {
        "verdict": "communication-bound",
        "sentence": "communication-bound: of a step of 9 ms",
        "share": share,
    }
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    (results / "ddp-2-2" / "profile").mkdir()
    (results / "ddp-2-2" / "profile" / "summary.json").write_text("garbage", encoding="utf-8")
    table = bottlenecks(typed(rows), results)
    assert [row[4] for row in table.rows] == ["62%"]
    assert table.rows[0][-1].startswith("communication-bound")


def test_verdicts_keep_what_differs_between_the_runs_and_print_plain_numbers(results):
    for name, more in (("fp32", {}), ("bf16", {"precision": "bf16"}), ("captured", {"variant": "--capture"})):
        folder = write_run(results, "ddp", 4, run_id=name, **more) / "profile"
        folder.mkdir()
        record = {
            "sentence": "a step of 2.32e+03 ms",
            "share": dict.fromkeys(("data", "communication", "launch"), 0),
        }
        (folder / "summary.json").write_text(json.dumps(record), encoding="utf-8")
    table = bottlenecks(typed(collect(results).rows), results)
    assert table.header[:5] == ("strategy", "devices", "network", "precision", "options")
    assert {row[3:5] for row in table.rows} == {("fp32", "-"), ("bf16", "-"), ("fp32", "--capture")}
    assert {row[-1] for row in table.rows} == {"a step of 2320 ms"}


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
            "GPU 0 has a total capacity of 79.11 GiB of which 1.2 GiB is free.",
            "ran out of GPU memory: it asked for 2.00 GiB more, of 79.11 GiB in all",
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, "
            "remote process exited or there was a network error",
            "lost its connection to another process, which had ended",
        ),
        ("my.package.OddError: two and two", "two and two (OddError)"),
        ("KeyError: 'x'", "'x' (KeyError)"),
        ("cancelled", "cancelled"),
        ("killed by SIGKILL (often: out of memory)", "killed by SIGKILL (often: out of memory)"),
    ],
)
def test_tables_say_in_words_what_was_raised(results, raised, words):
    write_run(results, "ddp", 8, status="failed", reason=raised)
    rows = collect(results).rows
    assert raised in {row["reason"] for row in rows}  # results.csv keeps it
    assert words in {row[-1] for row in unfinished(typed(rows)).rows}
    assert f"{words}\n" in summary(rows)


def test_the_system_is_that_of_the_finished_runs(rows):
    rows = [row | {"device": "A card", "driver": "580.1", "versions": "torch 2.11"} for row in rows]
    rows[0] = rows[0] | {"driver": "590.2"}
    known = dict(system(typed(rows)).rows)
    assert known["device"] == "A card"
    assert known["driver"] == "580.1; 590.2"


def test_a_headline_says_which_line_was_reached(rows):
    (said,) = headlines(typed(rows))
    assert said.endswith("ddp on 2 devices reaches 77%, above the 70% line.")
    assert headlines(typed([row | {"eff_strong": ""} for row in rows])) == []


def test_every_place_in_the_outlines_is_filled(rows, results):
    root = Path(plot_results.__file__).parent / "docs" / "templates"
    assert {file.stem for file in root.glob("*.md")} == set(TEMPLATES)
    for name in TEMPLATES:
        filled = fill((root / f"{name}.md").read_text(encoding="utf-8"), typed(rows), results)
        assert "{{" not in filled
        assert "ddp" in filled or "CPU" in filled
    with pytest.raises(KeyError):
        fill("{{nothing}}", typed(rows), results)


def test_commands_end_with_collecting_and_drawing(rows, results):
    assert commands(typed(rows), results)[-2:] == [
        f"python collect_results.py {results}",
        f"python plot_results.py {results / 'results.csv'} --report report.html",
    ]


def test_the_paper_is_a_pdf_with_its_figures_and_the_words_of_who_wrote_in_it(
    results, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("lab.sweep.draw.plot.DPI", 30)
    collect(results)
    page = tmp_path / "out" / "report.html"
    command = [str(results / "results.csv"), "--report", str(page), "--pdf"]
    assert plot_results.main(command) == 0
    pdf = page.with_name("report_paper.pdf")
    assert str(pdf) in capsys.readouterr().out
    outline = pdf.read_bytes()
    assert outline.startswith(b"%PDF-")
    figures = list((results / "figures").glob("*.png"))
    assert len(re.findall(rb"/Subtype /Image", outline)) >= len(figures) > 3
    text = page.with_name("report_paper.md")
    text.write_text("# Ünser Titel\n\nMein Satz: 5 ± 1.\n", encoding="utf-8")
    assert plot_results.main(command) == 0
    assert b"/Subtype /Image" not in pdf.read_bytes()
    assert "Ünser Titel".encode("utf-16-be").hex().encode() in pdf.read_bytes()
    text.write_text("![one](figures/gone.png)\n", encoding="utf-8")
    assert plot_results.main(command) != 0
    assert "figures/gone.png" in capsys.readouterr().err


def test_a_pdf_without_a_report_is_refused_and_so_it_is_without_fpdf2(results, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("lab.sweep.draw.plot.DPI", 30)
    collect(results)
    with pytest.raises(SystemExit):
        plot_results.main([str(results / "results.csv"), "--pdf"])
    assert "no effect without --report" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "fpdf", None)
    arguments = [str(results / "results.csv"), "--report", str(tmp_path / "report.html"), "--pdf"]
    assert plot_results.main(arguments) == 2
    assert "python -m pip install fpdf2" in capsys.readouterr().err
