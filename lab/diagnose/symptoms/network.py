"""How the ranks find and reach each other: names, ports, interfaces, InfiniBand."""

from lab.diagnose.symptoms.downloads import INTERNET
from lab.diagnose.symptoms.entry import case, symptom
from lab.diagnose.symptoms.infiniband import INFINIBAND, NO_WAY_OUT

_RDMA = r"ibv_\w|NET/IB|NET/OFI|mlx\d_"  # what these lines tell of uses no sockets

NETWORK = (
    symptom(
        "port-in-use",
        1,
        r"EADDRINUSE|[Aa]ddress already in use",
        "The port where the ranks meet is taken: {line}",
        "Another job on the same node meets there, or one that was left over from before.",
        "torchrun --standalone --nproc-per-node 2 exercises/main.py   # on one node: chooses a free port by "
        "itself",
        "torchrun --master-port $((10000 + RANDOM % 20000)) exercises/main.py   # it does not read MASTER_PORT; "
        "run.sh makes one of the job's number",
        "ps -u $USER -o pid,etime,args | grep main.py  # on that node: is an old one still there?",
    ),
    symptom(
        "meeting-point-elsewhere",
        1,
        r"Cannot assign requested address|EADDRNOTAVAIL|errno: 99\b"
        r"|client socket has timed out .{0,80}connect to \(?(?:127\.\d+\.\d+\.\d+|localhost)\b",
        "Rank 0 is not at the address where the ranks are to meet: {line}",
        "MASTER_ADDR or --rdzv-endpoint names another machine than the one of rank 0; 127.0.0.1 and "
        "localhost are "
        "on each machine that machine itself.",
        "echo $MASTER_ADDR ; hostname ; ip -br addr    # on the node of rank 0",
        "sbatch run.sh   # meets on the job's first node",
        unless=_RDMA,
        source="docs.pytorch.org/docs/stable/elastic/run.html",
    ),
    symptom(
        "nccl-interface",
        1,
        r"no socket interfaces? found|connecting to address\s{1,3}\S* ?with family \d+ is neither"
        r"|No interface found in the same subnet"
        r"|NCCL WARN .{0,80}[Nn]o (?:usable )?(?:network )?interface",
        "NCCL found no network interface that it can use: {line}",
        "NCCL_SOCKET_IFNAME names one that this node does not have or that has no address, or all were left out.",
        "srun --ntasks-per-node=1 ip -br addr    # which are there?",
        "NCCL_SOCKET_IFNAME=^lo,docker sbatch run.sh             # all but these; or unset it",
        cases=(
            case(
                r"NCCL_SOCKET_IFNAME(?: set (?:by environment )?to |[= ]{1,3})(?P<name>[\w=^,.-]{1,60})",
                "NCCL_SOCKET_IFNAME is {name}: of that name this node has no interface, or none with an address.",
                "grep -n NCCL_SOCKET_IFNAME *.sh ~/.bashrc    # where is it set? take it out, or name one of "
                "the next",
                "srun --ntasks-per-node=1 ip -br addr    # which are there?",
                anywhere=True,
            ),
        ),
        source="github.com/NVIDIA/nccl/issues/1837",
    ),
    symptom(
        "gloo-interface",
        1,
        r"[Uu]nable to find (?:address|interface) for: |unsupported gloo device"
        r"|Unable to resolve hostname to a \(?local\)? address"
        r"|ifa != nullptr|interface or hostname can't be empty",
        "gloo found no network interface that it can use: {line}",
        "GLOO_SOCKET_IFNAME names one that this node does not have, or the node's own name is not one of its "
        "addresses.",
        "srun --ntasks-per-node=1 ip -br addr    # which are there?",
        "GLOO_SOCKET_IFNAME=eth0 sbatch run.sh    # the one that joins the nodes; or unset it",
        source="docs.pytorch.org/docs/stable/distributed.html",
    ),
    symptom(
        "gloo-mesh",
        4,  # it may follow from a rank that has ended before
        r"connectFullMesh failed|gloo/transport/tcp/\w+\.cc:\d+\] connect \[",
        "gloo's ranks cannot reach each other: {line}",
        "The node's name leads to an address that the others cannot reach (127.0.1.1, docker0), or a "
        "firewall is "
        "there.",
        "srun --ntasks-per-node=1 hostname -i    # not 127.0.1.1; and ip -br addr",
        "GLOO_SOCKET_IFNAME=eth0 sbatch run.sh    # the interface that joins the nodes",
        cases=(NO_WAY_OUT,),
        source="github.com/sgl-project/sglang/issues/3226",
    ),
    symptom(
        "host-not-found",
        2,  # behind a download that failed stands the same error
        r"Name or service not known|Temporary failure in name resolution|nodename nor servname|gai error: -?\d+"
        r"|No address associated with hostname",
        "A host's name could not be looked up: {line}",
        "The node does not know the address of the first node, or its own name.",
        "srun getent hosts $(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)",
        "torchrun --standalone --local-addr 127.0.0.1 --nproc-per-node 2 exercises/main.py    # on one machine",
        unless=INTERNET,
    ),
    symptom(
        "host-unreachable",
        2,
        r"No route to host|Network is unreachable|errno: (?:113|101)\b|EHOSTUNREACH|ENETUNREACH",
        "One node cannot reach another: {line}",
        "The chosen interface or address does not lead there, or a firewall keeps them apart.",
        "srun --ntasks-per-node=1 ip -br addr",
        "NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0 sbatch run.sh    # the interface that joins the nodes",
        unless=f"{INTERNET}|{_RDMA}",
        source="docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
    symptom(
        "launched-twice",
        1,
        r"\(world_size=(?P<size>\d{1,7}), (?:worker_count|num_workers_joined)=(?P<joined>\d{1,7})"
        r"|(?P<came>\d{1,7})/(?P<of>\d{1,7}) clients joined",
        "More processes have come to where the ranks meet ({joined}{came}) than the group has ({size}{of}): "
        "{line}",
        "The program was launched more than once: several tasks on a node that each run torchrun, a "
        "second job or "
        "an old one at the same address and port. Then each rank is there twice, and nobody sees the number he "
        "waits for.",
        "srun --ntasks-per-node=1 torchrun exercises/main.py    # one torchrun for each node; "
        "or one task for each GPU, and none",
        "srun bash -c 'echo $(hostname) $SLURM_PROCID $RANK'    # does each rank come once?",
        when=lambda found: int(found["joined"] or found["came"]) > int(found["size"] or found["of"]),
        source="github.com/Lightning-AI/pytorch-lightning/issues/14986",
    ),
    symptom(
        "rank-twice",
        1,
        r"Bootstrap Root : rank \d+ of \d+ ranks has already checked in|rank \d+ .{0,40}already checked in",
        "Two processes say that they are the same rank: {line}",
        "They were numbered twice: by two launchers, by hand on several nodes; or two jobs meet at one address.",
        "srun bash -c 'echo $(hostname) $SLURM_PROCID $RANK'    # does each rank come once?",
        "sbatch run.sh    # numbers the ranks, and meets at a port of the job's own",
        source="github.com/Lightning-AI/pytorch-lightning/issues/14986",
    ),
    symptom(
        "nccl-connect",
        2,
        r"socketPollConnect: connect to \S{1,60} returned"
        r"|NCCL WARN .{0,120}(?:[Cc]onnect(?: to)?\b.{0,120}(?:failed|timed out|refused)|Connection timed out)"
        r"|(?:socketStartConnect|Net ?): Connect to .{0,100} failed",
        "NCCL's ranks cannot connect to each other: {line}",
        "The interface that NCCL chose does not join the nodes, a firewall is there, or the other rank has ended.",
        "srun --ntasks-per-node=1 ip -br addr",
        "NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=eth0 sbatch run.sh    # the interface that joins the nodes",
        cases=(NO_WAY_OUT,),
        unless=rf"No route to host|Network is unreachable|{_RDMA}",
        source="docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    symptom(
        "ranks-missing",
        2,
        r"Timed out after \d+ seconds waiting for clients|Timed out initializing process group"
        r"|connect\(\) timed out\. Original timeout|RendezvousTimeoutError"
        r"|client socket has (?:timed out|failed to connect)"
        r"|, in (?:_create_tcp_store|create_backend)$"  # torchrun has not come to the store yet
        r"|wait timeout after \d+ms, keys: |Socket Timeout$|[Tt]imed out waiting for ncclUniqueId",
        "Not all ranks have come to where they meet: {line}",
        "Some were not started, were told another address or port, or a firewall keeps them out.",
        "grep -c 'rank' {log}                   # how many ranks have said anything?",
        "srun hostname                          # does each node start?",
        "GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0 sbatch run.sh   # the interface that joins the nodes",
        cases=(
            case(
                r"`srun` command is available on your system but is not used",
                "Lightning says it: the program was started in a Slurm job without srun, so it runs on "
                "the first "
                "node only, and the ranks of the others were never started.",
                "srun python train.py    # in the script; --nodes and --ntasks-per-node as num_nodes and devices",
                anywhere=True,
            ),
            case(
                r"errno: (?:113|101)\b(?: - (?P<why>[\w ]+))?|(?P<said>No route to host|Network is unreachable)",
                "One node cannot reach the other ({why}{said}): the network between them, a firewall, or an "
                "address "
                "that is not the one by which the nodes know each other.",
                "srun --ntasks-per-node=1 ping -c 1 $MASTER_ADDR    # in the job: which node gets no answer?",
                "sbatch --exclude=NODE run.sh    # without that node; tell your administrators",
                anywhere=True,
            ),
            case(
                r"rdzv[-_]endpoint\s{0,6}[ =:] ?(?P<name>\d{1,3}(?:\.\d{1,3}){3})\b(?:.*\n){0,200}?.*errno: 111\b",
                "The node was reached, but nobody listened there. torchrun opens the store only where it takes "
                "the "
                "endpoint for its own machine: of an address, {name}, it finds that by the machine's name, which "
                "/etc/hosts may lead to 127.0.1.1. Else the torchrun of that node had not begun, or had ended.",
                "getent hosts $(hostname)    # on the node of the endpoint: {name}, or 127.0.1.1?",
                "torchrun --rdzv-endpoint NAME:29500 ...    # its name; or there --rdzv-conf is_host=1, elsewhere "
                "is_host=0",
                anywhere=True,
            ),
            case(
                r"errno: 111\b",
                "The node was reached, but nobody listened at this port: rank 0 had not begun, had ended, "
                "or was "
                "told "
                "another port.",
                "srun bash -c 'echo $(hostname) $SLURM_PROCID $MASTER_ADDR $MASTER_PORT'    # the same for all?",
                "grep -n -m 5 -i error {log}    # is there an earlier error of rank 0?",
                anywhere=True,
            ),
        ),
        source="docs.pytorch.org/docs/stable/elastic/rendezvous.html",
    ),
    *INFINIBAND,
    symptom(
        "nccl-bootstrap",
        1,
        r"bootstrap\.cc:\d+ NCCL WARN Message truncated"
        r"|NCCL WARN Message truncated.{0,200}\n(?:.{0,300}\n){0,2}?.{0,300}NCCL INFO bootstrap\.cc:\d+ -> ",
        "NCCL's ranks did not understand each other while they met: {line}",
        "No collective of the program had begun. The nodes load different versions of NCCL or have different "
        "NCCL_ "
        "variables, or two jobs meet at one port.",
        "srun python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'    # alike on all "
        "nodes?",
        "srun --ntasks-per-node=1 bash -c 'echo $(hostname) ${!NCCL_*}'    # and the NCCL_ variables?",
        when=lambda found: "group=" not in found.string,  # of groups that ranks make in different orders
        source="github.com/NVIDIA/nccl/issues/1176",
    ),
    symptom(
        "nccl-topology",
        2,
        r"NCCL WARN .{0,60}(?:Could not open XML|XML (?:Mismatch|Parse|parse)).{0,200}"
        r"|graph/(?:xml|search|topo)\.cc:\d+ NCCL WARN .{1,200}"
        r"|NCCL WARN Could not find (?:a path|real path).{0,200}",
        "NCCL could not read how the node's devices are joined: {line}",
        "NCCL_TOPO_FILE or NCCL_GRAPH_FILE names a file that is not there or not of this machine or job, or a "
        "container hides /sys.",
        "printenv NCCL_TOPO_FILE NCCL_GRAPH_FILE ; cat /etc/nccl.conf ~/.nccl.conf    # in the job",
        "env -u NCCL_TOPO_FILE -u NCCL_GRAPH_FILE {rerun}    # one that a nccl.conf sets must be taken out there",
        cases=(
            case(
                r"graph/search\.cc|XML Import Channel|NCCL_GRAPH_FILE",
                "NCCL_GRAPH_FILE names a plan of rings that is not there or was made for other GPUs than this "
                "job has: "
                "all of a node's, mostly.",
                "printenv NCCL_GRAPH_FILE ; grep -n GRAPH /etc/nccl.conf ~/.nccl.conf    # in the job: who sets "
                "it?",
                "env -u NCCL_GRAPH_FILE {rerun}    # one that a nccl.conf sets must be taken out there",
            ),
        ),
        source="docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
    symptom(
        "network-plugin",
        2,
        r"NET/OFI .{0,120}(?:[Ff]ailed|error|ERROR|Unable|Couldn't)"
        r"|NCCL WARN NET/Plugin.{0,120}(?:[Ff]ail|incompatible)",
        "NCCL's plugin for this cluster's network failed: {line}",
        "The plugin (aws-ofi-nccl, Slingshot's, ...) does not fit NCCL or libfabric, or its module is not loaded.",
        "NCCL_DEBUG=INFO {rerun}",
        "NCCL_NET=Socket {rerun}    # slower, but without the plugin",
        unless=r"[Uu]nreachable|RC: -?113\b|Unresponsive",
        source="github.com/aws/aws-ofi-nccl",
    ),
    symptom(
        "nccl-network",
        6,
        r"ncclSystemError|unhandled system error",
        "{rank}had an error of the system in NCCL, which says no more: {line}",
        "The network, shared memory or a limit of the node: NCCL names it when it may write a log.",
        "NCCL_DEBUG=INFO {rerun}                # then grep WARN results/*/nccl-*.log",
        "NCCL_IB_DISABLE=1 {rerun}              # slower: if it runs, InfiniBand is the trouble",
        source="docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    symptom(
        "nccl-cuda",
        6,
        r"ncclUnhandledCudaError|unhandled cuda error",
        "{rank}had an error of CUDA in NCCL, which says no more: {line}",
        "The GPU's memory is full, two GPUs cannot reach each other, or driver and libraries do not fit each "
        "other.",
        "NCCL_DEBUG=INFO {rerun}                # then grep WARN results/*/nccl-*.log",
        "nvidia-smi    # in the job: memory in use, driver",
        source="github.com/NVIDIA/nccl/issues/1283",
    ),
    symptom(
        "nobody-listens",
        6,
        r"Connection refused|errno: 111\b|ECONNREFUSED",
        "Nobody listened at the address where this process wanted to connect: {line}",
        "The process there had ended or not begun, or the address or port is another one's.",
        "grep -n -m 5 -i error {log}    # of the node of rank 0: is there an earlier error?",
        "echo $MASTER_ADDR $MASTER_PORT    # the same on every node?",
        unless=rf"{INTERNET}|slurmstepd: ",
        source="docs.pytorch.org/docs/stable/elastic/errors.html",
    ),
)
