"""Which launcher started this process, and whether what it says can be trusted. Imports no torch."""

import os
import sys
from collections.abc import Mapping

from lab.base.errors import UsageError

# The rank and the number of ranks as MPI launchers say them: Open MPI, then the others (MPICH, Intel MPI).
MPI = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


def require_launcher(environ: Mapping[str, str] = os.environ) -> None:
    """Refuse a process that torchrun or srun did not start, where each process would take itself for rank 0.

    Inside a Slurm job SLURM_PROCID is set for everybody: in the job script itself, and for what mpirun starts
    there, with the numbers of mpirun's own helpers. (srun --mpi=pmi2 sets both families, and they agree.)

    Raises:
        UsageError: with what to type instead.
    """
    if "RANK" in environ:  # torchrun
        _require_one_world(environ)
        return
    if "SLURM_PROCID" not in environ:
        started_by = "mpirun" if _mpi(environ) else "no launcher"
        raise UsageError(
            f"this process was started by {started_by}, so it has no rank that PyTorch can use. Type\n"
            f"    torchrun --standalone --nproc-per-node 2 {sys.argv[0]} --strategy ddp\n"
            "or, on a cluster, sbatch run.sh"
        )
    instead = "submit it with  sbatch run.sh , which starts the ranks with srun and says where they meet"
    if "SLURM_STEP_ID" not in environ:
        raise UsageError(
            f"this process is in a Slurm job, but srun did not start it, so it has no rank: {instead}"
        )
    slurm = (environ["SLURM_PROCID"], environ.get("SLURM_NTASKS"))
    for rank, size in _mpi(environ):
        if (rank, size) != slurm or environ.get("SLURM_STEP_NUM_TASKS", size) != size:
            raise UsageError(
                f"mpirun says that this is rank {rank} of {size}, Slurm that it is {slurm[0]} of {slurm[1]}: "
                f"{instead}"
            )


def _require_one_world(environ: Mapping[str, str]) -> None:
    """Refuse what RANK and WORLD_SIZE say where Slurm knows of more processes: each would train alone.

    sbatch and srun hand the variables of the shell on, those of an older torchrun among them.
    """
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "")
    if "SLURM_PROCID" not in environ or not tasks.isdecimal():
        return
    size, met = environ.get("WORLD_SIZE", ""), environ.get("GROUP_WORLD_SIZE", tasks)
    if met != tasks:  # torchrun says how many torchruns have met
        raise UsageError(
            f"srun started {tasks} torchruns, but {met} of them met, in a world of {size} ranks:"
            " give each the same --nnodes, --rdzv-id and --rdzv-endpoint, and no --standalone; "
            "LAUNCHER=torchrun sbatch run.sh  does"
        )
    if not size.isdecimal() or int(size) < int(tasks) or int(size) % int(tasks):
        raise UsageError(
            f"RANK and WORLD_SIZE say rank {environ['RANK']} of {size} ranks, but Slurm started {tasks} processes:"
            " they come from the shell that submitted the job. Type\n"
            "    unset RANK LOCAL_RANK WORLD_SIZE\n"
            "and submit it again"
        )


def _mpi(environ: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """(rank, number of ranks) of every MPI launcher that has set them."""
    return [(environ[rank], environ.get(size)) for rank, size in MPI if rank in environ]


def rank_from_environment() -> int:
    """This process's rank as its launcher says it, before any process group exists; 0 when none says."""
    for name in ("RANK", "SLURM_PROCID"):
        value = os.environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return 0
