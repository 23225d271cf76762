"""The exercises, and what students get: stubs, notebooks, their package.

May import: base.
"""
