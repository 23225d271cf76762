"""Which ranks there are, or starting some here. Imports no torch in this process; the ranks do."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lab.bandwidth.timings import FILE, Timing, load, save
from lab.base.errors import UsageError, UserError
from lab.base.processes import ProcessTree
from lab.slurm import reasons
from lab.sweep.launch.local import environment, launcher

TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
LOOK = 1.0  # seconds
SRUN = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")


def launched(environ: Mapping[str, str] = os.environ) -> tuple[int, int, int] | None:
    """Rank, local rank and number of ranks, where torchrun started this process, or srun several; else None.

    Raises:
        UsageError: the launcher's variables make no sense, or do not say where the ranks meet.
    """
    if "RANK" in environ:
        names = TORCHRUN
    elif "SLURM_STEP_ID" in environ and environ.get("SLURM_NTASKS", "1") != "1":
        names = SRUN
    else:
        return None
    values = [environ.get(name, "") for name in names]
    if not all(value.isdecimal() for value in values):
        said = ", ".join(f"{name}={value!r}" for name, value in zip(names, values, strict=True))
        raise UsageError(f"{said}: start it with torchrun or srun, or without (unset {' '.join(names)})")
    rank, local_rank, ranks = map(int, values)
    if not local_rank <= rank < ranks:
        raise UsageError(f"{', '.join(names)} contradict each other: {', '.join(values)}")
    if "MASTER_ADDR" not in environ or "MASTER_PORT" not in environ:
        raise UsageError(
            "the ranks do not know where to meet. Type before srun:\n"
            "    export MASTER_PORT=29500 "
            "MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)"
        )
    return rank, local_rank, ranks


def measure_here(ranks: int, sizes: Sequence[int], *, cpu: bool) -> list[Timing]:
    """Start so many ranks on this machine and let them measure.

    Raises:
        UserError: they did not come to an end.
    """
    with tempfile.TemporaryDirectory(prefix="lab-bandwidth-") as folder:
        out, errors = Path(folder, FILE), Path(folder, "errors")
        asked = json.dumps({"sizes": list(sizes), "cpu": cpu, "out": str(out)})
        with errors.open("wb") as err:
            process = subprocess.Popen(
                [*launcher(ranks), "--module", "lab.bandwidth.launch", asked],
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
                env=environment(cpu=cpu),
                start_new_session=True,
            )
            tree = ProcessTree(process)
            try:
                while process.poll() is None:
                    tree.look()  # so that no rank is left where torchrun is killed
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(LOOK)
            finally:
                tree.end()
        if process.returncode or not out.is_file():
            why = reasons.from_exit(process.returncode, reasons.tail(errors))
            raise UserError(f"{ranks} ranks could not measure: {why}")
        return load(out)


def _member() -> None:
    """One of these ranks."""
    from lab.bandwidth.measure import measure

    asked = json.loads(sys.argv[1])
    place = launched()
    assert place is not None, "torchrun starts this"
    rank, local_rank, ranks = place
    timings = measure(asked["sizes"], rank=rank, local_rank=local_rank, ranks=ranks, cpu=asked["cpu"])
    if rank == 0:
        save(timings, Path(asked["out"]))


if __name__ == "__main__":
    _member()
