"""python -m lab.roofline.marked SUBJECT: one marked step, for lab roofline --ncu, which starts ncu with it."""

import json
import sys

import torch
from torch.cuda import nvtx

from lab.base.errors import UserError
from lab.roofline.ncu import mark
from lab.roofline.step import Subject, Tally, prepare, too_large


def run(subject: Subject, device: torch.device) -> None:
    """Only the step itself lies between cudaProfilerStart and cudaProfilerStop.

    Raises:
        UserError: the batch does not fit in the device's memory, or the network cannot be built.
    """
    about = (subject.name, subject.precision, subject.batch)
    tally = Tally(lambda number, kind: nvtx.range("{}", mark(*about, kind)))
    try:
        step = prepare(subject, device, tally)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        with tally:
            step()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    except torch.OutOfMemoryError:
        raise too_large(subject, device) from None


if __name__ == "__main__":
    try:
        run(Subject(**json.loads(sys.argv[1])), torch.device("cuda", 0))
    except UserError as error:
        sys.exit(str(error))
