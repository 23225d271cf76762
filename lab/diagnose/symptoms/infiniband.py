"""InfiniBand and RoCE: cards, their links, and what a completion or a call says that failed."""

from lab.diagnose.symptoms.entry import case, symptom

# An address that is of one link only: of a management port, a GPU's own network, a card without a real one.
NO_WAY_OUT = case(
    r"(?:connect\w* to|remote=|[Cc]onnect\w* .{0,40})\W{0,3}(?P<name>169\.254\.\d+\.\d+|fe80:[\w:]*)",
    "{name} is a link-local address: no other node reaches it. An interface was chosen (of a card's management, "
    "USB, a bridge) that does not join the nodes; the other rank, the port and a firewall are not to blame.",
    "srun --ntasks-per-node=1 ip -br addr    # which interface has an address of the network between the nodes?",
    "NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0 {rerun}    # that one, on every node",
    "NCCL_DEBUG=INFO {rerun}    # its lines 'Bootstrap: Using' name the one that NCCL takes",
)

INFINIBAND = (
    symptom(
        "efa-unreachable",
        1,
        r"NET/OFI .{0,200}(?:[Uu]nreachable remote|RC: -?113\b|Error:? 4123\b|EHOSTUNREACH|Unresponsive receiver)"
        r"|(?:\befa\b|libfabric).{0,120}(?:[Uu]nreachable remote|Unresponsive receiver)",
        "EFA found no way to the other node: {line}",
        "The plugin and libfabric work: what is sent is dropped on the way. Nodes reach each other by EFA only in "
        "one zone, and where their security group has a rule for all traffic to and from that group itself, in "
        "and out: one for addresses (CIDR) lets ping and TCP through, not EFA.",
        "aws ec2 describe-security-groups --group-ids ID    # is the group itself named, for -1 (all), both ways?",
        "FI_PROVIDER=tcp NCCL_NET=Socket {rerun}    # slower, until then",
        source="docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html",
    ),
    symptom(
        "link-down",
        4,
        r"[Gg]ot (?:fatal )?async event\W{1,5}(?:port error|local catastrophic error|device fatal)"
        r"|IBV_EVENT_(?:PORT_ERR|DEVICE_FATAL)|(?:mlx\d_core|bnxt_en|irdma).{0,120}[Ll]ink [Dd]own",
        "A link of the network, or its card, fails on a node: {line}",
        "The card itself says that its port has gone down (cable, transceiver, switch), perhaps again and again: "
        "what "
        "the ranks say of lost connections and of error 12 follows from it. Nothing that your program did.",
        "sbatch --exclude=NODE run.sh    # without that node; tell your administrators node and card, as in the "
        "line",
        "{rerun} --run-id {run_id} --resume auto    # goes on from the last checkpoint",
        source="github.com/NVIDIA/nccl/issues/905",
    ),
    symptom(
        "infiniband",
        5,
        r"NET/IB\w* ?: ?.{0,80}(?:error|Got completion.{0,80}status)|Got completion .{0,80}(?:with error|status=)"
        r"|IBV_WC_\w+_ERR|Call to ibv_\w+ failed|ibv_\w+ failed with error|[Gg]ot (?:fatal )?async event"
        r"|local QP operation",
        "NCCL's connection over InfiniBand failed: {line}",
        "Error 12 is an answer that did not come: a broken or badly set up link, or a rank at its other end that "
        "has ended. Where a call failed, the job or its container may lack the device, or rights to it.",
        "NCCL_DEBUG=INFO {rerun}                # the lines before the error name the link",
        "NCCL_IB_DISABLE=1 {rerun}              # slower: if it runs, InfiniBand is the trouble",
        "NCCL_NET_GDR_LEVEL=LOC {rerun}         # without GPUDirect",
        cases=(
            case(
                r"(?:ibv_modify_qp|RTR).{0,60}(?:\b110\b|timed out)",
                "The cards of two nodes do not reach each other: cards (rails) that the fabric does not join, or "
                "over "
                "Ethernet (RoCE) the wrong address (GID) of a card.",
                "NCCL_CROSS_NIC=0 {rerun}    # each card talks only to its like on the other node",
                "srun --ntasks-per-node=1 show_gids    # RoCE: NCCL_IB_GID_INDEX names the one to take",
                "NCCL_IB_DISABLE=1 {rerun}   # slower: goes on over TCP until your administrators know",
            ),
            case(
                r"ibv_modify_qp.{0,80}(?:\b(?:22|101|113)\b|Invalid argument|unreachable|No route)",
                "The address (GID) that was chosen for a card does not lead to the other node: over Ethernet "
                "(RoCE) a "
                "card has several.",
                "srun --ntasks-per-node=1 show_gids    # which index is RoCE v2 with the node's own address?",
                "NCCL_IB_GID_INDEX=3 {rerun}    # that index; NCCL_IB_HCA leaves cards out",
            ),
            case(
                r"ibv_\w+.{0,60}(?:\b19\b|No such device)|ibv_(?:open_device|get_device_list)",
                "The job or its container does not have the device, its driver or its library.",
                "srun --ntasks-per-node=1 ls /dev/infiniband    # and in the container?",
                "NCCL_IB_DISABLE=1 {rerun}   # slower: without InfiniBand",
            ),
            case(
                r"(?:error|status=)\s?(?:4|10)\b|(?:REM_ACCESS|LOC_PROT)",
                "Errors 4 and 10 are memory that the card may not touch, mostly the GPU's (GPUDirect): PCIe's "
                "ACS or "
                "the IOMMU is on, or nvidia_peermem does not fit. Your administrators can mend that.",
                "NCCL_NET_GDR_LEVEL=LOC {rerun}         # without GPUDirect",
                "NCCL_IB_DISABLE=1 {rerun}              # slower: if it runs, InfiniBand is the trouble",
            ),
            case(
                r"\A(?![\s\S]*async event)[\s\S]*(?:\b12\b|RETRY_EXC).{0,300}local ?G(?:id|ID) fe80:",
                "Over Ethernet (RoCE) the address (GID) that was chosen, fe80:..., is of the link only: no switch "
                "passes it on. A card has others, one with its IPv4 address (RoCE v2).",
                "srun --ntasks-per-node=1 show_gids    # which index is v2 with an IPv4 address?",
                "NCCL_IB_GID_INDEX=3 {rerun}    # that index, mostly 3",
            ),
            case(
                r"(?:error|status=)\s?12\b|RETRY_EXC",
                "Error 12 is an answer that did not come: a broken, badly set up or very busy link or card, or a "
                "rank at "
                "its other end that has ended. Errors 5 after it follow from it.",
                "sbatch --exclude=NODE run.sh    # without that node, if it comes again; tell your administrators "
                "nodes and card",
                "NCCL_DEBUG=INFO {rerun}    # the lines before the error name the link",
                "NCCL_IB_DISABLE=1 {rerun}    # slower: if it runs, InfiniBand is the trouble",
            ),
            case(
                r"(?:error|status=)\s?5\b|WR_FLUSH",
                "Error 5 follows from another one: the connection had been given up, by this rank or the one at "
                "its "
                "other end. The first error that any node has printed says why.",
                "grep -n -m 5 'NCCL WARN' {log}    # the earliest, and in the logs of the other nodes",
            ),
        ),
        unless=r"Cannot allocate memory|max locked|collective mismatch",
        source="github.com/NVIDIA/nccl/issues/426",
    ),
)
