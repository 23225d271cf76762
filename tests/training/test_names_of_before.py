"""Modules that stand for names of before: once imported they take the current name's place in lab.training."""

import importlib

import lab.training


def test_options_of_before_have_all_that_mains_use():
    before = lab.training.options
    try:
        shim = importlib.import_module("lab.training.options")
        missing = [name for name in importlib.import_module("lab.runs.options").__all__ if not hasattr(shim, name)]
        assert not missing
    finally:
        lab.training.options = before
