"""run.sh: its #SBATCH head, and what it starts, with srun, scontrol and python played by scripts on PATH."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from played_slurm import SLURM, notes, play, play_python, played, start


@pytest.fixture
def package(root, tmp_path) -> Path:
    return played(root, tmp_path)


def test_shellcheck_has_nothing_to_say(root):
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed (make services)")
    scripts = [*root.glob("*.sh"), *root.glob("slurm/*.sh"), *root.glob("env/*.sh"), *root.glob("lab/**/*.sh")]
    command = ["shellcheck", "--external-sources", *scripts]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_head_asks_for_one_node_with_four_gpus_and_nothing_of_a_site(root):
    text = (root / "run.sh").read_text()
    head, _, body = text.partition("\nset -euo pipefail\n")
    options = {
        line.removeprefix("#SBATCH --").partition("=")[0]: line.partition("=")[2]
        for line in head.splitlines()
        if "#SBATCH --" in line
    }
    assert options["nodes"] == "1"
    assert options["ntasks-per-node"] == options["gpus-per-node"] == "4"
    assert (options["output"], options["error"]) == ("train-%j.log", "train-%j.err")
    assert not {"account", "partition", "reservation", "constraint", "qos"} & options.keys()
    # Slurm silently ignores a line after the first command, or with a space after the #.
    assert "#SBATCH" not in body
    assert not re.search(r"^#\s+SBATCH --", text, re.M)
    assert all(line.startswith("#") or not line for line in head.splitlines())


def test_under_slurm_srun_starts_one_task_per_gpu_with_the_flags(package):
    done = start(package, "--strategy", "fsdp", "--data-dir", "my data", **SLURM)
    assert done.returncode == 0, done.stderr
    folder, srun, *variables = notes(package)
    assert folder == str(package)
    assert srun.startswith("srun --kill-on-bad-exit=1 --cpus-per-task=6 python exercises/main.py ")
    assert srun.endswith("main.py --strategy fsdp --data-dir my data --run-id scaling-lab-123456")
    assert variables[:3] == ["MASTER_ADDR=node7", "MASTER_PORT=13456", "OMP_NUM_THREADS=6"]
    assert variables[4] == "PYTHONUNBUFFERED=1"


def test_code_chooses_the_reference(package):
    start(package, CODE="solutions", **SLURM)
    assert "python solutions/main.py" in notes(package)[1]


def test_slurms_copy_of_the_script_works_in_the_folder_of_sbatch(package, tmp_path_factory):
    copy = tmp_path_factory.mktemp("spool") / "slurm_script"
    shutil.copy(package / "run.sh", copy)
    done = start(package, script=copy, SLURM_SUBMIT_DIR=str(package), **SLURM)
    assert done.returncode == 0, done.stderr
    assert notes(package)[0] == str(package)


def test_in_a_clone_the_lab_is_importable_without_being_installed(package):
    (package / "lab").mkdir()
    start(package, **SLURM, PYTHONPATH="/elsewhere")
    assert f"PYTHONPATH={package}:/elsewhere" in notes(package)


@pytest.mark.parametrize("job", ["1", "4711", "19999", "20000", "99999999"])
def test_the_port_is_below_those_that_linux_hands_out(package, job):
    start(package, **{**SLURM, "SLURM_JOB_ID": job})
    port = int(notes(package)[3].removeprefix("MASTER_PORT="))
    assert 10000 <= port < 32768
    assert port % 20000 == (10000 + int(job)) % 20000


@pytest.mark.parametrize("scontrol", ["exit 1", "exit 0"])
def test_without_the_first_node_the_job_fails_and_nothing_is_started(package, scontrol):
    play(package / "bin", "scontrol", scontrol)
    done = start(package, **SLURM)
    assert done.returncode == 1
    assert done.stderr.startswith("run.sh: scontrol ")
    assert "the ranks cannot meet" in done.stderr
    assert not (package / "notes").exists()


def test_threads_can_be_chosen_and_default_to_one_without_an_allocation(package):
    start(package, **SLURM, OMP_NUM_THREADS="3")
    assert "OMP_NUM_THREADS=3" in notes(package)
    start(package, **{name: value for name, value in SLURM.items() if name != "SLURM_CPUS_PER_TASK"})
    assert "OMP_NUM_THREADS=1" in notes(package)
    assert "--cpus-per-task" not in notes(package)[1]


def test_the_exit_code_is_sruns(package):
    play(package / "bin", "srun", "exit 7")
    assert start(package, **SLURM).returncode == 7


def test_a_container_brings_its_own_python(package):
    play_python(package / "bin" / "python", torch=False)
    (package / "edf.toml").touch()
    start(package, LAB_ENV="edf.toml", **SLURM)
    srun = notes(package)[1]
    assert srun.startswith(f"srun --environment={package}/edf.toml --kill-on-bad-exit=1 ")
    assert " python exercises/main.py" in srun


def test_the_environment_can_be_a_folder_an_image_or_modules(package, root):
    play_python(package / "venv" / "bin" / "python")
    start(package, LAB_ENV="venv", **SLURM)
    assert " venv/bin/python exercises/main.py" in notes(package)[1]

    (package / "lab.sif").touch()
    start(package, LAB_ENV="lab.sif", **SLURM)
    assert f" apptainer exec --nv --bind {package} --pwd {package} lab.sif python exercises" in notes(package)[1]

    shutil.copytree(root / "env", package / "env")
    (package / "env" / "modules.txt").write_text("# comment\n\npytorch/2.9  a remark\ncuda/12")
    module = 'module() { echo "module $*" >>"$MODULES"; }; export -f module'
    (package / "env" / "site.sh").write_text(module)
    start(package, LAB_ENV="env/load_modules.sh", MODULES=str(package / "modules"), **SLURM)
    assert (package / "modules").read_text() == "module purge\nmodule load pytorch/2.9\nmodule load cuda/12\n"
    assert " python exercises/main.py" in notes(package)[1]


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ("nowhere.sif", "LAB_ENV=nowhere.sif: there is no such file or folder in "),
        ("env/load_modules.sh", "LAB_ENV=env/load_modules.sh does not load: see above"),
    ],
)
def test_an_environment_that_cannot_be_says_so(package, root, environment, sentence):
    shutil.copytree(root / "env", package / "env")
    done = start(package, LAB_ENV=environment, **SLURM)
    assert done.returncode == 1
    assert f"run.sh: {sentence}" in done.stderr
    assert not (package / "notes").exists()


def test_the_site_file_is_read_first(package):
    (package / "env").mkdir()
    (package / "env" / "site.sh").write_text("export OMP_NUM_THREADS=11\n")
    start(package, **SLURM)
    assert "OMP_NUM_THREADS=11" in notes(package)


@pytest.mark.parametrize("part", ["env/site.sh", "env/modules.txt", "slurm/system_records.sh"])
def test_the_line_ends_of_dos_are_named_with_their_repair(package, part):
    (package / "env").mkdir(exist_ok=True)
    (package / "env" / "modules.sh").write_text(":\n", encoding="utf-8")
    (package / part).parent.mkdir(exist_ok=True)
    unix = (package / part).read_bytes() if (package / part).exists() else b"# here\n"
    (package / part).write_bytes(unix.replace(b"\n", b"\r\n"))
    done = start(package, LAB_ENV="env/modules.sh", **SLURM)
    assert done.returncode == 1
    assert done.stderr == f"run.sh: {part} has the line ends of DOS: sed -i 's/\\r$//' {part}\n"
    subprocess.run(["sed", "-i", r"s/\r$//", package / part], check=True)
    assert (package / part).read_bytes() == unix
    assert "line ends" not in start(package, LAB_ENV="env/modules.sh", **SLURM).stderr


@pytest.mark.parametrize("gpus", ["1", "a100:1"])
def test_torchrun_is_one_task_a_node_and_hands_the_warning_on(package, gpus):
    start(package, "--epochs", "3", LAUNCHER="torchrun", SLURM_GPUS_PER_TASK=gpus, **SLURM)
    srun = notes(package)[1]
    assert " --ntasks=2 --ntasks-per-node=1 --cpus-per-task=24 --gpus-per-node=4 python -m " in srun
    assert " --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-id 123456" in srun
    assert (
        " --rdzv-endpoint node7:13456 --signals-to-handle SIGTERM,SIGINT,SIGUSR1 exercises/main.py --epochs 3"
        in srun
    )


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"LAUNCHER": "mpirun"}, "LAUNCHER=mpirun: it is srun or torchrun"),
        ({"LAUNCHER": "torchrun", "SLURM_NTASKS": "7"}, "7 tasks cannot be spread evenly over 2 nodes"),
    ],
)
def test_a_launch_that_cannot_be_says_so(package, wrong, sentence):
    done = start(package, **SLURM | wrong)
    assert done.returncode == 1
    assert f"run.sh: {sentence}" in done.stderr


def test_a_run_has_the_name_and_the_folder_that_main_py_is_given(package):
    start(package, "--run-id=mine", "--output-dir", "elsewhere", **SLURM)
    assert notes(package)[1].endswith(" --run-id=mine --output-dir elsewhere --run-id mine")
    assert (package / "train.log").readlink() == package / "elsewhere" / "mine" / "train.log"
    task = {"SLURM_ARRAY_JOB_ID": "123450", "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_NAME": "a/b"}
    start(package, **SLURM | task)
    assert notes(package)[1].endswith(" --run-id a-b-123450_3")


def test_a_dry_run_leaves_no_run_behind(package):
    start(package, "--dry-run", **SLURM)
    assert [path.name for path in (package / "results").iterdir()] == [".dry-run"]


def test_help_starts_no_ranks(package):
    start(package, "--help")
    assert notes(package)[0].endswith("/python exercises/main.py --help")
    assert not (package / "results").exists()


def test_the_venv_beside_it_is_used_when_the_active_python_has_no_torch(package):
    play_python(package / "bin" / "python", torch=False)
    play_python(package / ".venv" / "bin" / "python")
    done = start(package, **SLURM)
    assert done.returncode == 0, done.stderr
    assert f" {package}/.venv/bin/python exercises/main.py" in notes(package)[1]


def test_without_any_torch_it_says_what_to_do(package):
    play_python(package / "bin" / "python", torch=False)
    done = start(package, **SLURM)
    assert done.returncode == 1
    assert "run.sh: no Python with torch: activate your environment" in done.stderr


def test_without_code_it_says_what_is_missing(package):
    done = start(package, CODE="nowhere", **SLURM)
    assert done.returncode == 1
    assert f"run.sh: no nowhere/main.py in {package}" in done.stderr


def test_outside_slurm_torchrun_starts_the_ranks_and_the_output_is_shown_and_kept(package):
    done = start(package, "--strategy", "ddp")
    assert done.returncode == 0, done.stderr
    command, _ = notes(package)
    assert "python -m torch.distributed.run --standalone --local-addr 127.0.0.1 --nproc-per-node 2 " in command
    assert re.search(r" exercises/main.py --strategy ddp --run-id local-\d{8}-\d{6}$", command)
    note = re.sub(
        r"^note: this trains on \S+ itself, without a job; .*\n", "", done.stderr
    )  # where Slurm is installed
    assert (done.stdout, note) == ("out\n", "err\n")
    assert ((package / "train.log").read_text(), (package / "train.err").read_text()) == ("out\n", "err\n")


def test_outside_slurm_the_number_of_ranks_can_be_chosen_and_shares_the_cores(package):
    start(package, NPROC="1000")
    command, threads = notes(package)
    assert "--nproc-per-node 1000 " in command
    assert threads == "OMP_NUM_THREADS=1"


def test_outside_slurm_a_failure_is_a_failure(package):
    play_python(package / "bin" / "python", exit_code=3)
    done = start(package)
    assert done.returncode == 3
    assert (package / "train.err").read_text() == "err\n"


def test_edf_names_no_site(root):
    environment = tomllib.loads((root / "edf.toml").read_text())
    assert environment["image"]
    paths = [environment["workdir"], *environment["mounts"]]
    assert all("${" in path and not re.search(r"(^|:)/", path) for path in paths)


def test_the_image_gets_all_that_the_package_is_made_of(root):
    definition = (root / "env" / "project.def").read_text()
    copied = dict(re.findall(r"^    (\S+) /opt/scaling-lab/(\S+)$", definition, re.M))
    wheel = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        "pyproject.toml",
        "README.md",
        *wheel["packages"],
        *(Path(p).parts[0] for p in wheel["force-include"]),
    }
    assert needed <= copied.keys()
    assert all(source == target and (root / source).exists() for source, target in copied.items())


def test_a_profiler_stands_before_python(package):
    play(package / "bin", "nsys", "")
    start(package, PROFILER="nsys profile --output=%q{RUN_FOLDER}/rank", **SLURM)
    assert " nsys profile --output=%q{RUN_FOLDER}/rank python exercises/main.py" in notes(package)[1]


def test_what_another_launcher_left_in_the_shell_is_not_handed_on(package):
    left = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "GROUP_WORLD_SIZE": "1",
        "OMPI_COMM_WORLD_RANK": "0",
    }
    left |= {"PMI_RANK": "0", "TORCHELASTIC_RUN_ID": "x", "SLURM_CPU_BIND": "cores", "MASTER_ADDR": "elsewhere"}
    play(package / "bin", "srun", 'env >"$NOTES"')
    assert start(package, **left, **SLURM).returncode == 0
    handed = dict(line.partition("=")[::2] for line in notes(package))
    assert left.keys() & handed.keys() == {"MASTER_ADDR"}
    assert handed["MASTER_ADDR"] == "node7"


@pytest.mark.parametrize(
    ("flags", "environment", "said"),
    [
        (("--run-id", "../evil"), {}, "--run-id ../evil leads out of the folder of the runs"),
        (("--run-id=/evil",), {}, "--run-id /evil leads out of the folder of the runs"),
        ((), {"PROFILER": "no-such-profiler --all"}, "there is no no-such-profiler on "),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(package, flags, environment, said):
    done = start(package, *flags, **environment, **SLURM)
    assert done.returncode == 1
    assert f"run.sh: {said}" in done.stderr
    assert not (package / "notes").exists()
    assert not (package / "evil").exists()


def test_slurms_copy_works_in_the_jobs_folder_where_that_is_another(package, tmp_path_factory):
    copy = tmp_path_factory.mktemp("spool") / "slurm_script"
    shutil.copy(package / "run.sh", copy)
    done = start(package, script=copy, SLURM_SUBMIT_DIR=str(copy.parent), **SLURM)  # sbatch --chdir
    assert done.returncode == 0, done.stderr
    assert notes(package)[0] == str(package)


def test_on_a_login_node_it_says_that_it_trains_there(package):
    play(package / "bin", "sbatch", "")
    assert "without a job; sbatch run.sh would submit one" in start(package).stderr


def test_an_array_script_outside_of_an_array_says_so(root):
    done = subprocess.run(["slurm/sensitivity.sh"], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "this script is for a job array" in done.stderr


def test_data_are_copied_to_each_node_first_and_removed_after(package):
    play(package / "bin", "srun", 'echo "srun $*" >>"$NOTES"; echo "bind $APPTAINER_BIND" >>"$NOTES"')
    (package / "images").mkdir()
    done = start(package, "--data-dir=images", STAGE="1", TMPDIR="/local", APPTAINER_BIND="/work", **SLURM)
    assert done.returncode == 0, done.stderr
    once = "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=1"
    there = "/local/scaling-lab-123456"
    copy, _, train, bind, remove, _ = notes(package)
    assert copy == f"{once} bash slurm/stage_data.sh images {there}"
    assert train.endswith(f"--data-dir=images --run-id scaling-lab-123456 --data-dir {there}")
    assert bind == f"bind /work,{there}"
    assert remove == f"{once} rm -rf {there} {there}.start {there}.lock"


def test_nothing_trains_where_the_data_could_not_be_copied(package):
    play(package / "bin", "srun", 'echo "srun $*" >>"$NOTES"; exit 1')
    (package / "images").mkdir()
    done = start(package, "--data-dir", "images", STAGE="/local", **SLURM)
    assert done.returncode == 1
    assert "the data could not be copied to the nodes" in done.stderr
    assert len(notes(package)) == 1


def test_without_a_job_data_are_read_where_they_are(package):
    (package / "images").mkdir()
    done = start(package, "--data-dir", "images", STAGE="1", NPROC="2")
    assert "note: STAGE is for jobs; here images is read where it is" in done.stderr
    assert "scaling-lab-" not in notes(package)[0]


@pytest.mark.parametrize(
    ("flags", "stage", "said"),
    [
        ([], "1", "there is no --data-dir"),
        (["--data-dir", "images"], "1", "--data-dir images is no folder: lab fetch makes one"),
        (["--data-dir", "."], "yes", "STAGE=yes: it is 1, or a folder's whole path"),
    ],
)
def test_data_that_cannot_be_staged_are_refused(package, flags, stage, said):
    done = start(package, *flags, STAGE=stage, **SLURM)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (package / "notes").exists()


def test_a_node_copies_everything_and_says_so(root, tmp_path):
    (tmp_path / "from" / "train" / "a cat").mkdir(parents=True)
    (tmp_path / "from" / "train" / "a cat" / "1.jpg").write_text("image")
    (tmp_path / "from" / ".cache").write_text("decoded")
    said: list[str] = []
    script, there = root / "slurm" / "stage_data.sh", tmp_path / "local" / "job"
    for restarts in ("0", "1", "1"):  # the second time after a requeue, over what was left; and by a second node
        done = subprocess.run(
            [script, tmp_path / "from", there],
            env={**os.environ, "SLURM_RESTART_COUNT": restarts},
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(done.stdout)
        (there / f"seen {len(said)}").touch()
    assert sorted(path.name for path in there.iterdir()) == [".cache", "seen 2", "seen 3", "train"]
    assert (there / "train" / "a cat" / "1.jpg").read_text() == "image"
    assert (there / ".cache").read_text() == "decoded"
    assert re.search(rf"MiB of {tmp_path}/from copied to {there} in \d+ s", said[1])
    assert f"lies in {there} already" in said[2]


def test_a_node_without_room_says_how_much_it_lacks(root, tmp_path):
    (tmp_path / "from").mkdir()
    play(tmp_path / "bin", "du", 'echo "5000	$2"')
    play(tmp_path / "bin", "df", 'printf "Avail\n  300\n"')
    done = subprocess.run(
        [root / "slurm" / "stage_data.sh", tmp_path / "from", tmp_path / "local" / "job"],
        env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert re.search(r"has 5000 MiB, and \S+/local on \S+ has 300 MiB left: STAGE=DIR names another", done.stderr)
    assert not (tmp_path / "local" / "job").exists()
