"""The installation: Python, PyTorch, libraries that do not fit each other."""

import sys

from lab.diagnose.symptoms.containers import HOSTS_IN_A_CONTAINER
from lab.diagnose.symptoms.entry import Case, case, symptom

# What a user's file may hide; of two of his own that import each other the same is said.
_PYTHONS = "|".join(
    (*sorted(sys.stdlib_module_names), "torch(?:vision)?", "numpy", "datasets", "PIL", "yaml", "wandb")
)
_OURS = "main|train|data|model|distributed_utils|ddp_utils|fsdp_utils|fast|from_scratch|solutions|exercises"

# Which library a missing symbol is of: its name begins as that library's do.
_LOOK = "echo $LD_LIBRARY_PATH $LD_PRELOAD ; module list    # in the job"
_WITHOUT = "env -u LD_LIBRARY_PATH -u LD_PRELOAD {rerun}    # only what PyTorch brings along"
_ANOTHER = (
    "Another {} is loaded than the one PyTorch was built with: a module's, one in LD_LIBRARY_PATH, the system's "
    "own, or "
    "that of a second wheel (-cu12 beside -cu13)."
)


def _two_wheels(library: str) -> Case:
    """That pip list, in the log, shows it twice."""
    return case(
        rf"^nvidia-{library}-cu(?P<one>\d\d)\s+\S+\n(?:.*\n){{0,30}}?nvidia-{library}-cu(?!(?P=one))(?P<two>\d\d)\s",
        f"Two wheels hold it, nvidia-{library}-cu{{one}} and nvidia-{library}-cu{{two}}, and write to one "
        f"folder: the one "
        "installed last is loaded, whichever PyTorch was built for.",
        f"python -m pip uninstall nvidia-{library}-cu12 nvidia-{library}-cu13    # both; then only that of "
        f"torch's CUDA:",
        "python -m pip install --force-reinstall torch    # or a fresh environment",
        anywhere=True,
    )


_SYMBOL = r"(?:undefined symbol: |relocation error: .{{0,200}}symbol )_{{0,2}}(?:{})"


def _of(begins: str, means: str, *do: str, also: str = "") -> Case:
    """Args: also: other words that name this library."""
    return case(_SYMBOL.format(begins) + (f"|{also}" if also else ""), means, *do)


OF_A_LIBRARY = (
    _two_wheels("nccl"),
    _two_wheels("cudnn"),
    _of(
        r"iJIT_|mkl_|MKL_|cblas_",
        "It is a symbol of MKL's: conda has put a newer or older MKL beside this PyTorch than it was built with "
        "(2024.1 "
        "and later lack iJIT_NotifyEvent).",
        "conda install 'mkl<2024.1'    # or PyTorch from pip, in a fresh environment",
        "python -m pip list ; conda list mkl",
    ),
    _of(
        r"cudnn\w+",
        _ANOTHER.format("cuDNN"),
        _LOOK,
        "python -c 'import torch; print(torch.backends.cudnn.version())' ; python -m pip list | grep -i cudnn",
        "LD_DEBUG=libs python exercises/main.py 2>&1 | grep 'init.*cudnn'    # from which folders? one that "
        "lies elsewhere "
        "than the others is the system's",
        _WITHOUT,
        also=r"CUDNN_STATUS_\w*VERSION_MISMATCH|cuDNN version incompatibility",
    ),
    _of(
        r"p?nccl\w+",
        _ANOTHER.format("NCCL"),
        _LOOK,
        "python -c 'import torch; print(torch.cuda.nccl.version())' ; python -m pip list | grep -i nccl",
        _WITHOUT,
        also=r"Mismatched NCCL version|NCCL version mismatch",
    ),
    _of(
        r"(?:nvJitLink|cusparse|cublas|cusolver|cufft|curand|nvrtc|cupti|nvtx)\w*",
        "It is a symbol of one of CUDA's libraries: a CUDA module or toolkit of another version hides those that "
        "PyTorch brings along.",
        _LOOK,
        "python -m pip list | grep -i nvidia    # all of one version of CUDA?",
        _WITHOUT,
    ),
    _of(r"(?:cuda[A-Z]|cu[A-Z])\w*", _ANOTHER.format("CUDA, or an older driver,"), _LOOK, "nvidia-smi", _WITHOUT),
    _of(
        r"(?:ZNK?(?:\d+|S\w)?(?:2at|3c10|5torch|6caffe2)|ZN(?:2at|3c10|5torch|6caffe2)|ZNK(?:2at|3c10|5torch)"
        r"|THP|aoti_)",
        "It is a symbol of PyTorch's own: a package with compiled parts (flash-attn, apex, torchvision, "
        "xformers) was "
        "built for another version of it.",
        "python -m pip list | grep -i -E 'torch|flash|apex|xformers'",
        "python -m pip install --no-build-isolation --force-reinstall --no-deps PACKAGE    # that package, built "
        "anew",
    ),
    _of(
        r"(?:GOMP|kmpc|omp|kmp)_\w+",
        "It is a symbol of OpenMP's: conda's or a compiler's libgomp, libiomp5 or libomp is found instead of the "
        "other.",
        _LOOK,
        "MKL_THREADING_LAYER=GNU {rerun}",
    ),
    _of(
        r"(?:ucp|uct|ucs|ucm|P?MPI|ompi|opal|PMI\w?|fi|ibv|mlx5|nccl_net)_\w+",
        "It is a symbol of MPI's or of the network's libraries (UCX, libfabric, rdma-core): modules of different "
        "releases are loaded together. PyTorch with NCCL needs no MPI.",
        _LOOK,
        "module purge ; {rerun}",
    ),
    _of(
        r"(?:Py[A-Z_]|ffi_)\w*",
        "It is a symbol of Python's: the module was compiled for another version of Python than the one that "
        "runs.",
        "python --version ; python -m pip --version    # of one Python, and in the environment?",
        "python -m pip install --force-reinstall --no-deps PACKAGE    # the one whose file the line names",
    ),
)

SOFTWARE = (
    symptom(
        "no-torch",
        0,
        r"ModuleNotFoundError: No module named '(?P<module>torch|torchvision|lab|numpy)['.]"
        r"|run\.sh: no Python with torch",
        "Python did not find PyTorch or the lab: {line}",
        "The job ran with another Python than the one in which the lab is installed.",
        "source .venv/bin/activate    # then submit again: run.sh takes the active Python",
    ),
    symptom(
        "module-missing",
        1,
        rf"ModuleNotFoundError: No module named '(?!(?:{_OURS}|torch|torchvision|lab"
        rf"|numpy)['.])(?P<module>[\w.]+)'",
        "Python did not find the module {module}.",
        "It is not installed in the Python that the job ran with, or the job ran with another Python than yours.",
        "python -m pip list    # with the job's Python: LAB_ENV names it",
        source="docs.python.org/3/library/exceptions.html",
    ),
    symptom(
        "library-too-old",
        1,
        r"version \W?(?:GLIBC|GLIBCXX|CXXABI|GCC)_[\d.]+\W? not found",
        "A library of the system is older than the program needs: {line}",
        "PyTorch, or a package beside it, was built for a newer system than the node has; or environments are "
        "mixed.",
        "ldd --version | head -n1    # the node's glibc",
        "LAB_ENV=env/project.sif {rerun}    # a container brings its own",
        cases=(HOSTS_IN_A_CONTAINER,),
        source="github.com/pytorch/pytorch/issues/150724",
    ),
    symptom(
        "mixed-libraries",
        1,
        r"undefined symbol: \w+|symbol lookup error|relocation error|with link time reference"
        r"|\.so\S{0,20}: version \W?(?!GLIBC|CXXABI|GCC)[\w.]{1,60}\W? not found"
        r"|Mismatched NCCL version|NCCL version mismatch"
        r"|cuDNN version incompatibility|CUDNN_STATUS_\w*VERSION_MISMATCH",
        "Two libraries do not fit each other: {line}",
        "Another NCCL, CUDA or cuDNN is loaded than the one PyTorch was built with: a module, or LD_LIBRARY_PATH.",
        "echo $LD_LIBRARY_PATH ; module list    # in the job",
        "env -u LD_LIBRARY_PATH {rerun}",
        cases=OF_A_LIBRARY,
        source="github.com/pytorch/pytorch/issues/119932",
    ),
    symptom(
        "static-tls",
        0,
        r"(?P<what>lib[\w.+-]{1,80}\.so[\w.]{0,20}): cannot allocate memory in static TLS block",
        "The library {what} came too late to be loaded: {line}",
        "No memory is short: the place for such libraries (static TLS, mostly on ARM) is given away in "
        "the order "
        "of "
        "imports, and another package with its own OpenMP (sklearn, cv2) came before torch.",
        "grep -n import exercises/main.py exercises/data.py    # import torch first, before sklearn, cv2, scipy",
        'LD_PRELOAD=$(python -c \'import glob, sysconfig; print(*glob.glob(sysconfig.get_paths()["purelib"] + '
        '"/torch.libs/libgomp*"))\') {rerun}',
        source="github.com/NVIDIA-AI-IOT/torch2trt/issues/563",
    ),
    symptom(
        "library-not-loaded",
        1,
        r"(?P<what>lib[\w.+-]{1,80}\.so[\w.]{0,20}): (?:cannot open shared object file|failed to map segment"
        r"|cannot enable executable stack|invalid ELF header|wrong ELF class)",
        "The library {what} could not be loaded: {line}",
        "libcuda.so.1 belongs to the driver: a login node has none. Others belong to a module or the environment.",
        "srun --gpus=1 nvidia-smi    # libcuda.so.1: is there a GPU on the node at all?",
        "module list ; echo $LD_LIBRARY_PATH",
        unless=r"NCCL INFO|NET/Plugin",  # plugins that are not there, as on most machines
        source="github.com/facebookresearch/pytorch3d/issues/1563",
    ),
    symptom(
        "mixed-versions",
        1,
        r"operator torchvision::\w+ does not exist|Couldn't load custom C\+\+ ops"
        r"|torchvision (?:were|was) compiled with different CUDA|numpy\.dtype size changed"
        r"|module that was compiled using NumPy 1\.x cannot be run|_ARRAY_API not found",
        "Two Python packages do not fit each other: {line}",
        "They were installed at different times: torch with torchvision, or NumPy 2 below what was built for "
        "NumPy 1.",
        "python -m pip check    # with the job's Python",
        "python -m pip install --upgrade torch torchvision    # both at once, in a new environment",
        cases=(
            case(
                r"/\.local/lib/python[\d.]+/site-packages/(?P<name>\w+)/",
                "{name} comes from ~/.local, where pip install --user puts it, before that of the "
                "environment: it "
                "was made for another version.",
                "PYTHONNOUSERSITE=1 {rerun}    # without ~/.local",
                "python -m pip list --user    # what is there; pip uninstall {name} takes it away",
                anywhere=True,
            ),
        ),
        source="github.com/pytorch/vision/issues/8100",
    ),
    symptom(
        "shadowed-module",
        0,
        rf"partially initialized module '(?P<module>{_PYTHONS})'|consider renaming '(?P<file>[^']{1, 200})'",
        "A file of yours hides a module of Python's: {line}",
        "Python looks in the program's own folder first: a file there called torch.py or random.py is what it "
        "imports.",
        "ls exercises/*.py    # is one named as a module is? rename it",
        source="docs.python.org/3/tutorial/modules.html",
    ),
    symptom(
        "no-libuv",
        1,
        r"use_libuv was requested but PyTorch was buil[dt] without libuv",
        "This build of PyTorch cannot open the store in which the ranks meet: {line}",
        "It was built without libuv, as those for Windows are; the store can do without.",
        "USE_LIBUV=0 {rerun}",
        source="github.com/pytorch/pytorch/pull/148266",
    ),
    symptom(
        "illegal-instruction",
        1,
        r"Illegal instruction|SIGILL",
        "{rank}met an instruction that this processor does not have.",
        "The program was built for a newer or another processor than the node has.",
        "srun --ntasks=1 lscpu | head -n 20    # on the node: which processor?",
        source="github.com/pytorch/pytorch/issues/29097",
    ),
    symptom(
        "two-openmp",
        1,
        r"OMP: Error #15|MKL_THREADING_LAYER=INTEL is incompatible",
        "Two OpenMP libraries are loaded: {line}",
        "conda's MKL and PyTorch's libgomp are in one process.",
        "MKL_THREADING_LAYER=GNU {rerun}",
        source="github.com/pytorch/pytorch/issues/37377",
    ),
    symptom(
        "toolkit-mismatch",
        1,
        r"[Tt]he detected CUDA version .{0,40}mismatches the version that was used to compile"
        r"|CUDA_HOME environment variable is not set"
        r"|unsupported GNU version|gcc versions later than \d+ are not supported"
        r"|ptxas fatal\s*: Unsupported \.version",
        "What compiles CUDA code here does not fit this build of PyTorch: {line}",
        "A package compiles itself with the CUDA toolkit that it finds (nvcc, ptxas, gcc): that must be of "
        "PyTorch's "
        "own version of CUDA.",
        "python -c 'import torch; print(torch.version.cuda)' ; nvcc --version    # these two must be alike",
        "module avail cuda    # or a package that is compiled already, for this PyTorch",
        source="github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py",
    ),
    symptom(
        "compiler-missing",
        1,
        r"Failed to find C compiler|InvalidCxxCompiler|No working C\+\+ compiler found"
        r"|fatal error: Python\.h: No such file",
        "torch.compile found no compiler: {line}",
        "It makes and compiles C++ and Triton code, for which the node needs a compiler and Python's headers.",
        "module load gcc    # or CC= names one",
        cases=(
            case(
                r"Python\.h: No such file",
                "It compiles small modules for Python, and the node has a Python without its headers "
                "(python3-dev, python3-devel): on the login node they may well be there.",
                "srun --ntasks=1 python -c 'import sysconfig; print(sysconfig.get_path(\"include\"))'    # is "
                "Python.h "
                "in this folder?",
                "LAB_ENV=~/venvs/torch {rerun}    # of a Python with headers: a module's, conda's, uv's; or "
                "without "
                "--compile",
                saw="torch.compile did not find Python's headers: {line}",
            ),
        ),
        source="docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",
    ),
)
