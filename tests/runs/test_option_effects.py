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


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_pairs_of_options(runs):
    tiny, tried = runs
    assert [pair for pair in option_effects.in_pairs(tried) if tiny.silent(*pair)] == []
