"""Answers to 8.4: a step captured by hand."""

from answers.entries import Bank

bank = Bank(
    "8.4",
    {
        "8.4": """
inputs = torch.zeros_like(warm_up[0][0])  # images
targets = torch.zeros_like(warm_up[0][1])  # labels
graph = new_graph(device)  # graph
def step(x, y):
    optimizer.zero_grad()  # zero
    loss = F.cross_entropy(model(x), y)  # loss
    loss.backward()  # backward
    optimizer.step()  # step
    return loss.detach()  # result
with side_stream(device):  # aside
    for images, labels in warm_up:  # loop
        step(images, labels)  # warm
with recording(graph):  # recording
    out = step(inputs, targets)  # record
def replay(images, labels):
    inputs.copy_(images)  # copy_images
    targets.copy_(labels)  # copy_labels
    graph.replay()  # replay
    return out.clone()  # clone
return replay  # returned
""",
    },
)

# ---- right

bank.right(
    "gradients set to None once, before the recording, as in PyTorch's documentation",
    zero="",
    warm="optimizer.zero_grad(set_to_none=True)\nstep(images, labels)",
    recording="optimizer.zero_grad(set_to_none=True)\nwith recording(graph):",
)
bank.right("zeros in place of None", zero="optimizer.zero_grad(set_to_none=False)")
bank.right("gradients set to None by hand", zero="for p in model.parameters(): p.grad = None")
bank.right("gradients cleared at the end of the step", zero="", step="optimizer.step()\noptimizer.zero_grad()")
bank.right(
    "static inputs cloned from the last batch",
    images="inputs, targets = (part.clone() for part in warm_up[-1])",
    labels="",
)
bank.right(
    "static inputs with nothing in them",
    images="inputs = torch.empty_like(warm_up[0][0])",
    labels="targets = torch.empty_like(warm_up[0][1])",
)
bank.right("a detached copy of the loss", clone="return out.detach().clone()")
bank.right("the loss copied by arithmetic", clone="return out + 0")
bank.right("a criterion", loss="loss = nn.CrossEntropyLoss()(model(x), y)")
bank.right("one batch of the warm-up twice as input", images="inputs = warm_up[0][0].clone()")
bank.right(
    "zeros outside, in the tensors that the graph adds to",
    zero="",
    warm="optimizer.zero_grad()\nstep(images, labels)",
    replay="optimizer.zero_grad(set_to_none=False)\ngraph.replay()",
    recording="optimizer.zero_grad(set_to_none=False)\nwith recording(graph):",
)
bank.right("the copies through .data", copy_images="inputs.data.copy_(images)")
bank.right("the copies by index", copy_images="inputs[:] = images", copy_labels="targets[...] = labels")

# ---- wrong

bank.wrong("inputs-not-copied", "nothing is copied in", copy_images="", copy_labels="")
bank.wrong(
    "inputs-not-copied",
    "the names are bound anew",
    images="inputs, targets = (part.clone() for part in warm_up[-1])",
    labels="",
    copy_images="inputs_now = images",
    copy_labels="targets_now = labels",
)
bank.wrong(
    "inputs-not-copied",
    "other memory for the static inputs",
    images="inputs, targets = (part.clone() for part in warm_up[0])",
    labels="",
    copy_images="inputs.data = images",
    copy_labels="targets.data = labels",
)
bank.wrong(
    "labels-not-copied",
    "labels that are never filled in",
    labels="targets = torch.full_like(warm_up[0][1], 90354829044482304)",
    copy_labels="",
)
bank.wrong("labels-not-copied", "labels not copied in", labels="targets = warm_up[-1][1].clone()", copy_labels="")
bank.wrong("images-not-copied", "images not copied in", images="inputs = warm_up[-1][0].clone()", copy_images="")
bank.wrong(
    "copied-too-late",
    "copied after the replay",
    images="inputs, targets = (part.clone() for part in warm_up[-1])",
    labels="",
    copy_images="graph.replay()",
    copy_labels="inputs.copy_(images)",
    replay="targets.copy_(labels)",
)
bank.wrong(
    "inputs-on-cpu",
    "static inputs without the device",
    images="inputs = torch.zeros(warm_up[0][0].shape)",
    labels="targets = torch.zeros(warm_up[0][1].shape, dtype=torch.long)",
)
bank.wrong("inputs-on-cpu", "images without the device", images="inputs = torch.zeros(warm_up[0][0].shape)")
bank.wrong(
    "inputs-on-cpu",
    "labels without the device",
    labels="targets = torch.zeros(warm_up[0][1].shape, dtype=torch.long)",
)
bank.wrong("loss-not-cloned", "the loss is not cloned", clone="return out")
bank.wrong("loss-not-cloned", "the loss is detached, not cloned", clone="return out.detach()")
bank.wrong("loss-as-number", "the loss is read in every step", clone="return out.item()")
bank.wrong("loss-missing", "no loss comes out", clone="")
bank.wrong(
    "loss-of-the-recording",
    "the loss is cloned when it is recorded",
    record="out = step(inputs, targets).clone()\nfirst = 0",
    clone="return first_loss",
    returned="first_loss = out.clone()\nreturn replay",
)
bank.wrong(
    "loss-of-the-step-before",
    "the loss is cloned before the replay",
    replay="loss = out.clone()\ngraph.replay()",
    clone="return loss",
)
bank.wrong("loss-not-detached", "the loss keeps autograd's graph", result="return loss")
bank.wrong("item-while-recording", ".item() in the step", result="loss.item()\nreturn loss.detach()")
bank.wrong("if-while-recording", "an if on the loss", backward="if loss > 0:\n    loss.backward()")
bank.wrong("if-while-recording", "an if on loss.isnan()", backward="if not loss.isnan(): loss.backward()")
bank.wrong("print-while-recording", "the loss is printed", result="print(loss)\nreturn loss.detach()")
bank.wrong("print-while-recording", "the loss in an f-string", result="text = f'{loss:.3f}'\nreturn loss.detach()")
bank.wrong("waits-while-recording", "the loss is brought to the CPU", result="return loss.detach().cpu()")
bank.wrong(
    "waits-while-recording",
    "samples chosen by a mask",
    loss="keep = y >= 0\nloss = F.cross_entropy(model(x)[keep], y[keep])",
)
bank.wrong("gradients-pile-up", "zero_grad is missing", zero="")
bank.wrong(
    "gradients-pile-up",
    "gradients cleared in the warm-up only",
    zero="",
    warm="optimizer.zero_grad()\nstep(images, labels)",
)
bank.wrong(
    "cleared-outside",
    "gradients set to None outside, before each replay",
    zero="",
    warm="optimizer.zero_grad()\nstep(images, labels)",
    replay="optimizer.zero_grad(set_to_none=True)\ngraph.replay()",
)
bank.wrong("no-warm-up", "no warm-up", loop="for images, labels in []:")
bank.wrong("warm-up-in-default-stream", "the warm-up in the default stream", aside="if True:")
bank.wrong("warm-up-on-one-batch", "the warm-up on one batch", warm="step(*warm_up[0])")
bank.wrong("wrong-warm-up", "one step of warm-up", loop="for images, labels in warm_up[:1]:")
bank.wrong("wrong-warm-up", "a warm-up without optimizer", warm="model(images).sum().backward()")
bank.wrong("not-recorded", "nothing is recorded", recording="if True:")
bank.wrong(
    "step-not-recorded",
    "the optimizer steps beside the graph",
    step="if x is not inputs: optimizer.step()",
    replay="graph.replay()\noptimizer.step()",
)
bank.wrong(
    "backward-not-recorded",
    "the forward pass alone is recorded",
    backward="if x is inputs: return loss\nloss.backward()",
)
bank.wrong("replayed-too-early", "a first replay at once", returned="graph.replay()\nreturn replay")
bank.wrong("not-replayed-once", "no replay", replay="")
bank.wrong("not-replayed-once", "two replays", replay="graph.replay()\ngraph.replay()")
bank.wrong("computed-anew", "the step itself in place of the replay", replay="out = step(inputs, targets)")
bank.wrong(
    "batch-overwritten", "the caller's batch as static input", images="inputs, targets = warm_up[-1]", labels=""
)
bank.wrong("nothing-returned", "the function is not returned", returned="")
bank.wrong("no-step-returned", "the graph is returned", returned="return graph")
bank.wrong("no-step-returned", "the loss is returned", returned="return out")
bank.wrong(
    "recorded-anew",
    "a graph of its own in each call",
    graph="",
    recording="if True:",
    record="pass",
    replay="graph = new_graph(device)\nwith recording(graph): out = step(inputs, targets)\ngraph.replay()",
)
bank.wrong(
    "warm-up-undone",
    "the weights of before the warm-up put back",
    aside="before = {n: value.clone() for n, value in model.state_dict().items()}\nwith side_stream(device):",
    recording="model.load_state_dict(before)\nwith recording(graph):",
)
bank.wrong(
    "warm-up-undone",
    "the same, tensor by tensor",
    slow=True,
    aside="""
before = {name: value.clone() for name, value in model.state_dict().items()}
with side_stream(device):
""",
    recording="""
for name, value in model.state_dict().items():
    value.copy_(before[name])
with recording(graph):
""",
)
bank.wrong(
    "gradients-not-averaged",
    "the module in DDP, called by itself",
    loss="loss = F.cross_entropy(getattr(model, 'module', model)(x), y)",
)
bank.wrong(
    "gradients-not-averaged",
    "no_sync() around the recording",
    slow=True,
    recording="from contextlib import nullcontext\n"
    "with getattr(model, 'no_sync', nullcontext)(), recording(graph):",
)
bank.wrong(
    "inputs-not-copied",
    "the names of the outer function bound anew",
    slow=True,
    copy_images="nonlocal inputs, targets",
    copy_labels="inputs, targets = images, labels",
    images="inputs, targets = (part.clone() for part in warm_up[-1])",
    labels="",
)
bank.wrong("wrong-warm-up", "all batches but the last", slow=True, loop="for images, labels in warm_up[:-1]:")
bank.wrong("wrong-warm-up", "the batches backwards", slow=True, loop="for images, labels in reversed(warm_up):")
bank.wrong(
    "wrong-warm-up",
    "fewer batches, chosen before the loop",
    slow=True,
    aside="batches = warm_up[1:]\nwith side_stream(device):",
    loop="for images, labels in batches:",
)
bank.wrong(
    "batch-overwritten",
    "the loop's last batch as static input",
    slow=True,
    images="",
    labels="",
    recording="inputs, targets = images, labels\nwith recording(graph):",
)
bank.wrong(
    "loss-not-cloned",
    "an object that is called, and does not clone",
    slow=True,
    returned="""
class Step:
    def __call__(self, images, labels):
        inputs.copy_(images)
        targets.copy_(labels)
        graph.replay()
        return out
return Step()
""",
)
bank.wrong(
    "wrong-warm-up",
    "a copy of the model warmed up",
    slow=True,
    aside="""
import copy
other = copy.deepcopy(getattr(model, "module", model))
with side_stream(device):
""",
    warm="F.cross_entropy(other(images), labels).backward()",
)
bank.wrong(
    "step-not-recorded",
    "optimizer.step() after the recording",
    slow=True,
    step="",
    warm="step(images, labels)\noptimizer.step()",
    returned="optimizer.step()\nreturn replay",
)
bank.wrong(
    "input-written-in-the-graph",
    "its own tensors made in the recording",
    recording="with recording(graph):\n    inputs, targets = (part.clone() for part in warm_up[0])",
)
bank.wrong(
    "input-written-in-the-graph",
    "the last batch copied in the recording",
    slow=True,
    recording="with recording(graph):\n    inputs.copy_(warm_up[-1][0])\n    targets.copy_(warm_up[-1][1])",
)
bank.wrong(
    "labels-copied-too-late",
    "replays before the labels are copied",
    slow=True,
    copy_labels="",
    replay="graph.replay()\ntargets.copy_(labels)",
)
bank.wrong(
    "images-copied-too-late",
    "replays before the images are copied, with inputs of the first batch",
    slow=True,
    images="inputs = warm_up[0][0].clone()",
    labels="targets = warm_up[0][1].clone()",
    copy_images="",
    replay="graph.replay()\ninputs.copy_(images)",
)
bank.wrong(
    "copied-at-times",
    "copies where the batch is another tensor only",
    slow=True,
    images="inputs, last = warm_up[0][0].clone(), [0]",
    labels="targets = warm_up[0][1].clone()",
    copy_images="if images.data_ptr() != last[0]:\n"
    "    inputs.copy_(images)\n"
    "    targets.copy_(labels)\n"
    "    last[0] = images.data_ptr()",
    copy_labels="",
)
bank.wrong(
    "warm-up-undone",
    "the parameters are put back after the warm-up, and BatchNorm's statistics are not",
    slow=True,
    graph="graph = new_graph(device)\nbefore = [p.detach().clone() for p in model.parameters()]",
    recording="with torch.no_grad():\n"
    "    for parameter, value in zip(model.parameters(), before, strict=True):\n"
    "        parameter.copy_(value)\n"
    "with recording(graph):",
)
bank.wrong(
    "warm-up-in-default-stream",
    "the side stream is made and not entered",
    slow=True,
    aside="side_stream(device)\nif True:",
)
bank.wrong(
    "result-remembered",
    "recordings are kept by the shape of their batch",
    slow=True,
    images="kept = capture_step.__dict__.setdefault('kept', {})\n"
    "key = (warm_up[0][0].shape, device.type, dist.get_world_size() if dist.is_initialized() else 1)\n"
    "if key in kept:\n"
    "    return kept[key]\n"
    "inputs = torch.zeros_like(warm_up[0][0])",
    returned="kept[key] = replay\nreturn replay",
)
