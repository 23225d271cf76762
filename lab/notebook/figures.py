"""All figures of the notebooks, in one place to import from. Change an argument and run the cell again."""

from lab.notebook.figures_ranks import batch_parts, rank_map, two_dimensions, validation_parts, who_draws_what
from lab.notebook.figures_sharding import (
    all_reduce_bytes,
    fsdp_timeline,
    pipeline_schedule,
    tensor_parallel_block,
    zero_stages,
)
from lab.notebook.figures_training import (
    gradients_kept,
    graph_memory,
    launches,
    one_step,
    run_in_order,
    scaling,
    sums_or_means,
)
from lab.notebook.figures_wrapping import averaging, memory, ring_all_reduce
from lab.notebook.results import check_efficiency, show_results

__all__ = [
    "all_reduce_bytes",
    "averaging",
    "batch_parts",
    "check_efficiency",
    "fsdp_timeline",
    "gradients_kept",
    "graph_memory",
    "launches",
    "memory",
    "one_step",
    "pipeline_schedule",
    "rank_map",
    "ring_all_reduce",
    "run_in_order",
    "scaling",
    "show_results",
    "sums_or_means",
    "tensor_parallel_block",
    "two_dimensions",
    "validation_parts",
    "who_draws_what",
    "zero_stages",
]
