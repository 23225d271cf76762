"""For packages that students got before the rooms of lab/training were made."""

from lab.training.data.datasets import DataSets, load_datasets  # noqa: F401
