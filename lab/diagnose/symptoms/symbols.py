"""Which library a missing symbol is of: its name begins as that library's do."""

from lab.diagnose.symptoms.entry import Case, case

_LOOK = "echo $LD_LIBRARY_PATH $LD_PRELOAD ; module list    # in the job"
_WITHOUT = "env -u LD_LIBRARY_PATH -u LD_PRELOAD {rerun}    # only what PyTorch brings along"
_ANOTHER = "Another {} is loaded than the one PyTorch was built with: a module's, or one in LD_LIBRARY_PATH."

_SYMBOL = r"(?:undefined symbol: |relocation error: .{{0,200}}symbol )_{{0,2}}(?:{})"


def _of(begins: str, means: str, *do: str, also: str = "") -> Case:
    """Args: also: other words that name this library."""
    return case(_SYMBOL.format(begins) + (f"|{also}" if also else ""), means, *do)


OF_A_LIBRARY = (
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
