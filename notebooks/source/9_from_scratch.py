# %% [markdown]
# # 9 · Build it yourself
#
# | minutes | before this | you write |
# |---|---|---|
# | 400 | [6 The training loop](6_training_loop.ipynb); this section is for who wants more | exercises 9.1 to 9.7 in [exercises/from_scratch/](../exercises/from_scratch/ring.py) |
#
# **Afterwards you can** say what DDP, ZeRO and FSDP do when nobody looks, because you have written it: which rank sends what to whom, when,
# and how many bytes. Each exercise is a file of its own with a hundred lines or so, not counting what explains them.

# %%
# Run this cell first, here and in every notebook.
from lab.notebook import check, figures, hint, progress, trace

# %% [markdown]
# ## Exercise 9.1: an all-reduce around a ring
#
# `dist.all_reduce(tensor)` of section 4 was one call. Below it there are only messages: one rank **sends** a tensor, another one
# **receives** it. `dist.isend` and `dist.irecv` begin, and return something to `wait()` for.

# %%
figures.ring_all_reduce(ranks=4)

# %% [markdown]
# The first N-1 steps, three for four ranks, are the **reduce-scatter**: each part travels around the ring, and every rank adds its own to
# it. The last N-1 are the **all-gather**. These two halves are what FSDP uses one by one (exercise 9.4).
#
# How much travels? A rank sends 2(N-1) parts of 1/N each. So it hardly matters how many ranks there are:

# %%
figures.all_reduce_bytes(ranks=8)

# %% [markdown]
# `TODO 9.1a`, `TODO 9.1b` and `TODO 9.1c` in [exercises/from_scratch/ring.py](../exercises/from_scratch/ring.py). The check runs your
# ring on 3 and on 4 ranks, with lengths that do and do not divide, compares the sums, and counts the bytes of each rank's messages.

# %% check="9.1"
check("9.1")

# %% [markdown]
# The figure above was made up; this one is your own ring's, from the messages that your ranks sent. Does each part come to each rank?

# %%
trace("9.1")

# %% [markdown]
# Try out what everybody gets wrong once: `dist.recv` before `dist.send` on all ranks. The check says who waits for whom. Then put
# the send first, and look at what it says now.

# %% [markdown]
# **Question.** The ring sends hardly more than twice the tensor, however many ranks there are. Why is it nevertheless slow for small
# tensors on many ranks? What do DDP's buckets do about that?

# %% [markdown] answer="ring-latency" points=2
# *Write your answer here.*

# %% [markdown]
# ## Exercise 9.2: DDP
#
# In section 4 you averaged gradients by hand: after the backward pass, one all-reduce for each parameter. DDP does it *during* the
# backward pass, in buckets. Make the buckets smaller, then larger: when does the first one begin to travel?

# %%
figures.averaging(bucket_cap_mb=10)

# %% [markdown]
# You write which parameters share a bucket (`TODO 9.2a`), how all ranks begin alike, and what is called when a gradient is complete
# (`TODO 9.2b`), what happens then (`TODO 9.2c`, `TODO 9.2d`), and what is left to do after the backward pass (`TODO 9.2e`), in
# [exercises/from_scratch/ddp.py](../exercises/from_scratch/ddp.py). A **hook** is a function that PyTorch calls for you:
# `parameter.register_post_accumulate_grad_hook(f)` calls `f(parameter)` as soon as its gradient is there.
#
# The check trains a network with a layer that is used twice, one that rank 0 never uses, one that is frozen, and a buffer. It notes
# every collective: how large, in which order, and whether the first one began before the backward pass was over.

# %% check="9.2"
check("9.2")

# %% [markdown]
# When did *your* buckets travel? Drawn from a run of your MyDDP. The layers are numbered from the input, so that layer 6 comes first:

# %%
trace("9.2")

# %% [markdown]
# **Question.** Rank 0 uses layers A and C in a step, rank 1 layers A and B. Why must a bucket that is full wait until all buckets before it
# have begun? What happens if it does not?

# %% [markdown] answer="buckets-in-order" points=3
# *Write your answer here.*

# %% [markdown]
# Your DDP trains the lab's networks as PyTorch's does, and to the same losses, when your main.py is finished. In a terminal, in the folder
# of `run.sh`: `torchrun --standalone --nproc-per-node 2 exercises/main.py --strategy my-ddp --epochs 2`, and then `--strategy ddp`.

# %% [markdown]
# ## Exercise 9.3: a sharded optimizer
#
# With DDP all ranks hold the same. Adam's states alone are twice the parameters, and every rank has all of them, although each number
# needs to be stepped only once. ZeRO takes away what is held more than once, in three stages. Change the number of ranks:

# %%
figures.zero_stages(ranks=4)

# %% [markdown]
# You write the first stage: deal the parameters out (`TODO 9.3a`), let each rank's optimizer know its own share only (`TODO 9.3b`), step
# (`TODO 9.3c`), and hand out what came of it (`TODO 9.3d`), in [exercises/from_scratch/zero.py](../exercises/from_scratch/zero.py). The
# optimizer may be any of PyTorch's: yours goes around it.
#
# The check steps AdamW, SGD with momentum and Adagrad on three ranks, each with two parameter groups. It weighs the states that each rank
# keeps, counts what travels, and compares the weights with those of one process.

# %% check="9.3"
check("9.3")

# %% [markdown]
# **Question.** With Adam your ZeRO-1 holds far less than DDP, and with SGD without momentum nothing less. Why? And your hand-out sends more
# than DDP does: how much, and with which collectives in place of the all-reduce would ZeRO send no more than DDP?

# %% [markdown] answer="zero-states" points=3
# *Write your answer here.*

# %% [markdown]
# `--strategy my-zero` trains with it: PyTorch's DDP averages the gradients, and your optimizer goes around the one that your main.py makes.
# Compare `held_mb` in its `run.csv` with that of `--strategy ddp`, with `--optimizer adamw`.

# %% [markdown]
# ## Exercise 9.4: FSDP
#
# DDP keeps everything on every rank. FSDP keeps a **shard**, and gathers a block only while it is computed. Step through it: at which
# moment is most in memory?

# %%
figures.fsdp_timeline(blocks=3)

# %% [markdown]
# You write what a rank keeps of a block (`TODO 9.4a`), how the block becomes whole (`TODO 9.4b`) and is freed (`TODO 9.4c`), where its
# gradients go (`TODO 9.4d`), and the hooks that call all this at the right moment (`TODO 9.4e`), in
# [exercises/from_scratch/fsdp.py](../exercises/from_scratch/fsdp.py). A tensor is a view of a **storage**, its memory. A storage can be
# resized to 0 bytes and back: the block's parameters stay what autograd knows, and only their memory comes and goes.
#
# The check counts the collectives of each
# block and the bytes of all tensors that are alive, and compares the trained weights with those of one process.

# %% check="9.4"
check("9.4")

# %% [markdown]
# `--strategy my-fsdp` trains with it. Compare `my-ddp` and `my-fsdp` with PyTorch's: where does the difference come from?

# %% [markdown]
# **Question.** FSDP sends one all-gather more than DDP's all-reduce consists of. By how much is that more, in bytes, for N ranks? And
# why is it often slower by more than that?

# %% [markdown] answer="fsdp-bytes" points=3
# *Write your answer here.*

# %% [markdown]
# ## Exercise 9.5: tensor parallelism
#
# FSDP still computes every layer as a whole. Where one layer is too large even for that, it is cut, and each rank computes with its part,
# for *all* images: no rank has a batch of its own. Follow x through half a block, and its gradient back:

# %%
figures.tensor_parallel_block(ranks=2)

# %% [markdown]
# You write what a rank keeps (`TODO 9.5a`), the two functions that are each other's reverse (`TODO 9.5b`, `TODO 9.5c`), the two layers
# (`TODO 9.5d` to `TODO 9.5g`), and cut a block of the lab's vision transformer with them (`TODO 9.5h`), in
# [exercises/from_scratch/tensor_parallel.py](../exercises/from_scratch/tensor_parallel.py).
#
# The check cuts two blocks on two ranks. It counts the all-reduces of each direction, looks for weights that are whole somewhere, and
# compares outputs, gradients and losses with those of one process.

# %% check="9.5"
check("9.5")

# %% [markdown]
# A program is given that trains a small vision transformer with it, and with what you write in 9.6 and 9.7:
# [exercises/from_scratch/main.py](../exercises/from_scratch/main.py). In a terminal, in the folder `exercises`:
#
# ```
# torchrun --standalone --nproc-per-node 2 from_scratch/main.py tensor --compare
# ```
#
# `--compare` trains the same once more in one process and puts the losses beside each other. On a CPU it takes a minute or two; `--help`
# lists the options.

# %% [markdown]
# **Question.** A block has four all-reduces a step, none of which can wait: the next layer needs its result. DDP has one for each bucket, and
# hides most of them. What follows for where tensor parallelism is used: between the GPUs of a node, or between nodes? And why does DDP send
# less the smaller the model is, and tensor parallelism less the smaller the batch is?

# %% [markdown] answer="tensor-parallel-where" points=3
# *Write your answer here.*

# %% [markdown]
# ## Exercise 9.6: a pipeline
#
# The layers can also be cut the other way: rank 0 has the first ones, rank 1 those behind, and so on. What travels is one tensor between
# neighbours, and so little that slow links will do. But a rank that waits for its neighbour computes nothing, and so the batch is cut into
# micro-batches. Change their number, and compare `schedule="gpipe"` with `schedule="1f1b"`:

# %%
figures.pipeline_schedule(ranks=3, micro_batches=4, schedule="1f1b")

# %% [markdown]
# You write both orders (`TODO 9.6a`, `TODO 9.6b`), and what a stage does in them (`TODO 9.6c`, `TODO 9.6d`), in
# [exercises/from_scratch/pipeline.py](../exercises/from_scratch/pipeline.py).
#
# The check plays the schedules through and measures the bubble; then it trains three stages with both, compares losses and gradients with
# those of one process, and weighs the activations that are alive at once. Where the ranks wait for each other for ever, it says who waits
# for whom.

# %% check="9.6"
check("9.6")

# %% [markdown]
# And this is how *your* pipeline ran. Where are its gaps, and why are there more than in the figure above?

# %%
trace("9.6")

# %% [markdown]
# Train with it: `torchrun --standalone --nproc-per-node 2 from_scratch/main.py pipeline --schedule gpipe`, and then `--schedule 1f1b` and
# other `--micro-batches`. With one micro-batch the ranks take turns: what does that make of `images_per_sec`?

# %% [markdown]
# **Question.** With 4 ranks, how many micro-batches does it take until the bubble is less than a tenth? Why not simply take very many? And what
# does 1F1B gain over GPipe, if not time?

# %% [markdown] answer="pipeline-bubble" points=3
# *Write your answer here.*

# %% [markdown]
# ## Exercise 9.7: two dimensions
#
# Real trainings combine these. Here are two of them: FSDP inside of each node, where links are fast, and DDP between nodes, where they
# are slow. Four ranks make a table of two nodes with two ranks each, and each rank is in two groups: its **shard group** is its row, its
# **replicate group** its column.
#
# | | position 0 | position 1 |
# |---|---|---|
# | node 0 | rank 0 | rank 1 |
# | node 1 | rank 2 | rank 3 |

# %%
figures.two_dimensions(nodes=2, ranks_per_node=2, mb=100)

# %% [markdown]
# You make the groups (`TODO 9.7a`), the shards (`TODO 9.7b`), and decide what goes over which group (`TODO 9.7c`, `TODO 9.7d`), in
# [exercises/from_scratch/hsdp.py](../exercises/from_scratch/hsdp.py). Between steps nothing whole is left (`TODO 9.7e`).
#
# The check notes for every collective which ranks take part and how many bytes go inside of a node and between nodes, and compares
# parameters and gradients with those of one process.

# %% check="9.7"
check("9.7")

# %%
trace("9.7")

# %% [markdown]
# Train with it: `torchrun --standalone --nproc-per-node 4 from_scratch/main.py hsdp --compare`. Four ranks on your machine play two nodes.

# %% [markdown]
# **Question.** A model has W bytes of parameters; there are 8 nodes with 4 GPUs each. What does a rank send between nodes in a step with
# HSDP, and what would it be with DDP over all 32? What does HSDP cost in memory, compared with FSDP over all 32?

# %% [markdown] answer="hsdp-bytes" points=3
# *Write your answer here.*

# %% [markdown]
# **Look it up:** [point-to-point communication](https://docs.pytorch.org/docs/stable/distributed.html#point-to-point-communication) in
# PyTorch, and what [all_reduce](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce) promises; Patarasuk and Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*.

# %%
progress()
