"""The rooms that README.md and CONTRIBUTING.md name, and docs/house.svg draws, are the rooms of lab/."""

import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import draw_house  # noqa: E402


def test_the_picture_and_the_list_are_those_of_today():
    house = draw_house.rooms()
    assert draw_house.PICTURE.read_text(encoding="utf-8") == draw_house.picture(*house), "run: make house"
    text = draw_house.TEXT.read_text(encoding="utf-8")
    assert text == draw_house.text_with(draw_house.room_list(*house)), "run: make house"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_a_page_names_every_room_and_no_other(page: str):
    rows = re.findall(r"^\| `lab/([\w/<>]+)/` \|", (ROOT / page).read_text(encoding="utf-8"), re.M)
    assert sorted(rows) == sorted(draw_house.rooms()[0])


def test_a_room_that_is_in_no_group_is_named():
    with pytest.raises(SystemExit, match="lab/attic is in no group: add it to GROUPS"):
        draw_house.group("attic")


def test_no_arrow_is_drawn_where_a_longer_way_leads_there():
    arrows = {"notebook": {"grading", "base"}, "grading": {"base"}, "base": set[str]()}
    assert draw_house.thinned(arrows) == {"notebook": {"grading"}, "grading": {"base"}, "base": set()}
    layers, below = draw_house.with_dummies(arrows)
    assert layers == [["base"], ["grading", "~base~1"], ["notebook"]]  # where an arrow passes, a place is kept
    assert below["~base~1"] == {"base"}


def test_boxes_of_a_layer_do_not_overlap():
    layers, below = draw_house.with_dummies(draw_house.thinned(draw_house.rooms()[1]))
    layers = draw_house.ordered(layers, below)
    x = draw_house.places(layers, below)
    for layer in layers:
        for a, b in pairwise(layer):
            assert x[b] - x[a] >= (draw_house.width(a) + draw_house.width(b)) / 2 + draw_house.GAP - 0.01, (a, b)
