"""No option is ignored without a word: each alone, and each beside each other one, against what the runs did."""

import random

import option_effects
import pytest

pytestmark = pytest.mark.usefixtures("world_of_one")
SAMPLE = 12  # pairs in CI


@pytest.fixture
def runs(tmp_path):
    tried = option_effects.values(tmp_path)
    tiny = option_effects.Runs(tmp_path)
    yield tiny, tried
    tiny.close()


def test_every_option_alone_does_something_or_is_named(runs):
    tiny, tried = runs
    silent = [" ".join(option) for option in option_effects.alone(tried) if tiny.silent((), option)]
    assert not silent, "\n".join(map(str, silent))


def test_some_pairs_of_options(runs):
    tiny, tried = runs
    pairs = random.Random(0).sample(option_effects.in_pairs(tried), SAMPLE)
    silent = [pair for pair in pairs if tiny.silent(*pair)]
    assert not silent, "\n".join(map(str, silent))


def test_what_is_so_anyway_is_tried_where_it_is_not_so(runs):
    tiny, tried = runs
    so_anyway = [pair for pair in option_effects.in_pairs(tried) if pair[1] in option_effects.SO_ANYWAY]
    assert {added for _, added in so_anyway} == set(option_effects.MATTERS_AFTER)
    assert [pair for pair in so_anyway if tiny.silent(*pair)] == []


@pytest.mark.parametrize("option", [("--no-amp",), ("--precision", "fp32")], ids=" ".join)
def test_where_a_device_has_bf16_fp32_is_what_it_was_asked_for(runs, monkeypatch, option):
    tiny, _ = runs
    monkeypatch.setattr(tiny.main.Run.__init__.__globals__["precision"], "default_precision", lambda _: "bf16")
    assert not tiny.silent((), option)


def test_buckets_of_ones_own_ddp_are_recorded(runs):
    """One of the pairs, found by trying them all."""
    assert not runs[0].silent(("--strategy", "my-ddp"), ("--bucket-cap-mb", "0.01"))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_pairs_of_options(runs):
    tiny, tried = runs
    assert [pair for pair in option_effects.in_pairs(tried) if tiny.silent(*pair)] == []
