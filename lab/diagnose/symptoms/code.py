"""Errors of a training program's own lines whose words PyTorch, FSDP or AMP have chosen, and what they come "
"from."""

from lab.diagnose.symptoms.entry import case, symptom

_ORDER = 3  # that of an exception of the user's code, which it is
_NOTES = "docs.pytorch.org/docs/stable"

# Of cards, not of code: among those of devices.
PRECISION_NOT_HERE = symptom(
    "precision-not-here",
    2,
    r"not implemented for '(?:Half|BFloat16)'|[Bb]float16 is (?:not|only) supported",
    "{rank}computed in a precision that this device or operation does not have: {line}",
    "fp16 is for GPUs; bf16 needs a card of Ampere or newer.",
    "{rerun} --precision fp32",
    source="docs.pytorch.org/docs/stable/amp.html",
)

CODE = (
    symptom(
        "optimizer-of-other-parameters",
        _ORDER,
        r"No inf checks were recorded for this optimizer|optimizer got an empty parameter list",
        "{rank}has an optimizer whose parameters got no gradient: {line}",
        "It was made before the model was wrapped (FSDP replaces the parameters) or moved, or of parameters that "
        "are "
        "all frozen: it holds others than backward() reaches.",
        "grep -n -E 'optim|wrap|FSDP|fully_shard|DistributedData' exercises/*.py    # wrap first, then "
        "Optimizer(model.parameters())",
        "lab check 5.1 4.2",
        source="github.com/Lightning-AI/lit-llama/issues/405",
    ),
    symptom(
        "scaler-order",
        _ORDER,
        r"unscale_\(\) has already been called|step\(\) has already been called since"
        r"|unscale_\(\) is being called after"
        r"|Attempting to unscale FP16 gradients",
        "{rank}used the loss scaler in another order than it allows: {line}",
        "In a step: scale(loss).backward(), unscale_(optimizer) once (for clipping), step(optimizer), update(). "
        "The "
        "parameters themselves stay fp32: no model.half() under autocast.",
        "grep -n -E 'scaler|half\\(' exercises/*.py",
        "lab check 6.1",
        source=f"{_NOTES}/notes/amp_examples.html",
    ),
    symptom(
        "tensor-and-dtensor",
        _ORDER,
        r"got mixed torch\.Tensor and DTensor",
        "{rank}has plain tensors among those that fully_shard has sharded (DTensor): {line}",
        "A module was added after fully_shard, or left out of it: the root must be sharded too, after all "
        "modules are "
        "there. An input or a mask of one's own may be the plain one as well.",
        "grep -n fully_shard exercises/*.py    # on the blocks, and last on the whole model",
        "lab check 4.2",
        cases=(
            case(
                r"^.*[ =(](?P<name>\w+(?:\.module)?\.(?:forward|encode|generate|module))\(.*\n[\s\S]*got mixed",
                "{name}() goes past the model's hooks, which gather its parts before a forward pass: call the "
                "model itself, model(x). What the message says of DTensor is then not the way.",
                "grep -n -E '[.](forward|encode|generate)\\(' *.py exercises/*.py    # model(x); for another "
                "method: register_fsdp_forward_method(model, 'encode')",
            ),
        ),
        source="github.com/pytorch/pytorch/issues/132649",
    ),
    symptom(
        "changed-in-place",
        _ORDER,
        r"modified by an inplace operation"
        r"|a leaf Variable that requires grad is being used in an in-place operation",
        "{rank}changed a tensor that the backward pass still needs: {line}",
        "Under DDP: the model was called twice before backward(), and the second forward pass has overwritten "
        "BatchNorm's buffers (broadcast_buffers). Else an operation in place (+=, relu_, inplace=True), or "
        "optimizer.step() before backward().",
        "grep -n broadcast_buffers exercises/*.py    # DDP(..., broadcast_buffers=False), or both inputs in one "
        "call",
        "grep -n -E '_\\(|[-+*/]=|inplace' exercises/*.py ; TORCH_DISTRIBUTED_DEBUG=DETAIL {rerun}",
        cases=(
            case(
                r"a leaf Variable",
                "A parameter is changed in place where autograd is watching: changes of weights stand below "
                "torch.no_grad(), as in initialisation.",
                "grep -n -E '_\\(|[-+*/]=' exercises/*.py    # with torch.no_grad():",
            ),
        ),
        source="github.com/pytorch/pytorch/issues/22095",
    ),
    symptom(
        "cudagraph-overwritten",
        _ORDER,
        r"accessing tensor output of CUDAGraphs that has been overwritten",
        "{rank}read what a CUDA graph had computed, after its next run had overwritten it: {line}",
        "With mode='reduce-overhead' or 'max-autotune' each call writes to the same memory: of several calls "
        "before one step (accumulation, two losses), and of what is kept from one, only the last is there. The "
        "line of the model is not to blame.",
        "grep -n -E 'compile\\(|accum' *.py exercises/*.py    # torch.compiler.cudagraph_mark_step_begin() "
        "before each call; or .clone() what is kept",
        "grep -n reduce-overhead *.py exercises/*.py    # or compile without a mode: without CUDA graphs",
        source="github.com/pytorch/pytorch/issues/169545",
    ),
    symptom(
        "batch-of-one",
        _ORDER,
        r"Expected more than 1 value per channel when training",
        "{rank}gave BatchNorm a batch of one: {line}",
        "The last batch of this rank's part of the data holds a single sample, and one has no variance.",
        "grep -n -E 'drop_last|DataLoader\\(' exercises/*.py    # drop_last=True; DistributedSampler: as many "
        "for all",
        "lab check 3.2",
        source="github.com/pytorch/pytorch/issues/4534",
    ),
    symptom(
        "backward-twice",
        _ORDER,
        r"Trying to backward through the graph a second time",
        "{rank}went backward through the same graph twice.",
        "Something of the step before is still joined to the loss: a sum of losses, a hidden state, a mean that "
        "is "
        "kept. detach() or item() cuts it off; retain_graph=True only hides it, and fills memory.",
        "grep -n -E 'backward|detach|item\\(' exercises/*.py",
        "lab check 6.1",
        source=f"{_NOTES}/generated/torch.Tensor.backward.html",
    ),
    symptom(
        "no-graph",
        _ORDER,
        r"does not require grad and does not have a grad_fn"
        r"|grad can be implicitly created only for scalar outputs",
        "{rank}called backward() on what is no loss with a graph: {line}",
        "The loss was computed below no_grad() or inference_mode(), detached, of frozen parameters only, or is "
        "not "
        "one number: mean() makes it one.",
        "grep -n -E 'no_grad|inference_mode|detach|requires_grad|reduction' exercises/*.py",
        "lab check 6.1",
        source=f"{_NOTES}/notes/autograd.html",
    ),
    symptom(
        "devices-differ",
        _ORDER,
        r"Expected all tensors to be on the same device"
        r"|Input type \(torch\.(?!cuda)\w+\) and weight type \(torch\.cuda"
        r"|Input type \(torch\.cuda\.\w+\) and weight type \(torch\.(?!cuda)"
        r"|module must have its parameters and buffers on device|Expected a '\w+' device type for generator"
        r"|device_ids and output_device arguments only work with single-device",
        "{rank}computed with tensors of two devices: {line}",
        "Model, batch, labels and what forward() makes (masks, torch.zeros) belong on the rank's own device; "
        "'cuda' "
        "alone is GPU 0 until set_device(local_rank). A generator is of the device on which it draws.",
        "grep -n -E 'cuda\\(|to\\(|device=|Generator\\(' exercises/*.py",
        "lab check 2.2 6.1",
        source=f"{_NOTES}/notes/cuda.html",
    ),
    symptom(
        "dtypes-differ",
        _ORDER,
        r"expected (?:scalar type \w+ but found|m1 and m2 to have the same dtype)"
        r"|must have the same dtype, but got"
        r"|Input type \((?:torch\.)?(?P<one>[\w.]+)\) and (?:weight|bias) type \((?!(?:torch\.)?(?P=one)\))",
        "{rank}computed with tensors of two types: {line}",
        "Weights and inputs differ in precision: half() on one of them, a step outside of autocast, or inputs "
        "that "
        "numpy made as double. Labels of cross_entropy are of type long.",
        "grep -n -E 'half\\(|bfloat16|autocast|float\\(|double|long\\(' exercises/*.py",
        "lab check 6.1",
        source=f"{_NOTES}/amp.html",
    ),
    symptom(
        "shapes-differ",
        _ORDER,
        r"shapes cannot be multiplied|The size of tensor a \(\d+\) must match"
        r"|Expected input batch_size \(\d+\) to match"
        r"|shape '\[.{0,80}\]' is invalid for input of size|stack expects each tensor to be equal size"
        r"|Given groups=\d+, weight of size|Sizes of tensors must match except in dimension",
        "{rank}met shapes that do not fit each other: {line}",
        "The line says which two. Mostly a layer that does not follow from the one before, images of several "
        "sizes, "
        "or a last batch that is smaller than the code takes for granted.",
        "lab check 1.1 3.2",
        cases=(
            case(
                r"stack expects each tensor",
                "The samples of one batch have different sizes: a transform must make them alike (resize, crop, "
                "pad), "
                "or a collate_fn joins them.",
                "grep -n -E 'Resize|Crop|collate' exercises/*.py",
                "lab check 3.2",
            ),
        ),
        source=f"{_NOTES}/generated/torch.nn.Linear.html",
    ),
    symptom(
        "label-out-of-range",
        _ORDER,
        r"Target -?\d+ is out of bounds|IndexError: index out of range in self",
        "{rank}met a label or an index that the network has no place for: {line}",
        "Labels go from 0 to classes - 1, indices of an embedding to its size - 1: another data set, or labels "
        "that "
        "begin at 1.",
        "lab check 1.1    # how many classes has the last layer?",
        source=f"{_NOTES}/generated/torch.nn.CrossEntropyLoss.html",
    ),
    symptom(
        "loader-options",
        _ORDER,
        r"sampler option is mutually exclusive with shuffle"
        r"|num_samples should be a positive integer value, but got"
        r"|prefetch_factor option could only be specified|persistent_workers option needs num_workers"
        r"|cannot pin '|batch_sampler option is mutually exclusive",
        "{rank}made a DataLoader of options that do not go together: {line}",
        "A DistributedSampler shuffles itself (shuffle=False in the loader); prefetching and lasting workers need "
        "workers; only tensors of the CPU are pinned; no samples at all means a wrong folder or split.",
        "grep -n -A 4 'DataLoader(' exercises/*.py",
        "lab check 3.2 3.3",
        source=f"{_NOTES}/data.html",
    ),
    symptom(
        "wrapped-model",
        _ORDER,
        r"'(?:DistributedDataParallel|FullyShardedDataParallel"
        r"|OptimizedModule)' object has no attribute '[a-zA-Z]"
        r"|DistributedDataParallel is not needed when a module doesn't have any parameters"
        r"|Must flatten tensors with (?:uniform|the same)",
        "{rank}met a wrapped model that is not as the code expects: {line}",
        "The network itself is model.module (DDP, FSDP) or model._orig_mod (compile). A wrapper needs parameters "
        "that "
        "are trained; FSDP's flat ones are of one type, and all trained or all frozen (use_orig_params=True).",
        "grep -n -E 'module|requires_grad|use_orig_params' exercises/*.py",
        "lab check 4.1 4.2 5.1",
        cases=(
            case(
                r"Must flatten tensors with (?:uniform|the same) `?dtype`? but got (?P<one>[\w.]+) and "
                r"(?P<two>[\w.]+)",
                "Parameters of {one} and of {two} are in one unit that FSDP wraps: of adapters (LoRA, PEFT), say, "
                "which are made in float32 whatever the base was loaded in, or norms that were kept in it. "
                "use_orig_params=True does not change that.",
                "grep -n -i -E 'dtype|lora|peft|bf16|prepare_model' *.py    # cast all to one: "
                "model.to(torch.bfloat16) before FSDP",
                "grep -n -i -E 'wrap_policy|fsdp' *.py *.yaml    # or a wrap policy that gives the adapters units "
                "of their own",
                saw="FSDP cannot flatten parameters of two types together, {one} and {two}: {line}",
            ),
        ),
        source=f"{_NOTES}/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    symptom(
        "checkpointed-differs",
        _ORDER,
        r"Recomputed values for the following tensors have different metadata"
        r"|[Aa] different number of tensors was saved during the original forward",
        "{rank}recomputed something else than it had computed (activation checkpointing): {line}",
        "The second pass of a checkpointed part took another way: it depends on a global, on autocast's state, on "
        "random numbers outside of torch, or was called in another mode.",
        "grep -n -A 3 'checkpoint(' exercises/*.py    # preserve_rng_state, context_fn, use_reentrant=False",
        source=f"{_NOTES}/checkpoint.html",
    ),
    symptom(
        "state-of-compiled",
        _ORDER,
        r"FSDP assumes \S*_orig_mod\S* is in the state_dict",
        "{rank}asked FSDP for the state of a network whose parts were compiled: {line}",
        "torch.compile around FSDP, or around parts of it, puts _orig_mod into the names, and FSDP does not "
        "find its own. "
        "Neither the disk nor one rank is to blame.",
        "grep -n -E 'compile|state_dict' *.py exercises/*.py    # get_model_state_dict() of "
        "torch.distributed.checkpoint.state_dict; or module.compile(), which keeps the names",
        source="github.com/pytorch/pytorch/issues/119980",
    ),
    symptom(
        "not-deterministic",
        _ORDER,
        r"Deterministic behavior was enabled|does not have a deterministic implementation",
        "{rank}asked for determinism where there is none: {line}",
        "torch.use_deterministic_algorithms(True) refuses what has no such form; cuBLAS needs a workspace of a "
        "fixed "
        "size.",
        "CUBLAS_WORKSPACE_CONFIG=:4096:8 {rerun}",
        "grep -n use_deterministic exercises/*.py    # warn_only=True lets the rest pass",
        source=f"{_NOTES}/notes/randomness.html",
    ),
    symptom(
        "collective-sizes",
        _ORDER,
        r"[Oo]utput tensor size must be equal to (?:world[_ ]size|input)"
        r"|input tensor must be the same size as output"
        r"|[Tt]ensors must be contiguous|(?:not part of|not in) (?:the )?(?:process )?group\b"
        r"|[Tt]ensor list (?:input|output).{0,60}world size|must be a multiple of world size",
        "{rank}gave a collective tensors or ranks that it cannot take: {line}",
        "all_gather and reduce_scatter want world size times one rank's part, contiguous, of one type; "
        "new_group() is "
        "called by all ranks, and used by its members only.",
        "lab check 6.1 6.2 9.1",
        source=f"{_NOTES}/distributed.html",
    ),
)
