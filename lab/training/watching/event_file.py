"""One file of TensorBoard's. Importing this module fails where TensorBoard is not installed."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard.summary import text


class EventFile:
    """Written here and now. SummaryWriter writes in a thread, where a full disk ends in a traceback.

    Args:
        folder: made if it is not there.
        first_step: TensorBoard will not show what earlier files in the folder hold of this step and of later ones.

    Raises OSError, as its other methods do, when it cannot be written.
    """

    def __init__(self, folder: Path, first_step: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard knows its files by the beginning of their names and reads them in the names' order.
        name = f"events.out.tfevents.{time.time_ns() // 1000:016d}.{socket.gethostname()}.{os.getpid()}"
        self._file = open(folder / name, "xb")  # noqa: SIM115
        self._records = RecordWriter(self._file)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if first_step is not None:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(wall_time=time.time(), step=first_step, session_log=start))

    def add_scalars(self, step: int, values: Mapping[str, float], when: float | None = None) -> None:
        """A point on each of these curves.

        Args:
            step: on the x axis.
            values: tag -> number.
            when: seconds since 1970; now if not given.
        """
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        self._write(Event(wall_time=time.time() if when is None else when, step=step, summary=summary))

    def add_text(self, step: int, tag: str, markdown: str) -> None:
        self._write(Event(wall_time=time.time(), step=step, summary=text(tag, markdown)))

    def flush(self) -> None:
        """Let readers see what was added."""
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
