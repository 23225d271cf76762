"""Apptainer, Singularity, and the container engines inside of Slurm."""

from lab.diagnose.symptoms.entry import case, symptom

_ENROOT = r"pyxis|enroot"
_DOCKER = r"(?P<tool>podman|docker)(?:\b|-)"
_SINGULARITY = r"\bsingularity\b|SINGULARITY_"

# Of a GPU that a container had.
GPU_CLOSED = symptom(
    "gpu-closed",
    1,
    r"Failed to initialize NVML: (?:Unknown Error|Insufficient Permissions)",
    "{rank}cannot open the GPUs (any more), though their driver is there: {line}",
    "A container loses its GPUs when the host's systemd is reloaded (daemon-reload): what has them "
    "open runs "
    "on, "
    "each new process finds none. If nothing ran on a GPU before, it was started without them.",
    "{rerun}    # a new job has a new container; one that ran to its end need not run again",
    "ls -l /dev/nvidia* ; nvidia-smi -L    # in the container; administrators: /dev/char links, or cgroupfs",
    source="github.com/NVIDIA/nvidia-container-toolkit/issues/48",
)

# Of a library that Apptainer's --nv, a mount or a path has brought in from the host.
HOSTS_IN_A_CONTAINER = case(
    r"required by (?P<name>/(?:\.singularity\.d|host\w*|rootfs|opt/cray|run/opengl-driver"
    r"|usr/local/nvidia)/[^)\s]{1,160})",
    "{name} is the host's own, which the container was given (--nv, --rocm, a mount, LD_LIBRARY_PATH): it was "
    "built for the host's newer glibc, and the image has an older one. The host and PyTorch are not to blame.",
    "apptainer exec IMAGE.sif ldd --version | head -n1 ; ldd --version | head -n1    # the image's glibc, and "
    "the host's",
    "grep -n -E '^From|FROM' *.def Dockerfile    # an image of a system as new as the host's; or without what "
    "needs {name}",
    saw="A library of the host's needs a newer system than the container has: {line}",
)

CONTAINERS = (
    symptom(
        "image-name",
        0,
        r"pyxis: importing docker image: (?:docker://)?(?P<name>[^/\s]\S{0,200}\.(?:sqsh|squashfs|sif|img))\s*$"
        r"|\[ERROR\] URL \S{1,200}/(?P<file>[^/\s]{1,100}\.(?:sqsh|sif))\S{0,60} returned error",
        "The container's image, {name}{file}, was looked for in a registry: its name was not taken for a file's.",
        "To pyxis only a name that begins with / or ./ is a file: all others are those of images in a registry.",
        "srun --ntasks=1 ls -l {name}{file}    # its whole path, with / or ./ before it: for "
        "--container-image or "
        "image= in edf.toml",
        source="github.com/NVIDIA/pyxis/issues/127",
    ),
    symptom(
        "image-missing",
        0,
        r"FATAL: .{0,200}(?:could not open image|image .{0,100}not found|\.sif: no such file)"
        r"|(?:--environment|\bEDF\b|edf\.toml|environment definition) .{0,100}(?:not found|does not exist)",
        "The container's image is not there: {line}",
        "Its path is wrong, or not one that the node sees.",
        "srun --ntasks=1 ls -l $LAB_ENV",
        source="apptainer.org/docs/user/main/quick_start.html",
    ),
    symptom(
        "image-not-pulled",
        0,
        r"(?:toomanyrequests|unauthorized: |manifest unknown|pull access denied|failed to get (?:checksum"
        r"|manifest))|\[ERROR\] URL \S{1,300} returned error code: (?:4|5)\d\d"
        r"|Error response from daemon: .{0,80}(?:denied|not found|unauthorized|manifest)"
        r"|FATAL: .{0,100}while (?:pulling|making image).{0,300}(?:dial tcp|TLS|timeout|denied|connection)",
        "The container's image could not be fetched: {line}",
        "The registry refused (too many requests, no login, no such tag), or the node has no internet.",
        "apptainer build env/project.sif env/project.def    # once, where there is internet; then "
        "LAB_ENV=env/project.sif",
        cases=(
            case(
                rf"(?:{_ENROOT}).{{0,300}}",
                "The registry refused (a private image and no login, no such name or tag, too many "
                "requests), or "
                "the "
                "node has no internet. 'Authentication succeeded' may be that of nobody in particular.",
                "enroot import -o $SCRATCH/image.sqsh docker://REGISTRY#NAME:TAG    # once, where there is "
                "internet",
                "cat ~/.config/enroot/.credentials    # machine REGISTRY login USER password TOKEN: is it there?",
                anywhere=True,
            ),
            case(
                _DOCKER,
                "The registry refused (too many requests, no login, no such tag), or the node has no internet.",
                "{tool} login REGISTRY ; {tool} pull NAME:TAG    # once, where there is internet",
            ),
        ),
        source="github.com/apptainer/apptainer/issues",
    ),
    symptom(
        "container-disk",
        0,
        r"(?i:(?:FATAL|while (?:building|extracting|making image|unpacking)"
        r"|unsquashfs).{0,300}no space left on device"
        r"|(?:Write on output file |pyxis: .{0,80}|enroot.{0,80}|mksquashfs.{0,80})failed.{0,80}"
        r"(?:no space left|disk quota exceeded)"
        r"|(?:pyxis|enroot|podman|docker|buildah).{0,300}no space left on device)",
        "There was no room to build or unpack the container: {line}",
        "Apptainer unpacks below /tmp and keeps a cache in your home: one of them is full.",
        "export APPTAINER_TMPDIR=$SCRATCH APPTAINER_CACHEDIR=$SCRATCH ; df -h /tmp ~",
        cases=(
            case(
                r"squashfuse not found|Converting SIF file to temporary sandbox",
                "Apptainer finds no squashfuse, with which it would mount the image: each start unpacks all of it "
                "below /tmp, and each rank does so by itself. A quota of /tmp may be used up where df shows "
                "room.",
                "srun --ntasks=1 which squashfuse    # your administrators can install it",
                "apptainer build --sandbox $SCRATCH/image image.sif    # or unpacked once: then exec that folder",
                "export APPTAINER_TMPDIR=$SCRATCH ; df -h /tmp ; quota -s",
                anywhere=True,
            ),
            case(
                _ENROOT,
                "enroot keeps the layers of images in a cache and unpacks them on the node: one of its folders "
                "there "
                "is full.",
                "enroot import -o $SCRATCH/image.sqsh docker://REGISTRY#NAME:TAG    # once; then name that file",
                "export ENROOT_CACHE_PATH=$SCRATCH ENROOT_TEMP_PATH=$SCRATCH ENROOT_DATA_PATH=$SCRATCH",
            ),
            case(
                _DOCKER,
                "{tool} keeps its images and layers in one folder of the machine, which is full.",
                "{tool} system df ; {tool} image prune",
            ),
            case(
                _SINGULARITY,
                "Singularity unpacks below /tmp and keeps a cache in your home: one of them is full.",
                "export SINGULARITY_TMPDIR=$SCRATCH SINGULARITY_CACHEDIR=$SCRATCH ; df -h /tmp ~",
            ),
        ),
        unless=r"user namespace|inotify",  # a limit of the kernel's, no disk
        source="apptainer.org/docs/user/main/build_env.html",
    ),
    symptom(
        "image-needs-driver",
        0,
        r"requirement error: .{0,60}unsatisfied condition: (?P<what>[a-z]+ ?[<>=]+ ?[\d.]+)"
        r"|please update your driver to a newer version, or use an earlier cuda container",
        "The container's image asks for a newer CUDA ({what}) than the node's driver knows: {line}",
        "The hook that brings the driver into the container looks at what the image asks for, and refuses.",
        "nvidia-smi    # CUDA Version: the newest that the driver knows; take an image not above it",
        "NVIDIA_DISABLE_REQUIRE=1 {rerun}    # skips the look, at your own risk: minor versions often do",
        source="github.com/NVIDIA/nvidia-docker/issues/931",
    ),
    symptom(
        "container-without-driver",
        1,
        r"Could not find any nv files on this host|nv files.{0,60}not found"
        r"|nvidia-container-cli: (?!mount error).{0,200}",
        "The container got no GPU driver: {line}",
        "--nv brings the host's driver in, and this host has none: a login node, or a node without GPUs.",
        "srun --gpus=1 nvidia-smi",
        cases=(
            case(
                r"unknown device|device error",
                "NVIDIA_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES names a GPU that this node does not have.",
                "echo $NVIDIA_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES ; nvidia-smi -L    # in the job, outside of "
                "it",
            ),
        ),
        source="apptainer.org/docs/user/main/gpu.html",
    ),
    symptom(
        "container-architecture",
        0,
        r"image's architecture .{0,40}could not run on the host's|does not match the detected host platform",
        "The container is for another processor: {line}",
        "x86_64 and aarch64 (Grace, Graviton) need images of their own.",
        "uname -m    # on the node; build the image there",
        source="github.com/apptainer/apptainer",
    ),
    symptom(
        "bind-missing",
        0,
        r"mount source .{0,200}(?:doesn't exist|does not exist)|enroot-mount: failed to mount: .{1,200}"
        r"|FATAL: .{0,200}(?:mount"
        r"|bind).{0,200}no such file or directory",
        "A folder that the container is to see is not there on the node: {line}",
        "--bind, APPTAINER_BIND or the mounts of edf.toml name a path that this node does not have.",
        "echo $APPTAINER_BIND $SINGULARITY_BIND    # and the mounts in edf.toml",
        cases=(
            case(
                r"mount source (?P<file>/\S+) (?:doesn't|does not) exist",
                "--bind, APPTAINER_BIND or the mounts of edf.toml name a path that this node does not "
                "have: deleted, "
                "misspelt, or on a file system that is not mounted there.",
                "srun --ntasks-per-node=1 ls -d {file}    # outside of the container: is it there, on each node?",
                "echo $APPTAINER_BIND $SINGULARITY_BIND    # and the mounts in edf.toml",
            ),
            case(
                _ENROOT,
                "--container-mounts or the mounts of edf.toml name a path that this node does not have, or that "
                "may "
                "not be entered there.",
                "grep -n -A 5 mounts edf.toml    # each path: is it there, and yours, on the node?",
            ),
        ),
        source="apptainer.org/docs/user/main/bind_paths_and_mounts.html",
    ),
    symptom(
        "container-not-started",
        1,
        r"^(?:\d+: )?FATAL:  +\S|squashfuse_ll|fusermount3?: "
        r"|Failed to create (?:user namespace|container process)"
        r"|Failed invoking the \w+ namespace|exec /\.singularity\.d/\S{1,80} failed"
        r"|not a squashfs root filesystem|image format not recognized|pyxis: (?!imported|importing|creating"
        r"|starting)"
        r"|enroot-\w+: .{0,40}(?:ERROR|[Ff]ailed)|\[ERROR\] .{0,80}(?:enroot|squash)",
        "The container was not started: {line}",
        "The node does not let you mount the image (user namespaces, FUSE), the image is damaged, or the "
        "container's program is not in order there.",
        "apptainer exec $LAB_ENV true    # on the node: with --debug it says more",
        "apptainer build --sandbox env/project env/project.sif    # a folder needs no mount",
        cases=(
            case(
                r"user namespace",
                "The node does not let users make namespaces, or too many are in use: a setting of its kernel, "
                "for "
                "the administrators.",
                "srun --ntasks=1 cat /proc/sys/user/max_user_namespaces    # on the node: 0, or all in use?",
                "sbatch --exclude=NODE run.sh    # without that node; tell your administrators",
            ),
            case(
                _ENROOT,
                "pyxis asks enroot to unpack and mount the image on the node: the lines of enroot's log, below "
                "this "
                "one, say what it could not do.",
                "grep -n -A 5 'enroot log file' {log}",
                "srun --ntasks=1 --container-image=PATH true    # with nothing but the image: does that start?",
            ),
            case(
                _DOCKER,
                "{tool} could not start it: the image, its program or the rights to the GPU are not in order.",
                "{tool} run --rm IMAGE true    # on the node, with nothing else",
            ),
            case(
                _SINGULARITY,
                "The node does not let you mount the image (user namespaces, FUSE), the image is damaged, "
                "or the "
                "container's program is not in order there.",
                "singularity exec $LAB_ENV true    # on the node: with --debug it says more",
            ),
        ),
        source="github.com/apptainer/apptainer/issues/778",
    ),
)
