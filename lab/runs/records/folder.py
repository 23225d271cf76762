"""A run's folder: config.json, status.json, run.csv, metrics.csv, train.log, train.err. Imports no torch.

Rank 0 alone holds a RunFolder. Every file is complete after each epoch, so that a run that dies leaves what
it had. lab/sweep reads these files; the columns are the contract between the two.
"""

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from lab.base.errors import UsageError, UserError
from lab.base.files import write_whole
from lab.runs.records.lock import RunLock
from lab.runs.records.progress import best_so_far

CORE_COLUMNS = (  # in every run.csv
    *("run_id", "strategy", "model", "dataset", "precision", "scaling", "repeat", "status", "reason"),
    *("jobid", "commit", "ts", "epochs", "epoch", "world_size", "nodes", "gpus_per_node"),
    *("global_batch", "per_gpu_batch", "train_top1", "val_top1", "images_per_sec", "time_epoch_s"),
    *("dl_time_s", "fw_time_s", "bw_time_s", "comm_time_s", "mem_gb", "util_gpu", "eff_strong", "eff_weak"),
)
HOW_COLUMNS = (  # how the steps were computed; absent in the records of earlier versions
    "allocator",  # of main memory, where that is the device's
    "captured",  # yes or no: whether as CUDA graphs
    "compiled",  # model, blocks or no: what torch.compile was given
    "memory_format",  # channels_last or contiguous: of the images, and of filters where FSDP2 does not forbid it
)
BEST_COLUMNS = ("best_top1", "best_epoch")  # of val_top1 so far, and the epoch that reached it first
EFFICIENCY_COLUMNS = (  # empty where it is not known
    "grad_norm",  # over all parameters and ranks, before clipping: the mean over the epoch's steps
    "loss_scale",  # fp16's, at the epoch's end
    "tflops_per_device",  # of the network's forward and backward passes
    "mfu",  # model FLOPs utilisation: the part of the card's peak that this is, a fraction
)
SHARD_COLUMNS = ("held_mb", "shard", "shard_ranks", "shard_group_mb", "copies_group_mb")  # docs/training.md
RUN_COLUMNS = (
    *CORE_COLUMNS,
    # How it was measured and on what; absent in the records of earlier versions.
    *("step_time_s", "measured_steps", "steps_per_epoch", "input", "bucket_cap_mb", "variant", "config_hash"),
    *("device", "driver", "versions"),
    *HOW_COLUMNS,
    *(*BEST_COLUMNS, *EFFICIENCY_COLUMNS, *SHARD_COLUMNS),
)
METRICS_COLUMNS = ("epoch", "phase", "loss", "accuracy", "throughput")
SUMMARY = "summary"  # stands in the column `epoch` of run.csv's last row


def now() -> str:
    """The time in UTC, to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def job_id(environ: Mapping[str, str] = os.environ) -> str:
    """Slurm's name for this job (12_3 for task 3 of array 12); empty outside of Slurm."""
    if "SLURM_ARRAY_JOB_ID" in environ:
        return f"{environ['SLURM_ARRAY_JOB_ID']}_{environ.get('SLURM_ARRAY_TASK_ID', '')}"
    return environ.get("SLURM_JOB_ID", "")


class RunFolder:
    """results/<run_id>/ of a run that is going on.

    Args:
        go_on: keep the log and the rows of an earlier part of this run, until `begin` says which of them.
        resumed: there is a checkpoint to go on from. Only then may the folder hold a finished run, which stays
            one until `take_over`: what comes before it can still fail.
        say: tells people why it takes long.

    Raises:
        UsageError: the folder already holds a finished run.
        UserError: the folder cannot be made or written to, or another run is at work there.
    """

    def __init__(
        self,
        output_dir: Path,
        run_id: str,
        *,
        go_on: bool = False,
        resumed: bool = False,
        say: Callable[[str], None] = print,
    ) -> None:
        self.path = output_dir / run_id
        self.run_id = run_id
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
            self._lock = RunLock(self.path, job=job_id(), restarts=restarts, say=say)
        except OSError as error:
            raise self._not_writable(error) from error
        try:
            self._open(go_on=go_on, resumed=resumed)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, *, go_on: bool, resumed: bool) -> None:
        before = self._status_on_disk()
        self.started = before.get("started", now()) if go_on else now()
        self._rows: list[dict[str, object]] = []
        self._beginning: tuple[int, Mapping[str, object]] | None = None  # from begin() to take_over()
        self._finished = before.get("status") == "done"
        if self._finished and not resumed:
            repair = "; it has no checkpoint to go on from" if go_on else ", or add epochs with --resume latest"
            raise UsageError(
                f"{self.path} already holds a finished run: choose another --run-id, or remove it{repair}"
            )
        try:
            # In a sweep, our standard output and error already end in these very files.
            log, errors = self.path / "train.log", self.path / "train.err"
            self._own_errors = not _ends_in(errors, sys.stderr, "JOB_STDERR")
            if self._own_errors:
                errors.unlink(missing_ok=True)  # of an earlier try that did not finish
            if not self._finished:
                self.write_status("running")
            own_log = not _ends_in(log, sys.stdout, "JOB_STDOUT")
            self._log = log.open("a" if go_on else "w", encoding="utf-8") if own_log else None
            if go_on:
                self._rows = [dict(row) for row in _epoch_rows(self.path / "run.csv")]
            else:
                self._drop_rows_after(0)
        except OSError as error:
            raise self._not_writable(error) from error

    def _not_writable(self, error: OSError) -> UserError:
        return UserError(
            f"cannot write the run's records to {self.path} ({error.strerror}): choose another --output-dir"
        )

    def _status_on_disk(self) -> dict[str, str]:
        try:
            record = json.loads((self.path / "status.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}  # nothing readable there: nothing finished there
        return record if isinstance(record, dict) else {}

    def begin(self, epochs_done: int, config: Mapping[str, object]) -> None:
        """All is set up to go on after so many epochs. Only a finished run is left as it is until `take_over`."""
        self._beginning = epochs_done, config
        if not self._finished:
            self.take_over()

    def take_over(self) -> None:
        """A step is done, or a figure there: from the first time on, the records are those of the run going on.

        The rows of the epochs done are kept, those of epochs that are trained again dropped. The test images are
        evaluated again at the end, so their row goes too.
        """
        self._lock.check()
        if self._beginning is None:
            return
        (epochs_done, config), self._beginning = self._beginning, None
        with self.writing():
            self._drop_rows_after(epochs_done)
            if self._finished:
                self.write_status("running")
            write_whole(self.path / "config.json", json.dumps(config, indent=2) + "\n")
        self._finished = False

    def _drop_rows_after(self, epoch: int) -> None:
        rows = _epoch_rows(self.path / "run.csv", epoch)
        self._rows = [dict(row) for row in rows]
        if rows:
            self._write_rows(self._rows)
        else:
            (self.path / "run.csv").unlink(missing_ok=True)
        trained = [row for row in _epoch_rows(self.path / "metrics.csv", epoch) if row["phase"] != "test"]
        _write_table(self.path / "metrics.csv", METRICS_COLUMNS, trained)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A disk that takes no records ends the run: what it did would be lost without a word."""
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot write the run's records to {self.path} ({error.strerror}): make room there, and go on "
                "with --resume latest"
            ) from error

    def log(self, line: str) -> None:
        """One line, or several, to train.log; what a sweep prints ends in there by itself."""
        if self._log is not None:
            with self.writing():
                print(line, file=self._log, flush=True)

    def write_status(self, status: str, reason: str = "") -> None:
        """status is running, done, interrupted (told to stop; it can be resumed) or failed."""
        record = {
            "status": status,
            "reason": reason,
            "started": self.started,
            "ended": None if status == "running" else now(),
        }
        write_whole(self.path / "status.json", json.dumps(record, indent=2) + "\n")

    def add_metrics(self, epoch: int, phase: str, loss: float, accuracy: float, throughput: float) -> None:
        """One row of metrics.csv. Accuracy is a fraction, throughput in images per second."""
        self.take_over()
        row = dict(zip(METRICS_COLUMNS, (epoch, phase, *map(_number, (loss, accuracy, throughput))), strict=True))
        with self.writing():
            _append_row(self.path / "metrics.csv", METRICS_COLUMNS, row)

    def add_epoch(self, row: Mapping[str, object]) -> None:
        """One epoch's row of run.csv; keys are RUN_COLUMNS, missing ones stay empty."""
        self.take_over()
        self._rows.append({"run_id": self.run_id, "ts": now(), **row})
        self._rows[-1] |= best_so_far(self._rows)
        with self.writing():
            self._write_rows(self._rows)

    def close(self, status: str, reason: str, summary: Mapping[str, object], error: str = "") -> None:
        """Add run.csv's summary row and the final status; `error` is a traceback for train.err.

        A finished run that was to go on, but did not come through its first step, stays as it is.
        """
        try:
            if not self._finished:
                self._close(status, reason, summary, error)
            if self._log is not None:
                with self.writing():
                    self._log.close()
        finally:
            self._lock.release()

    def _close(self, status: str, reason: str, summary: Mapping[str, object], error: str) -> None:
        self._lock.check()
        ended = {
            **(self._rows[-1] if self._rows else {}),  # its figures, where this part of the run has none
            "run_id": self.run_id,
            "ts": now(),
            **summary,
            "epoch": SUMMARY,
            "status": status,
            "reason": reason,
        }
        with self.writing():
            self._write_rows([*self._rows, ended])
            if error and self._own_errors:  # else Python itself prints it there
                (self.path / "train.err").write_text(error, encoding="utf-8")
            self.write_status(status, reason)

    def _write_rows(self, rows: list[dict[str, object]]) -> None:
        _write_table(self.path / "run.csv", RUN_COLUMNS, rows)


def _ends_in(path: Path, stream: TextIO, variable: str) -> bool:
    """Whether what is written to `stream` ends up in this file.

    Args:
        variable: where run.sh names the file, because under srun the stream itself is a pipe.
    """
    try:
        here, named = path.stat(), os.environ.get(variable)
        if named is not None and Path(named).exists():
            return os.path.samestat(here, os.stat(named))
        return os.path.samestat(here, os.fstat(stream.fileno()))
    except (OSError, ValueError):  # no such file yet, or a stream that is no file
        return False


def _number(value: object) -> object:
    """Floats with six significant digits; everything else as it is."""
    return f"{value:.6g}" if isinstance(value, float) else value


def _epoch_rows(path: Path, last: int | None = None) -> list[dict[str, str]]:
    """A table's rows of finished epochs, up to the last one that counts; the summary row is none."""
    numbered = [row for row in _read_rows(path) if str(row.get("epoch")).isdecimal()]
    return [row for row in numbered if last is None or int(row["epoch"]) <= last]


def _read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table; a last line that a kill has cut off is left out."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [row for row in csv.DictReader(file) if None not in row and None not in row.values()]
    except FileNotFoundError:
        return []


def _write_table(path: Path, columns: tuple[str, ...], rows: Sequence[Mapping[str, object]]) -> None:
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, restval="")
    writer.writeheader()
    writer.writerows({name: _number(value) for name, value in row.items()} for row in rows)
    write_whole(path, table.getvalue())


def _append_row(path: Path, columns: tuple[str, ...], row: Mapping[str, object]) -> None:
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.DictWriter(file, columns).writerow(row)
