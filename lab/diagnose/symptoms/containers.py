"""Apptainer, Singularity, and the container engines inside of Slurm."""

from lab.diagnose.symptoms.entry import symptom

CONTAINERS = (
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
        r"|manifest))"
        r"|FATAL: .{0,100}while (?:pulling|making image).{0,300}(?:dial tcp|TLS|timeout|denied|connection)",
        "The container's image could not be fetched: {line}",
        "The registry refused (too many requests, no login, no such tag), or the node has no internet.",
        "apptainer build env/project.sif env/project.def    # once, where there is internet; then "
        "LAB_ENV=env/project.sif",
        source="github.com/apptainer/apptainer/issues",
    ),
    symptom(
        "container-disk",
        0,
        r"(?i:(?:FATAL|while (?:building|extracting|making image|unpacking)"
        r"|unsquashfs).{0,300}no space left on device"
        r"|(?:Write on output file|pyxis: .{0,80}|enroot.{0,80}|mksquashfs.{0,80})failed.{0,80}no space left)",
        "There was no room to build or unpack the container: {line}",
        "Apptainer unpacks below /tmp and keeps a cache in your home: one of them is full.",
        "export APPTAINER_TMPDIR=$SCRATCH APPTAINER_CACHEDIR=$SCRATCH ; df -h /tmp ~",
        source="apptainer.org/docs/user/main/build_env.html",
    ),
    symptom(
        "container-without-driver",
        1,
        r"Could not find any nv files on this host|nv files.{0,60}not found|nvidia-container-cli: .{0,200}",
        "The container got no GPU driver: {line}",
        "--nv brings the host's driver in, and this host has none: a login node, or a node without GPUs.",
        "srun --gpus=1 nvidia-smi",
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
        r"mount source .{0,200}(?:doesn't exist|does not exist)|FATAL: .{0,200}(?:mount"
        r"|bind).{0,200}no such file or directory",
        "A folder that the container is to see is not there on the node: {line}",
        "--bind, APPTAINER_BIND or the mounts of edf.toml name a path that this node does not have.",
        "echo $APPTAINER_BIND $SINGULARITY_BIND    # and the mounts in edf.toml",
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
        source="github.com/apptainer/apptainer/issues/778",
    ),
)
