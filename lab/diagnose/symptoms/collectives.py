"""Collectives that did not match, and what the other ranks say when one has ended: mostly consequences."""

from lab.diagnose.symptoms.entry import case, symptom

_AGAIN = "FLIGHT_RECORDER=1 {rerun}    # then lab diagnose {run} names the ranks and the lines"

# TORCH_DISTRIBUTED_DEBUG=DETAIL compares what each rank is about to call.
_CALL = r"is running collective: CollectiveFingerPrint\(SequenceNumber=\d+, ?OpType="
_SHAPE = r"(?:, TensorShape=\[{}\])?"

COLLECTIVES = (
    symptom(
        "fingerprints-differ",
        1,
        rf"Rank (?P<one>\d+) {_CALL.replace('=', '=(?P<number>', 1).replace(', ?', '), ?', 1)}(?P<call>\w+)"
        rf"{_SHAPE.format('(?P<shape>[^]]*)')}.{{0,600}}?but Rank (?P<two>\d+) {_CALL}(?P<other>\w+)"
        rf"{_SHAPE.format('(?P<also>[^]]*)')}",
        "As collective number {number} rank {one} called {call} with a tensor of [{shape}], rank {two} {other} "
        "with [{also}].",
        "Collectives are matched by their order: all ranks must call the same ones, with the same sizes.",
        "lab check 6.2    # lab trace 6.2 shows the ranks side by side",
        _AGAIN,
        cases=(
            case(
                r"run_backward\b[\s\S]*OpType=(?P<call>ALLREDUCE|ALLREDUCE_COALESCED)\b.{0,900}OpType=(?P=call)\b",
                "It was in backward(): DDP averages gradients in buckets. Likeliest a part of the network had a "
                "part in the loss on one of these ranks only, as where a branch of the model depends on the "
                "batch (with images or without, another task).",
                "grep -n -E ' if |find_unused' *.py    # 0 * sum of the unused part added to the loss, or a "
                "batch of one kind on all ranks",
                "TORCH_DISTRIBUTED_DEBUG=INFO {rerun}    # names parameters without a gradient",
                "lab check 4.1 6.2",
            ),
        ),
        source="docs.pytorch.org/docs/stable/distributed.html",
    ),
    symptom(
        "collectives-differ",
        1,
        r"Detected mismatch between collectives on ranks|[Mm]ismatch(?:ed)? (?:between )?collective"
        r"|collective mismatch|[Mm]essage truncated ?: receiv(?:ed|ing) \d+ bytes instead of",
        "{rank}called another collective than the other ranks: {line}",
        "Collectives are matched by their order: all ranks must call the same ones, with the same sizes.",
        _AGAIN,
        "lab check 6.2    # lab trace 6.2 shows the ranks side by side",
        unless=rf"{_CALL}|bootstrap\.cc",
        source="docs.pytorch.org/docs/stable/distributed.html",
    ),
    symptom(
        "model-differs",
        1,
        r"DDP expects same model across all ranks|appears not to match (?:sizes|strides) of the same param"
        r"|inconsistent \d+ params|Inconsistent compute device and",
        "The ranks built different networks: {line}",
        "Every rank has to make the same parameters in the same order: no part of it may depend on the rank.",
        "lab check 4.1 5.1",
        source="github.com/pytorch/pytorch/pull/74113",
    ),
    symptom(
        "unused-parameters-named",
        0,
        r"Parameters which did not receive grad for rank \d+: (?P<names>.{1,300})",
        "DDP{of} still waits for gradients of the step before, those of {names}.",
        "These parameters had no part in the loss: use them in forward(), or leave them out of the network.",
        "lab check 4.1 6.1",
        "grep -n find_unused_parameters exercises/*.py    # =True lets DDP look for them in each step, at a price",
        source="docs.pytorch.org/docs/stable/distributed.html",
    ),
    symptom(
        "unused-parameters",
        1,
        r"Expected to have finished reduction in the prior iteration",
        "DDP{of} still waits for gradients of the step before.",
        "Some parameters had no part in the loss, or a backward pass was left out.",
        "lab check 4.1 6.1",
        "TORCH_DISTRIBUTED_DEBUG=INFO {rerun}    # names the parameters",
        cases=(
            case(
                r"Parameter indices which did not receive grad for rank \d+: (?P<name>\d[\d ]{0,200})",
                "These had no part in the loss of that step, as the head of another task has none: use "
                "all outputs "
                "in the loss, or let DDP look for them.",
                "grep -n DistributedDataParallel *.py exercises/*.py    # find_unused_parameters=True, at a price",
                "TORCH_DISTRIBUTED_DEBUG=INFO {rerun}    # names the parameters",
                "lab check 4.1 6.1",
                saw="DDP{of} still waits for gradients of the step before, those of the parameters with the "
                "numbers {name}.",
            ),
        ),
        source="docs.pytorch.org/docs/stable/distributed.html",
    ),
    symptom(
        "ready-twice",
        1,
        r"Expected to mark a variable ready only once",
        "DDP{of} got the gradient of a parameter twice in one step.",
        "A parameter is used again after its backward pass (checkpointing with reentry), or two backward passes "
        "share it.",
        "lab check 4.1 6.1",
        source="docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    symptom(
        "no-process-group",
        1,
        r"Default process group has not been initialized|process group .{0,40}is not initialized",
        "{rank}called a collective before the process group was there, or after it was destroyed.",
        "init_process_group comes before anything that communicates, DDP and FSDP among it.",
        "lab check 2.2 5.1",
        source="docs.pytorch.org/docs/stable/distributed.html",
    ),
    symptom(
        "group-twice",
        1,
        r"trying to initialize the default process group twice",
        "{rank}made the process group twice.",
        "setup() is called once in a process; a notebook's cell that is run again needs cleanup() before.",
        "lab check 2.2 5.1",
        source="docs.pytorch.org/docs/stable/distributed.html",
    ),
    symptom(
        "backend-device",
        1,
        r"No backend type associated with device type|Tensors must be CUDA and dense"
        r"|Tensors must be (?:on )?.{0,20}CUDA",
        "{rank}gave a collective a tensor on a device that its backend cannot read: {line}",
        "nccl communicates tensors on GPUs, gloo those of the CPU: move them to the device of setup() first.",
        "lab check 2.2 6.2",
        cases=(
            case(
                r"No backend type associated with device type (?P<name>cpu)",
                "The group has a backend for GPUs only, and this tensor is on the CPU: what is offloaded "
                "(FSDP's cpu_offload, its gradients and their norm), a checkpoint's states, a counter. A group "
                "may have one for each: it need not be moved.",
                "grep -n init_process_group *.py exercises/*.py    # backend='cpu:gloo,cuda:nccl', or none named",
                "grep -n -i -E 'offload|device=' *.py exercises/*.py    # or is it there by mistake? .to(device)",
            ),
            case(
                r"No backend type associated with device type (?P<name>\w+)",
                "The group has no backend for tensors on {name}: gloo alone was named, or guessed where no GPU "
                "was seen.",
                "grep -n init_process_group *.py exercises/*.py    # backend='cpu:gloo,cuda:nccl', or none named",
                "lab check 2.2 6.2",
            ),
        ),
        source="docs.pytorch.org/docs/stable/distributed.html",
    ),
    # Consequences: one of these is the finding only where no rank, no record and no earlier line says more.
    symptom(
        "nccl-timeout",
        7,
        r"[Rr]ank (?P<who>\d+)\]?.{0,120}Watchdog caught collective operation timeout: "
        r"WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<call>\w+),.{0,200}?Timeout\(ms\)=(?P<ms>\d+)",
        "rank {who} waited in vain in {call}, its collective number {number}, until the timeout of {seconds} s.",
        "Another rank did not come to it: it failed, hangs elsewhere, or called another collective.",
        _AGAIN,
    ),
    symptom(
        "gloo-timeout",
        7,
        r"Timed out waiting (?P<ms>\d+)ms for \w+ operation to complete",
        "{rank}waited in vain for another rank, until the timeout of {seconds} s.",
        "Another rank did not come to the same collective: it failed, hangs elsewhere, or called another one.",
        _AGAIN,
    ),
    symptom(
        "barrier-missed",
        6,
        r"Ranks? (?P<who>[\d, ]{1,200}) failed to pass monitoredBarrier in (?P<ms>\d+) ms",
        "{rank}waited in monitored_barrier() for {seconds} s, and rank {who} did not come to it.",
        "That rank failed, hangs elsewhere, or was slower than this timeout: what does it say itself?",
        _AGAIN,
        source="docs.pytorch.org/docs/stable/distributed.html",
    ),
    symptom(
        "collective-timeout",
        8,
        r"[Cc]ollective operation timeout|operations have failed or timed out|watchdog (?:thread )?got stuck"
        r"|Heartbeat monitor timed out"
        r"|monitoredBarrier failed",
        "{rank}waited in vain for another rank: {line}",
        "Another rank did not come to the same collective: it failed, hangs elsewhere, or called another one.",
        _AGAIN,
        source="docs.pytorch.org/docs/stable/distributed.html",
    ),
    symptom(
        "rank-lost",
        8,
        r"Rendezvous(?:Closed|Graceful\w+)Error|failed to recv, got 0 bytes|[Cc]onnection (?:closed"
        r"|reset) by (?:remote )?peer"
        r"|Broken pipe|ncclRemoteError|remote process exited|(?:send|recv)(?:Bytes|Value|Vector) failed"
        r"|NCCL communicator was aborted|pair closure|ECONNRESET|EPIPE|Connection was likely closed",
        "{rank}lost its connection to another process, which had ended: {line}",
        "This follows from what ended the other one; the first error, on its node or of its rank, says why.",
        "grep -n -m 5 -i error {log}    # the earliest line, and the logs of the other nodes",
        "sacct -j {job} --format=JobID,State,ExitCode,NodeList,MaxRSS    # which step or node ended first?",
        source="github.com/pytorch/torchtune/issues/2676",
    ),
    symptom(
        "keyboard",
        4,
        r"^(?:\[rank\d+\]: ?|\d+: )?KeyboardInterrupt$|got signal: 2\b"
        r"|(?:[Gg]ot|[Rr]eceived|[Cc]aught|signal|by|interrupted).{0,20}\bSIGINT\b",
        "The run was interrupted, with Ctrl-C or another SIGINT.",
        "Somebody sat at the terminal; the line in which a rank was when it came is not to blame.",
        "{rerun} --run-id {run_id} --resume auto",
    ),
    symptom(
        "hung-up",
        4,
        r"got signal: 1\b|(?:[Gg]ot|[Rr]eceived|[Cc]aught|signal|by).{0,20}\bSIGHUP\b",
        "The terminal was closed, and the run ended with it.",
        "A program that was started in a terminal gets SIGHUP when the connection to it ends.",
        "sbatch run.sh    # a job needs no terminal; else tmux, screen",
        cases=(
            case(
                r"torchrun|torch[./]distributed|SignalException|torchelastic",
                "A program that was started in a terminal gets SIGHUP when the connection to it ends. nohup does "
                "not "
                "help: torchrun handles SIGHUP itself, whatever nohup has set, and ends its ranks.",
                "sbatch run.sh    # a job needs no terminal",
                "tmux new -s run    # or screen, or setsid torchrun ...: no terminal that can go away",
            ),
        ),
        source="github.com/pytorch/pytorch/issues/76894",
    ),
)
