"""What is said fits this log: how many GPUs, whose argument, what was downloaded, whose words, on which node."""

import pytest

from lab.diagnose.evidence import Evidence, gather
from lab.diagnose.told.finding import Finding
from lab.diagnose.verdict import findings

ORDINAL = "RuntimeError: CUDA error: invalid device ordinal\n"
FAILED = (
    "E0206 04:40:14.302000 6 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) "
    "local_rank: "
    "{} (pid: 7) of binary: /v/bin/python\n"
)


def report(rank: int, local_rank: int) -> str:
    return f"  host      : g1\n  rank      : {rank} (local_rank: {local_rank})\n  exitcode  : 1 (pid: 7)\n"


def first(log: str) -> Finding:
    return findings(Evidence(name="train.log", log=log, files=("train.log",)))[0]


def text(one: Finding) -> str:
    return " ".join((one.saw, one.means, *one.do))


@pytest.mark.parametrize(
    ("log", "said", "unsaid"),
    [
        # More processes than GPUs, told by counts.
        ("#SBATCH --gres=gpu:2\ntorchrun --nproc_per_node=4 train.py\n" + ORDINAL, "4 processes", "The rank was"),
        ("#SBATCH --gres=gpu:a100:2\n#SBATCH --ntasks-per-node=4\n" + ORDINAL, "2 GPUs given", "The rank was"),
        (
            "#SBATCH --gpus-per-node=2\n+ torchrun --nproc-per-node 4 t.py\n" + ORDINAL,
            "--nproc-per-node 2",
            "RANK, not",
        ),
        ("CUDA_VISIBLE_DEVICES=0,1\nLOCAL_WORLD_SIZE=4\n" + ORDINAL, "4 processes", "The rank was"),
        ("SLURM_GPUS_ON_NODE=1\nSLURM_NTASKS_PER_NODE=2\n" + ORDINAL, "1 GPU given", "The rank was"),
        # The same by the local ranks that failed.
        (
            "CUDA_VISIBLE_DEVICES=0,1\n" + ORDINAL + FAILED.format(2) + report(3, 3),
            "Local ranks 2 and 3",
            "The rank was",
        ),
        ("#SBATCH --gres=gpu:2\n" + ORDINAL + FAILED.format(2), "Local rank 2 found", "The rank was"),
        # Each process sees one.
        ("CUDA_VISIBLE_DEVICES=0\n" + ORDINAL + FAILED.format(1), "sees one GPU only", "The rank was used"),
        # The rank instead of the local rank: on a later node only.
        (
            "CUDA_VISIBLE_DEVICES=0,1,2,3\n" + ORDINAL + report(4, 0) + report(5, 1),
            "Ranks 4 and 5 asked",
            "sees one",
        ),
        (ORDINAL + report(5, 1) + report(6, 2), "The rank was used as the index", "Either"),
        # Neither can be told.
        (ORDINAL + FAILED.format(1), "Either more processes", "The rank was used as the index"),
        (ORDINAL, "There are more processes on the node than GPUs for them, the rank was used", "Either"),
    ],
)
def test_a_gpu_that_is_not_there(log, said, unsaid):
    found = first(log)
    assert found.name == "device-index"
    assert said in text(found)
    assert unsaid not in text(found)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train.py: error: unrecognized arguments: --local-rank=0", "since PyTorch 2"),
        ("train.py: error: unrecognized arguments: --local_rank=0", "before PyTorch 2, and deepspeed"),
        ("ERROR: Could not consume arg: --local_rank=0", "launcher has added"),
        ("Error: No such option: --local-rank", "since PyTorch 2"),
        ("FATAL Flags parsing error: Unknown command line flag 'local_rank'.", "launcher has added"),
        (
            "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--local-rank=0']",
            "since PyTorch 2",
        ),
        ("train.py: error: the following arguments are required: --local_rank", "launcher does not give"),
        ("train.py: error: unrecognized arguments: --nproc_per_node=4", "an option of its launcher"),
        ("train.py: error: unrecognized arguments: --rdzv_backend=c10d", "an option of its launcher"),
        ("ipykernel_launcher.py: error: unrecognized arguments: -f /u/kernel-1.json", "notebook's kernel"),
        ("train.py: error: unrecognized arguments: --epoch 3", "An option is misspelt"),
        ("train.py: error: argument --epochs: invalid int value: 'x'", "An option is misspelt"),
    ],
)
def test_whose_argument_it_was(line, said):
    found = first(f"usage: train.py [-h] [--local_rank LOCAL_RANK]\n{line}\n")
    assert found.name == "option-refused"
    assert said in text(found)


URL = "HTTPSConnectionPool(host='{}', port=443): Max retries exceeded with url: {}\n"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            URL.format("huggingface.co", "/google/flan-t5-xl/resolve/main/config.json"),
            "hf download google/flan-t5-xl",
        ),
        (URL.format("huggingface.co", "/api/datasets/a/b/resolve/main/x.parquet"), "--repo-type dataset a/b"),
        (
            "OSError: We couldn't connect to 'https://huggingface.co' to load this file, couldn't find "
            "it in the cached "
            "files and it looks like a/b-c is not the path to a directory\n",
            "hf download a/b-c",
        ),
        ("wandb: Network error (ConnectTimeout), entering retry loop.\n", "WANDB_MODE=offline"),
        ("mlflow.exceptions.MlflowException: API request failed: Max retries exceeded\n", "mlflow"),
        (
            "<urlopen error [Errno 101]> https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz\n",
            "lab fetch cifar10",
        ),
        ("urllib.error.URLError: <urlopen error timed out> train-images-idx3 of MNIST\n", "lab fetch mnist"),
        ("fatal: unable to access 'https://x.org/a.git/': Could not resolve host: x.org\n", "git clone"),
        ("urllib.error.URLError: <urlopen error> https://x.org/models/resnet50-11ad3fa6.pth\n", "TORCH_HOME"),
        (
            "urllib.error.URLError: <urlopen error [Errno 101]> https://x.org/coco.zip\n",
            "fetched on the login node",
        ),
    ],
)
def test_advice_fits_what_was_to_be_downloaded(log, said):
    found = first(log)
    assert found.name == "no-internet"
    assert said in text(found)
    assert ("cifar10" in said) == ("lab fetch cifar10" in text(found))


TRACE = """\
[rank2]: Traceback (most recent call last):
[rank2]:   File "/v/lib/python3.10/site-packages/torchvision/datasets/utils.py", line 141, in download_url
[rank2]:     raise RuntimeError("File not found or corrupted.")
[rank2]: RuntimeError: File not found or corrupted.
"""


def test_the_message_is_quoted_and_no_line_of_source():
    assert first(TRACE).saw.endswith("RuntimeError: File not found or corrupted.")
    assert "raise RuntimeError" in first(TRACE.rpartition("[rank2]: ")[0]).saw  # a log that ends there


def test_colours_are_not_quoted(tmp_path):
    log = tmp_path / "a.log"
    escape = "\x1b"
    log.write_text(f"{escape}[34m{escape}[1mwandb{escape}[0m: [33mNetwork error (ConnectTimeout)[0m, retrying\n")
    assert "wandb: Network error (ConnectTimeout), retrying" in findings(gather(log))[0].saw


OF_A_LIBRARY = """\
Traceback (most recent call last):
  File "/u/train.py", line 64, in <module>
    trainer = L.Trainer(devices=4)
  File "/v/lib/python3.11/site-packages/lightning/fabric/plugins/environments/slurm.py", line 160, in validate
    raise ValueError(
{}
"""


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("ValueError: You set `x=4`, but it is 1. HINT: Set `x=1`.", "library-said"),
        ("MisconfigurationError: no such strategy. Did you mean `ddp`?", "library-said"),
        ("ValueError: the tokenizer has no padding token. Please set it with `pad_token`", "library-said"),
        ("ValueError: You need to call prepare() first", "library-said"),
        ("RuntimeError: Please report this issue to the developers", "unknown"),
        ("RuntimeError: something went wrong", "unknown"),
        ("RuntimeError: CUDA error: initialization error. Please set CUDA_LAUNCH_BLOCKING", "unknown"),
        ("RuntimeError: NCCL error: please make sure that the network works", "unknown"),
    ],
)
def test_a_library_that_says_what_it_wants_is_quoted(message, name):
    found = first(OF_A_LIBRARY.format(message))
    assert found.name == name
    assert message.split(":")[0] in found.saw


def test_lightning_and_slurm_count_differently():
    said = "ValueError: You set `{}` in Lightning, but the number of {} configured in SLURM `{}` does not match."
    per_node = first(OF_A_LIBRARY.format(said.format("devices=4", "tasks per node", "--ntasks-per-node=1")))
    assert (per_node.name, "devices=4" in per_node.saw) == ("tasks-differ", True)
    nodes = first(OF_A_LIBRARY.format(said.format("num_nodes=2", "nodes", "--nodes=1")))
    assert (nodes.name, "--nodes=1" in nodes.saw) == ("tasks-differ", True)


@pytest.mark.parametrize(
    ("where", "node"),
    [
        ("--- epilog: nvidia-smi on gpu33 ---\n", "gpu33"),
        ("Running on host titan05\n", "titan05"),
        ("SLURM_JOB_NODELIST=n07 \n", "n07"),
        ("hostname: n07\n", "n07"),
        ("Running on host n07\nRunning on host n08\n", "NODE"),
        ("training on cifar10\n", "NODE"),
    ],
)
def test_the_one_node_that_a_log_names_is_left_out(where, node):
    found = first(f"{where}Unable to determine the device handle for GPU3: GPU is lost.\n")
    assert f"--exclude={node} " in text(found)


@pytest.mark.parametrize(
    ("log", "said", "unsaid"),
    [
        (
            "RuntimeError: PytorchStreamWriter failed writing file data/1: file write failed\n"
            "OSError: [Errno 122] Disk quota exceeded\n",
            "written: OSError: [Errno 122] Disk quota exceeded",
            "PytorchStreamWriter",
        ),
        (
            "OSError: [Errno 28] No space left on device\ntmpfs            63G   63G     0 100% /tmp\n",
            "TMPDIR=$SCRATCH",
            "quota",
        ),
        (
            "OSError: [Errno 28] No space left on device\n/dev/sda1   63G   63G     0 100% /scratch\n",
            "df, in the log, names /scratch",
            "TMPDIR",
        ),
        (
            "srun: error: Unable to create step for job 5: More processors requested than permitted\n",
            "beyond those of #SBATCH",
            "partition",
        ),
        (
            "a.py:204: The `srun` command is available on your system but is not used. HINT: prepend it\n"
            "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 4/8 "
            "clients joined.\n",
            "without srun",
            "firewall",
        ),
        (
            "[rank1]: RuntimeError: Expected to have finished reduction in the prior iteration before "
            "starting one.\n"
            "[rank1]: Parameter indices which did not receive grad for rank 1: 158 159\n",
            "DDP of rank 1 still waits for gradients of the step before, those of the parameters with the "
            "numbers 158 159",
            "left out",
        ),
        ("srun: error: Node failure on c24-11\n", "failed. It is c24-11", "your program did wrong"),
        (
            "FATAL: container creation failed: mount source /scratch/p1/imagenet doesn't exist\n",
            "ls -d /scratch/p1/imagenet",
            "edf.toml name a path that this node does not have.",
        ),
    ],
)
def test_what_the_log_says_more_is_used(log, said, unsaid):
    found = text(first(log))
    assert said in found
    assert unsaid not in found


def test_what_follows_from_the_cause_is_not_told_beside_it():
    threads = (
        "OpenBLAS blas_thread_init: pthread_create failed for thread 5 of 64: Resource temporarily unavailable\n"
    )
    evidence = Evidence(name="x", log=f"{threads}KeyboardInterrupt\n")
    assert [one.name for one in findings(evidence)] == ["too-many-threads"]
