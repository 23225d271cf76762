"""Answers to 9.6: a pipeline's schedules, and the stages that follow them."""

from answers.entries import Bank

bank = Bank(
    "9.6",
    {
        "9.6a": """
forward = [(FORWARD, i) for i in range(micro_batches)]  # all forward
return forward + [(BACKWARD, i) for _, i in forward]  # all backward
""",
        "9.6b": """
ahead = min(micro_batches, ranks - 1 - rank)  # ahead
first = [(FORWARD, i) for i in range(ahead)]  # warm up
turns = []
for i in range(micro_batches - ahead):  # turn
    turns += [(FORWARD, i + ahead), (BACKWARD, i)]  # turns
return first + turns + [(BACKWARD, i) for i in range(micro_batches - ahead, micro_batches)]  # rest
""",
        "9.6c": """
if self.rank > 0:  # receives
    x = self.empty()  # buffer
    dist.recv(x, src=self.rank - 1)  # receive
    x.requires_grad = True  # wants
else:
    x = self.inputs[micro]  # input
y = self.module(x)  # compute
work = None
if self.rank < self.ranks - 1:  # sends
    work = dist.isend(y.detach(), dst=self.rank + 1)  # send
else:
    y = self.loss_of(y, micro) / len(self.inputs)  # loss
    self.losses.append(y.detach())  # note
self.held[micro] = (x, y, work)  # hold
""",
        "9.6d": """
x, y, work = self.held.pop(micro)  # take
if self.rank < self.ranks - 1:
    gradient = self.empty()
    dist.recv(gradient, src=self.rank + 1)  # back
    work.wait()  # wait
    y.backward(gradient)  # backward
else:
    y.backward()  # of the loss
if self.rank > 0:
    self.sending.append(dist.isend(x.grad, dst=self.rank - 1))  # send back
""",
    },
)

bank.right(
    "1F1B as a loop with counters",
    whole={
        "9.6b": """
actions, forward, backward = [], 0, 0
while backward < micro_batches:
    if forward < micro_batches and forward - backward < ranks - rank:
        actions.append((FORWARD, forward))
        forward += 1
    else:
        actions.append((BACKWARD, backward))
        backward += 1
return actions
"""
    },
)
bank.right("received with irecv", receive="dist.irecv(x, src=self.rank - 1).wait()")
bank.right(
    "waits for the forward's send after the backward pass",
    wait="pass",
    backward="y.backward(gradient)\nwork.wait()",
)
bank.right("with torch.autograd.backward", backward="torch.autograd.backward(y, gradient)")
bank.right(
    "the loss divided in the backward pass's gradient", loss="y = self.loss_of(y, micro).mul(1 / len(self.inputs))"
)

bank.wrong(
    "not-gpipe", "1F1B for both", whole={"9.6a": "return one_forward_one_backward(rank, ranks, micro_batches)"}
)
bank.wrong(
    "other-order",
    "GPipe from the last backward",
    **{"all backward": "return forward + [(BACKWARD, i) for _, i in reversed(forward)]"},
)
bank.wrong("too-many-in-between", "GPipe for both", whole={"9.6b": "return gpipe(rank, ranks, micro_batches)"})
bank.wrong(
    "too-many-in-between", "a forward pass too many ahead", ahead="ahead = min(micro_batches, ranks - rank)"
)
bank.wrong("bubble-too-large", "nothing ahead", ahead="ahead = 0")
bank.wrong("micro-batches-missing", "the last backward passes are left out", rest="return first + turns")
bank.wrong(
    "backward-before-forward",
    "backward first in each turn",
    ahead="ahead = 0",
    turns="turns += [(BACKWARD, i), (FORWARD, i + ahead)]",
)
bank.wrong(
    "micro-batches-twice",
    "all backward passes at the end",
    rest="return first + turns + [(BACKWARD, i) for i in range(micro_batches)]",
)
bank.wrong("no-such-micro-batch", "more ahead than there are", ahead="ahead = ranks - 1 - rank")
bank.wrong(
    "all-send-first",
    "sends that wait",
    send="dist.send(y.detach(), dst=self.rank + 1)",
    wait="pass",
    **{"send back": "dist.send(x.grad, dst=self.rank - 1)"},
)
bank.wrong("all-receive-first", "forward passes send nothing", send="pass", wait="pass")
bank.wrong("message-missing", "no gradient is sent back", **{"send back": "pass"})
bank.wrong(
    "waits-in-a-circle",
    "the gradient goes on, not back",
    **{"send back": "self.sending.append(dist.isend(x.grad, dst=(self.rank + 1) % self.ranks))"},
)
bank.wrong("input-without-gradient", "the received input needs no gradient", wants="pass")
bank.wrong("gradient-not-received", "backward without the gradient", backward="y.backward()")
bank.wrong("not-held", "held under another number", hold="self.held[micro + 1] = (x, y, work)")
bank.wrong(
    "one-buffer-for-all",
    "receives into one tensor",
    buffer="""self.buffer = getattr(self, "buffer", None)
if self.buffer is None: self.buffer = self.empty()
x = self.buffer.detach()""",
)
bank.wrong("not-divided", "the loss is not divided", loss="y = self.loss_of(y, micro)")
bank.wrong(
    "scaled-gradients",
    "the gradients are divided, too",
    **{
        "send back": "self.sending.append(dist.isend(x.grad, dst=self.rank - 1))",
        "of the loss": "(y / len(self.inputs)).backward()",
    },
)
bank.wrong(
    "gradients-overwritten",
    "gradients cleared before each backward pass",
    take="x, y, work = self.held.pop(micro)\nself.module.zero_grad()",
)
bank.wrong("not-waited", "the forward's send is never waited for", wait="pass")
bank.wrong(
    "not-waited", "the gradient's send is forgotten", **{"send back": "dist.isend(x.grad, dst=self.rank - 1)"}
)
bank.wrong(
    "activations-kept",
    "nothing is given up",
    take="x, y, work = self.held[micro]",
    backward="y.backward(gradient, retain_graph=True)",
    **{"of the loss": "y.backward(retain_graph=True)"},
)
bank.wrong(
    "wrong-gradients",
    "the newest micro-batch in place of this one",
    take="x, y, work = self.held.pop(max(self.held))",
)
bank.wrong(
    "no-backward",
    "computes the gradient of the input only",
    backward="x.grad = torch.autograd.grad(y, x, gradient)[0] if self.rank else None",
    **{"of the loss": "x.grad = torch.autograd.grad(y, x)[0]"},
)
bank.wrong("wrong-losses", "the targets of another micro-batch", loss="y = self.loss_of(y, 0) / len(self.inputs)")
bank.wrong(
    "losses-with-graph",
    "the losses keep their graph",
    loss="y = self.loss_of(y, micro) / len(self.inputs)\nself.losses.append(y)",
    note="pass",
)
bank.wrong(
    "waits-in-forward",
    "waits until the output is received",
    send="work = dist.isend(y.detach(), dst=self.rank + 1)\nwork.wait()",
    wait="pass",
)
bank.wrong(
    "passes-on-what-it-got",
    "sends back the gradient of its output",
    **{
        "send back": "back = x.grad if self.rank == self.ranks - 1 else gradient\n"
        "self.sending.append(dist.isend(back, dst=self.rank - 1))"
    },
)
bank.wrong(
    "scaled-gradients",
    "only the loss that is returned is divided",
    loss="y = self.loss_of(y, micro)",
    note="self.losses.append(y.detach() / len(self.inputs))",
)
bank.wrong(
    "other-order",
    "forward and backward of the same micro-batch in turn",
    turns="turns += [(FORWARD, i + ahead), (BACKWARD, i + ahead)]",
    rest="return first + turns + [(BACKWARD, i) for i in range(ahead)]",
)
bank.wrong(
    "backward-before-forward", "as many ahead as there are ranks before", ahead="ahead = min(micro_batches, rank)"
)
bank.wrong(
    "losses-of-other-ranks",
    "zeros for losses on the other ranks",
    send="work = dist.isend(y.detach(), dst=self.rank + 1)\nself.losses.append(torch.zeros(()))",
)
bank.wrong(
    "losses-of-other-ranks",
    "None for a loss on the other ranks",
    send="work = dist.isend(y.detach(), dst=self.rank + 1)\nself.losses.append(None)",
)
bank.right(
    "receives into parts of one tensor",
    buffer="""if not hasattr(self, "every"): self.every = torch.empty(len(self.inputs), *self.shape)
x = self.every[micro].detach()""",
)
bank.right(
    "waits for the gradient before",
    **{
        "send back": "while self.sending: self.sending.pop().wait()\n"
        "self.sending.append(dist.isend(x.grad, dst=self.rank - 1))"
    },
)
bank.wrong(
    "waits-in-backward", "the gradient's send waits", **{"send back": "dist.send(x.grad, dst=self.rank - 1)"}
)
bank.wrong(
    "waits-in-backward",
    "isend, and its wait behind it",
    slow=True,
    **{"send back": "work = dist.isend(x.grad, dst=self.rank - 1)\nwork.wait()"},
)
bank.wrong("gradient-not-used", "backward of the output's sum", backward="y.sum().backward()")
bank.wrong(
    "gradient-not-used",
    "backward of the output's mean",
    slow=True,
    backward="torch.mean(y).backward()",
)
bank.wrong("divided-by-another-number", "divided by the ranks", loss="y = self.loss_of(y, micro) / self.ranks")
bank.wrong(
    "backward-before-recv",
    "backward before the gradient is received",
    back="gradient.copy_(y.detach())\ny.backward(gradient)",
    backward="dist.recv(gradient, src=self.rank + 1)",
    wait="work.wait()",
)
bank.wrong(
    "micro-batches-missing",
    "the last backward passes begin at 0 again",
    slow=True,
    rest="""actions = first + turns
for i in range(ahead):
    actions.append((BACKWARD, i))
return actions""",
)
bank.wrong(
    "micro-batches-missing",
    "backward one too far in each turn",
    slow=True,
    turns="turns += [(FORWARD, i + ahead), (BACKWARD, i + 1)]",
)
bank.wrong(
    "no-such-micro-batch",
    "forward one too far in each turn",
    slow=True,
    turns="turns += [(FORWARD, i + ahead + 1), (BACKWARD, i)]",
)
bank.wrong(
    "not-gpipe",
    "each backward pass behind its forward pass",
    slow=True,
    whole={
        "9.6a": """
for i in range(micro_batches):
    yield FORWARD, i
    yield BACKWARD, i
"""
    },
)
bank.wrong(
    "one-buffer-for-all",
    "a tensor for all that is made when it is needed",
    slow=True,
    buffer="""if not hasattr(self, "buffer"):
    self.buffer = self.empty()
x = self.buffer.detach()""",
)
bank.wrong(
    "no-backward",
    "the gradient of the input alone, but on the first rank",
    slow=True,
    backward="if not self.rank: y.backward(gradient)\nelse: x.grad = torch.autograd.grad(y, x, gradient)[0]",
    **{"of the loss": "x.grad = torch.autograd.grad(y, x)[0]"},
)

bank.wrong(
    "not-divided",
    "noted before it is divided",
    slow=True,
    loss="y = self.loss_of(y, micro)",
    note="self.losses.append(y.detach())\ny = y / len(self.inputs)",
)
bank.wrong(
    "tags-differ",
    "gradients are sent with a tag",
    slow=True,
    whole={
        "9.6d": """
x, y, work = self.held.pop(micro)
gradient = None
if not self.is_last:
    gradient = self.empty()
    dist.recv(gradient, src=self.rank + 1)
    work.wait()
y.backward(gradient)
if not self.is_first:
    self.sending.append(dist.isend(x.grad, dst=self.rank - 1, tag=micro))
"""
    },
)
bank.right(
    "gradients with a tag on both sides",
    slow=True,
    whole={
        "9.6d": """
x, y, work = self.held.pop(micro)
gradient = None
if not self.is_last:
    gradient = self.empty()
    dist.recv(gradient, src=self.rank + 1, tag=micro)
    work.wait()
y.backward(gradient)
if not self.is_first:
    self.sending.append(dist.isend(x.grad, dst=self.rank - 1, tag=micro))
"""
    },
)
bank.wrong(
    "activations-kept",
    "the first rank returns before it gives anything up",
    slow=True,
    whole={
        "9.6d": """
x, y, work = self.held[micro]
gradient = None
if not self.is_last:
    gradient = self.empty()
    dist.recv(gradient, src=self.rank + 1)
    work.wait()
y.backward(gradient)
if self.is_first:
    return
self.sending.append(dist.isend(x.grad, dst=self.rank - 1))
del self.held[micro]
"""
    },
)
bank.wrong(
    "activations-kept",
    "given up where a gradient is sent back",
    slow=True,
    whole={
        "9.6d": """
x, y, work = self.held[micro]
gradient = None
if not self.is_last:
    gradient = self.empty()
    dist.recv(gradient, src=self.rank + 1)
    work.wait()
y.backward(gradient)
if not self.is_first:
    self.sending.append(dist.isend(x.grad, dst=self.rank - 1))
    self.held.pop(micro)
"""
    },
)
