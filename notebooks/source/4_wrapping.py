# %% [markdown]
# # 4 · Wrapping the model
#
# | minutes | before this | you write |
# |---|---|---|
# | 50 | [3 The data](3_data.ipynb) | 4.0, 4.1 in [exercises/ddp_utils.py](../exercises/ddp_utils.py), 4.2 in [exercises/fsdp_utils.py](../exercises/fsdp_utils.py) |
#
# **Afterwards you can** average gradients by hand, with DDP and with FSDP, and say for each what is replicated, what is sharded, and
# when the ranks communicate.
#
# **Words:** [all-reduce](../docs/glossary.md#all-reduce), [DDP](../docs/glossary.md#ddp), [bucket](../docs/glossary.md#bucket), [FSDP](../docs/glossary.md#fsdp), [replicated](../docs/glossary.md#replicated), [shard](../docs/glossary.md#shard), [mesh](../docs/glossary.md#mesh), [all-gather](../docs/glossary.md#all-gather), [reduce-scatter](../docs/glossary.md#reduce-scatter), [mixed precision](../docs/glossary.md#mixed-precision), [wrapper](../docs/glossary.md#wrapper).

# %%
# Run this cell first, here and in every notebook.
from lab.notebook import answer, check, figures, hint, progress, question, trace

# %% [markdown]
# ## How ranks add up
#
# An **all-reduce** replaces a tensor on every rank by the sum over all ranks. Going around a ring, no rank becomes a bottleneck. Step
# through it.

# %%
figures.ring_all_reduce(ranks=4)

# %% [markdown]
# Before you try `ranks=6`: how many steps will it take, and how much will each rank send in all?

# %%
question("ring-steps")

# %% [markdown]
# ## Exercise 4.0: average gradients by hand
#
# *Difficulty ●○○, importance ●●●, 15 minutes.*
#
# Every rank has the gradient of its own samples. The mean of these is the gradient of the whole batch, since every rank has equally
# many, and since no sample's gradient depends on the others in its batch. (That is why section 1's network has no BatchNorm: its mean
# would be of a rank's own few images. With it, four ranks train another network than one.) `TODO 4.0` in [exercises/ddp_utils.py](../exercises/ddp_utils.py).

# %% check="4.0"
check("4.0")

# %% [markdown]
# ## By hand, or in DDP's buckets
#
# By hand the communication begins when the backward pass is over. **DistributedDataParallel** (DDP) collects gradients in
# **buckets**, and all-reduces each as soon as it is full, while the backward pass goes on with the earlier layers.

# %%
figures.averaging(bucket_cap_mb=25)

# %% [markdown]
# Predict, then try: `bucket_cap_mb=1`, `bucket_cap_mb=100`. Then make starting a collective expensive: `latency_ms=6`, with 1, 25 and 100.
# Why is neither the smallest nor the largest bucket the best?

# %%
question("first-bucket")

# %% [markdown]
# ## Exercise 4.1: let DDP do it
#
# *Difficulty ●○○, importance ●●●, 10 minutes.*
#
# `TODO 4.1`, in the same file.

# %% check="4.1"
check("4.1")

# %% [markdown]
# Both pass? Then compare your two ways on two real ranks. Each has four samples of its own, so its own gradient is another one. How large
# will the last row be?

# %%
# %%ranks 2
import copy

from ddp_utils import average_gradients, get_ddp_model  # yours

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
ddp = get_ddp_model(copy.deepcopy(model), torch.device("cpu"))
torch.manual_seed(1 + rank)
samples = torch.randn(4, 3)
for one in (model, ddp):
    one(samples).square().mean().backward()
show("own gradient", model.weight.grad)
average_gradients(model)
show("by hand", model.weight.grad)
show("DDP", ddp.module.weight.grad)
show("largest difference", (model.weight.grad - ddp.module.weight.grad).abs().max())

# %% [markdown]
# ## Replicated or sharded
#
# DDP keeps a whole copy of everything on every rank: everything is **replicated**. **Fully sharded data parallel** (FSDP) keeps only a
# **shard** on each, one part of W, of the parameters, the gradients and the optimizer state.

# %%
figures.memory(million_parameters=100, ranks=4, optimizer="adam", blocks=12)

# %% [markdown]
# Try `ranks=16`, then `blocks=1`, then this lab's CNN: `million_parameters=0.11, ranks=2, optimizer="momentum", blocks=3`.

# %%
question("shards-memory")

# %% [markdown]
# ## One step under FSDP
#
# No rank can compute with a part of the weights. So before a block computes, its parameters are gathered from all ranks (**all-gather**),
# and freed again afterwards; in the backward pass once more. A block's gradients are summed and handed out in shards
# (**reduce-scatter**), and each rank's optimizer changes its own shards only.

# %%
figures.fsdp_timeline(blocks=3, ranks=4)

# %% [markdown]
# Try `blocks=5`, then `blocks=1`: how much does a rank hold at its worst moment, in blocks? What does FSDP save if the whole model is
# one block?
#
# **How much is sent?** On a ring, an all-gather and a reduce-scatter each send (W - 1)/W of the tensor: call that one unit of the model.
# Section 2 asked how to make an all-reduce from two of the others: a reduce-scatter, then an all-gather. So how many units does DDP send
# in a step, and how many FSDP? Count the letters in the figure, and work it out for a model of your own:

# %%
question("ddp-sends")

# %%
question("fsdp-sends")

# %% [markdown]
# And here it is, the smallest model that is sharded, on two real ranks. Compare the trace with the figure.

# %%
# %%ranks 2
from torch import nn
from torch.distributed.fsdp import fully_shard

torch.manual_seed(0)  # the same weights on every rank
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
show("of its 8 rows it keeps", len(model[0].weight.to_local()))

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.ones(3, 4) * rank).sum()
loss.backward()
show("its part of the last bias' gradient", model[2].bias.grad.to_local())
optimizer.step()

# %% [markdown]
# **Question.** For DDP and for FSDP: which of parameters, gradients and optimizer state are replicated, and which are sharded? What of
# the activations?

# %% [markdown] answer="replicated-or-sharded" points=2
# *Write your answer here.*

# %% [markdown]
# ## Exercise 4.2: shard the model with FSDP
#
# *Difficulty ●●●, importance ●●●, 25 minutes.*
#
# **Mixed precision** means to compute in 16 bits (bf16 or fp16), which is faster and halves what is sent, and to keep in 32 bits (fp32)
# what would suffer: the parameters that the optimizer changes, the sum of the gradients, the logits that the loss is made from.
#
# `TODO 4.2` in [exercises/fsdp_utils.py](../exercises/fsdp_utils.py). Below it stands `get_fsdp1_model`, complete: the same with PyTorch's
# first FSDP. Read it; the next questions are about it.

# %% check="4.2"
check("4.2")

# %% [markdown]
# **Question.** What does `auto_wrap_policy` do in `get_fsdp1_model`, and what takes its place with `fully_shard`?

# %% [markdown] answer="auto-wrap-policy" points=2
# *Write your answer here.*

# %% [markdown]
# **Question.** What does `MixedPrecision` do there, with its `param_dtype` and `reduce_dtype`, and what takes its place with `fully_shard`?

# %% [markdown] answer="mixed-precision-policy" points=2
# *Write your answer here.*

# %% [markdown]
# **Question.** What does `ShardingStrategy.FULL_SHARD` choose, and what takes its place with `fully_shard`?

# %% [markdown] answer="full-shard" points=2
# *Write your answer here.*

# %% [markdown]
# **Question.** When would you choose FSDP rather than DDP, and what does it cost?

# %% [markdown] answer="when-fsdp" points=2
# *Write your answer here.*

# %% [markdown]
# **Look it up:** [DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)
# and [how it works inside](https://docs.pytorch.org/docs/stable/notes/ddp.html),
# [fully_shard](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html),
# [the first FSDP](https://docs.pytorch.org/docs/stable/fsdp.html),
# [NCCL's collectives](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/collectives.html).
#
# **Bonus:** in the small sharded model above, leave out the two inner `fully_shard` calls. How does the trace change, and what is whole
# in memory at the worst moment? Then shard each layer and pass `reshard_after_forward=False`: which all-gathers vanish, and what do they cost?
#
# **What you could not do before:** train a model that does not fit on one device, and say what that costs in bytes.
#
# Next: [5 Putting it together](5_putting_it_together.ipynb).
