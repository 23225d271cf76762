"""first_look(): one rank and two train the same, with a line that goes along; losses, times and pictures."""

import re

import pytest


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LAB_GRADING", "1")  # importing it starts nothing
    from lab.first_look import cell

    monkeypatch.setattr(cell, "IMAGES", 768)
    monkeypatch.setattr(cell, "VALID_IMAGES", 128)
    monkeypatch.setattr(cell, "PERIOD", 0.01)
    return cell


def test_one_rank_and_two_learn_the_same_and_a_line_goes_along(cell):
    lines: list[str] = []
    card = cell._compare((1, 2), 3, lines.append)
    rows = re.findall(r"^(\d ranks?)  ([\d.]+) s  ([\d.]+)  ([\d.]+)  (\d+)%$", card.text, re.M)
    assert [row[0] for row in rows] == ["1 rank", "2 ranks"]
    one, two = ([float(number) for number in row[1:]] for row in rows)
    assert abs(one[1] - two[1]) < 0.02, "the same global batches give the same losses, nearly"
    assert one[2] < one[1]
    assert two[2] < two[1]
    assert two[3] > 15, "better than chance"
    assert len(re.findall(r": says \w+, \d+% sure", card.text)) == 10
    assert card.html.count("data:image/png;base64,") == 10
    assert "Training loss over seconds: 1 rank falls from" in card.html
    assert lines[0] == "1 rank: starting …"
    assert [line for line in lines if re.match(r"2 ranks: epoch \d of 3, loss [\d.]+, [\d.]+ s …", line)]


def test_what_is_misused_is_said_and_nothing_runs_while_it_is_graded(cell, capsys):
    from lab.notebook.show import Said

    cell.first_look()
    assert capsys.readouterr().out == "Not run while it is graded.\n"
    with pytest.raises(Said, match="ranks=9: this figure takes a whole number from 1 to 4"):
        cell.first_look(ranks=(1, 9))
