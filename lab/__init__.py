"""Scaling Lab: a guided lab in distributed training with PyTorch."""

__version__ = "0.1.0"
