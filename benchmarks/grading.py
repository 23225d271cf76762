"""Claims: `lab grade` marks at least 3 ordinary submissions a minute on two CPU cores, modules and notebooks
together, and at least 3 times as many as stock nbgrader with the same checks run by spawn in its kernels; the time
grows linearly with the class; and one submission that hangs costs only its own deadline.

Run: python benchmarks/grading.py [--sizes 10 50 200] [--stock N]      (needs no GPU; Linux, bubblewrap, nbgrader)

The class is made of solved, half solved, untouched and wrong submissions in turn, each a little different, so that
nothing is graded once for several. `lab grade --course` writes gradebook, notebooks and pages too. Stock nbgrader
grades N of the same submissions with its own preprocessors; there each check cell starts the groups of ranks of
its checks by torch.multiprocessing.spawn, as many as the lab's suite starts, without the checks' own work: the
ratio says rather too little than too much.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STOCK = """
c = get_config()
c.CourseDirectory.course_id = "stock"
c.Execute.timeout = 600
c.ClearSolutions.text_stub = "*Write your answer here.*"
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = r"."
"""
# What a check cell of the stock course runs: the same groups of ranks as the lab's checks, by spawn.
SPAWNING = """
import sys
sys.path.insert(0, {benchmarks!r})
import suite
for kind, count in {groups!r}:
    for _ in range(count):
        suite.through_spawn(kind)
"""


def program(name: str) -> list[str]:
    return [sys.executable, "-m", {"lab": "lab.cli", "nbgrader": "nbgrader"}[name]]


def call(*command: str, cwd: Path | None = None) -> float:
    """Seconds that a command takes. Ends the benchmark where it fails."""
    begin = time.monotonic()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader calls alembic by its name
    env = {**os.environ, "PATH": path, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command], cwd=cwd, env=env, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return time.monotonic() - begin


def submit(place: Path, released: Path, number: int) -> None:
    """One submission: solved, half solved, untouched or wrong, in turn."""
    shutil.copytree(released, place)
    modules = sorted((ROOT / "solutions").glob("*.py"))
    kind = number % 4
    for module in modules[: {0: len(modules), 1: len(modules) // 2, 2: 0, 3: len(modules)}[kind]]:
        text = module.read_text(encoding="utf-8")
        if kind == 3:
            text = text.replace("sampler.set_epoch(epoch)", "pass").replace("optimizer.zero_grad()", "pass")
        (place / "exercises" / module.name).write_text(f"# submission {number}\n{text}", encoding="utf-8")
    book = place / "1_model.ipynb"
    notebook = json.loads(book.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            cell["source"] = f"Answer number {number}."
    book.write_text(json.dumps(notebook), encoding="utf-8")


def course(place: Path) -> Path:
    """A course directory with a release."""
    call(*program("lab"), "course", "build", str(place))
    call(*program("nbgrader"), "generate_assignment", "lab", "--force", cwd=place)
    return place


def through_the_lab(place: Path, count: int, *extra: str) -> float:
    """Seconds that `lab grade --course` takes for a class of `count`, the start included."""
    home = course(place)
    for number in range(count):
        submit(home / "submitted" / f"s{number:03}" / "lab", home / "release" / "lab", number)
    return call(*program("lab"), "grade", str(home / "submitted"), "--jobs", "2", *extra)


def with_a_hang(place: Path, count: int, deadline: float) -> tuple[float, float]:
    """Seconds for a class, and for the same class with one submission that hangs besides."""
    plain = through_the_lab(place / "plain", count, "--deadline", str(deadline))
    home = course(place / "hang")
    for number in range(count):
        submit(home / "submitted" / f"s{number:03}" / "lab", home / "release" / "lab", number)
    submit(home / "submitted" / "hang" / "lab", home / "release" / "lab", 2)
    for module in ("model", "data", "train", "ddp_utils", "fsdp_utils", "distributed_utils"):
        (home / "submitted" / "hang" / "lab" / "exercises" / f"{module}.py").write_text("while True: pass\n")
    begin = time.monotonic()
    subprocess.run(
        [*program("lab"), "grade", str(home / "submitted"), "--jobs", "2", "--deadline", str(deadline)],
        capture_output=True,
        check=False,  # 1: there is something to look at
    )
    return plain, time.monotonic() - begin


def through_stock(place: Path, count: int) -> float:
    """Seconds that `nbgrader autograde` takes with the same groups of ranks spawned in its kernels."""
    import suite

    from lab.grading.suite import Suite
    from lab.syllabus.notebooks import check_id

    with suite.CountingServer() as server:
        groups: dict[str, list[tuple[suite.Kind, int]]] = {}
        run = Suite(ROOT / "solutions", server=server)
        for exercise in run.syllabus.exercises:
            server.groups.clear()
            run.run(exercise)
            groups[check_id(exercise.id)] = sorted(server.groups.items())
    home = course(place / "built")
    stock = place / "stock"
    shutil.copytree(home / "source", stock / "source")
    (stock / "nbgrader_config.py").write_text(STOCK)
    for book in (stock / "source" / "lab").glob("*.ipynb"):
        notebook = json.loads(book.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            name = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
            if name in groups:
                cell["source"] = SPAWNING.format(benchmarks=str(ROOT / "benchmarks"), groups=groups[name])
        book.write_text(json.dumps(notebook), encoding="utf-8")
    call(*program("nbgrader"), "generate_assignment", "lab", "--force", cwd=stock)
    for number in range(count):
        submit(stock / "submitted" / f"s{number:03}" / "lab", stock / "release" / "lab", number)
    os.environ["LAB_GRADING"] = "1"
    return call(*program("nbgrader"), "autograde", "lab", cwd=stock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10, 50, 200], metavar="N", help="of the classes")
    parser.add_argument("--stock", type=int, default=2, metavar="N", help="submissions graded by stock nbgrader")
    parser.add_argument("--deadline", type=float, default=60.0, metavar="SECONDS", help="for the one that hangs")
    parser.add_argument("--without-hang", action="store_true", help="leave that part out")
    arguments = parser.parse_args()
    rate = 0.0
    with tempfile.TemporaryDirectory(prefix="lab-grading-") as folder:
        place = Path(folder)
        for size in arguments.sizes:
            seconds = through_the_lab(place / f"lab{size}", size)
            rate = 60 * size / seconds
            each = seconds / size
            print(f"lab grade   {size:4} submissions  {seconds:7.1f} s  {each:5.1f} s each  {rate:5.1f} a minute")
            shutil.rmtree(place / f"lab{size}")
        if arguments.stock:
            seconds = through_stock(place, arguments.stock)
            stock = 60 * arguments.stock / seconds
            print(f"stock       {arguments.stock:4} submissions  {seconds:7.1f} s  {stock:22.1f} a minute")
            if rate:
                print(f"ratio       {rate / stock:5.1f}")
        if not arguments.without_hang and arguments.sizes:
            plain, hanging = with_a_hang(place, arguments.sizes[0], arguments.deadline)
            print(f"one hang    {hanging - plain:5.1f} s more, with a deadline of {arguments.deadline:g} s")
    print(f"load at the end {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
