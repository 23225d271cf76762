"""Stands in for torchrun and main.py in the tests of the local launcher: starts at once, and does as it is told.

python fake_main.py BEHAVIOUR --output-dir DIR --run-id NAME ...
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from run_folders import write_run

behaviour, *flags = sys.argv[1:]
parser = argparse.ArgumentParser()
for name in ("--output-dir", "--run-id", "--strategy", "--epochs", "--global-batch-size"):
    parser.add_argument(name)
args, _ = parser.parse_known_args(flags)
folder = Path(args.output_dir, args.run_id)


def write_records(status: str = "done") -> None:
    folder.rename(folder.with_suffix(".made"))  # write_run makes the folder itself
    launched = folder.with_suffix(".made")
    write_run(Path(args.output_dir), args.strategy, 1, run_id=args.run_id, status=status, reason="told to fail")
    for path in launched.iterdir():  # job.json, and the very train.log and train.err that are open
        path.replace(folder / path.name) if path.name != "status.json" else path.unlink()
    launched.rmdir()


print("epoch 1/3, step 1/2, loss 2.0", flush=True)
print("[METRIC] epoch=1 time=3.214 train_loss=1.2 val_loss=1.1234 acc=0.5678 images_per_sec=1593.0", flush=True)
print(f"OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']}", flush=True)
match behaviour:
    case "done":
        write_records()
    case "failed":
        write_records("failed")
        sys.exit(1)
    case "raises":
        print(b"\xff\xfe half a line".decode("latin-1"), file=sys.stderr)
        raise ValueError("the batch is too large")
    case "runs out of memory":
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB", file=sys.stderr)
        sys.exit(1)
    case "exits":
        sys.exit(7)
    case "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    case "says nothing":
        pass
    case "sleeps":
        # As torchrun does: the rank is in a session of its own.
        rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        Path("pids").write_text(f"{os.getpid()} {rank.pid}")
        time.sleep(600)
    case "leaves its rank behind":
        rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        Path("pids").write_text(f"{os.getpid()} {rank.pid}")
        time.sleep(1.5)  # the launcher looks once a second
        os.kill(os.getpid(), signal.SIGKILL)
    case "quiet":
        time.sleep(1.5)
        write_records()
