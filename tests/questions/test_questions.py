"""The small questions: whatever is drawn, the right answer is right, no slip is, wrong options are explained."""

import ast
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.cli import main
from lab.notebook import calls
from lab.questions import asking
from lab.questions.question import BANK, LETTERS, Choice, Number, Order

SEEDS = range(60)


def test_there_are_twenty_in_all_sections():
    assert len(BANK) >= 20
    assert {one.section for one in BANK.values()} == {1, 2, 3, 4, 5, 6, 7}
    assert {type(one.for_student(1)) for one in BANK.values()} == {Number, Choice, Order}


@pytest.mark.parametrize("name", BANK)
def test_the_right_answer_is_right_for_everybody_and_every_slip_has_its_own_sentence(name: str):
    texts = set()
    for seed in SEEDS:
        asked = BANK[name].for_student(seed)
        assert asked == BANK[name].for_student(seed), "who comes back is asked the same"
        texts.add((asked.text, asked.code, tuple(asked.options)))
        if isinstance(asked, Number):
            assert asked.judge(asked.right).right
            assert asked.judge(f"{asked.right} {asked.unit}").right
            for slip in asked.slips:
                assert not asked.judge(slip).right, (asked.text, slip)
            said = [asked.judge(slip).sentence for slip in asked.slips]
            assert set(said) <= set(asked.slips.values())
            assert asked.judge(-987654).sentence == asked.otherwise
            assert asked.because.strip()
        elif isinstance(asked, Choice):
            verdicts = [asked.judge(letter) for letter in LETTERS[: len(asked.options)]]
            assert [one.right for one in verdicts].count(True) == 1
            assert len({one.sentence for one in verdicts}) == len(asked.options) >= 4
        else:
            assert sorted(asked.options) == sorted({step for rule in asked.rules for step in rule[:2]})
    assert len(texts) > 1, "drawn anew for each student"


@pytest.mark.parametrize("name", BANK)
def test_what_stands_for_an_answer_is_never_one(name: str, monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr(calls, "Shown", lambda html: shown.append(html))
    monkeypatch.setattr(calls, "framed", lambda template, title, text, *rest, **more: text)
    for seed in SEEDS:
        asked = BANK[name].for_student(seed)
        monkeypatch.setattr(calls, "ask", lambda folder, name, asked=asked: asked)
        calls.question(name)
        line = shown[-1].splitlines()[-1]
        placeholder = ast.literal_eval(line.removeprefix("question(").removesuffix(")"))[1]
        with pytest.raises(UsageError):
            asked.judge(placeholder)


def in_order(asked: Order, steps: list[str]) -> str:
    return " ".join(LETTERS[list(asked.options).index(step)] for step in steps)


def test_every_order_that_works_is_right_and_one_that_does_not_names_what_breaks():
    asked = BANK["order-of-main"].for_student(7)
    assert isinstance(asked, Order)
    right = ["setup()", "load_once()", "get_dataloaders()", "build_model()", "wrap_model()", "build_optimizer()"]
    right += ["train()", "cleanup()"]
    assert asked.judge(in_order(asked, right)).right
    also = [right[0], *right[3:6], *right[1:3], *right[6:]]
    assert asked.judge(in_order(asked, also).replace(" ", "")).right
    early = [right[0], *right[1:4], right[5], right[4], *right[6:]]
    wrong = asked.judge(in_order(asked, early))
    assert not wrong.right
    assert "FSDP puts shards in place of the parameters" in wrong.sentence
    for _, first in ((0, "a"), (1, "a b c"), (2, "a a b c d e f g")):
        with pytest.raises(UsageError, match="each letter once"):
            asked.judge(first)


def test_what_is_no_answer_is_no_wrong_answer():
    with pytest.raises(UsageError, match="the answer is a number, in MB"):
        BANK["ddp-sends"].for_student(1).judge("much")
    with pytest.raises(UsageError, match="the answer is a letter, from a to d"):
        BANK["who-waits"].for_student(1).judge("e")
    with pytest.raises(UsageError, match="there is no question 'x'; choose from last-batch"):
        asking.ask(None, "x")


def test_a_student_keeps_their_numbers_and_what_was_right(tmp_path: Path):
    texts = {asking.ask(tmp_path, "ddp-sends").text for _ in range(3)}
    assert len(texts) == 1
    asked = asking.ask(tmp_path, "ddp-sends")
    assert isinstance(asked, Number)
    assert not asking.judge(tmp_path, "ddp-sends", -1).right
    assert asking.answered(tmp_path) == []
    assert asking.judge(tmp_path, "ddp-sends", asked.right).right
    assert asking.answered(tmp_path) == ["ddp-sends"]
    others = set()
    for number in range(6):
        (other := tmp_path / str(number)).mkdir()
        others.add(asking.ask(other, "ddp-sends").text)
    assert len(others) > 1
    (tmp_path / ".lab" / "questions.json").write_text("[garbage")
    assert asking.answered(tmp_path) == []
    assert asking.ask(None, "ddp-sends").text == asking.ask(None, "ddp-sends").text


def test_in_a_terminal(tmp_path: Path, monkeypatch, capsys):
    assert main(["start", str(tmp_path / "my-lab")]) == 0
    monkeypatch.chdir(tmp_path / "my-lab")
    capsys.readouterr()
    assert main(["question"]) == 0
    assert "4  ddp-sends          ·" in capsys.readouterr().out
    assert main(["question", "ddp-sends"]) == 0
    assert 'Answer: lab question ddp-sends "..."' in capsys.readouterr().out
    asked = asking.ask(tmp_path / "my-lab", "ddp-sends")
    assert isinstance(asked, Number)
    assert main(["question", "ddp-sends", str(asked.right / 2)]) == 1
    assert "✗ not yet: That is one unit, the reduce-scatter." in capsys.readouterr().out
    assert main(["question", "ddp-sends", f"{asked.right} MB"]) == 0
    assert "✓ right: " in capsys.readouterr().out
    assert main(["question", "ddp-sends", "many"]) == 2
    assert main(["question"]) == 0
    assert "4  ddp-sends          ✓" in capsys.readouterr().out


def test_in_a_notebook(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("LAB_GRADING", "1")  # importing it starts nothing
    from lab.notebook import question, session
    from lab.notebook.show import Said

    assert main(["start", str(tmp_path / "my-lab")]) == 0
    monkeypatch.setattr(session, "HERE", tmp_path / "my-lab" / "notebooks")
    capsys.readouterr()
    question("who-waits")
    assert capsys.readouterr().out == "Not asked while it is graded.\n"
    monkeypatch.delenv("LAB_GRADING")
    question("who-waits")
    said = capsys.readouterr().out
    assert "3  dist.barrier()" in said
    assert "  a)  " in said
    assert 'question("who-waits", "...")' in said
    asked = asking.ask(tmp_path / "my-lab", "who-waits")
    assert isinstance(asked, Choice)
    question("who-waits", LETTERS[asked.best])
    assert f"✓ right: {asked.why[asked.best]}" in capsys.readouterr().out
    with pytest.raises(Said, match="the answer is a letter"):
        question("who-waits", 3)
    question()
    assert "2  who-waits          ✓" in capsys.readouterr().out
