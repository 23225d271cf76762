# %% [markdown]
# # 2 · Ranks and devices
#
# | minutes | before this | you write |
# |---|---|---|
# | 35 | [1 The model](1_model.ipynb) | exercises 2.1, 2.2, 2.3 in [exercises/distributed_utils.py](../exercises/distributed_utils.py) |
#
# **Afterwards you can** start one program on many ranks with torchrun or Slurm, say what each rank knows about itself, and give each
# its own device.
#
# **Words:** [rank](../docs/glossary.md#rank), [local rank](../docs/glossary.md#local-rank), [node](../docs/glossary.md#node), [world size](../docs/glossary.md#world-size), [launcher](../docs/glossary.md#launcher), [process group](../docs/glossary.md#process-group), [backend](../docs/glossary.md#backend), [collective](../docs/glossary.md#collective), [trace](../docs/glossary.md#trace).

# %%
# Run this cell first, here and in every notebook.
from lab.notebook import answer, check, figures, hint, progress, question, trace

# %% [markdown]
# ## The idea
#
# A launcher starts the same program many times and tells each copy its place in environment variables. The **rank** counts
# processes in the whole job, the **local rank** those on one node, both from 0; the **world size** is how many there are in all.
# The processes meet at an address that all of them are told (`MASTER_ADDR`, `MASTER_PORT`; torchrun sets it, and the job script for
# srun) and form a **process group**; only then can they communicate.

# %%
figures.rank_map(nodes=2, gpus_per_node=4)

# %% [markdown]
# Try `nodes=3, gpus_per_node=2`. Which numbers exist once in the job, and which once on each node?
#
# There are two launchers. **torchrun** comes with PyTorch. It starts processes on the node where you call it and can start them again
# when one fails; for more nodes it is called on each. **srun** comes with Slurm. It starts any program, torchrun too, on all nodes
# that the job has been given.
#
# | | torchrun | srun |
# |---|---|---|
# | rank | `RANK` | `SLURM_PROCID` |
# | local rank | `LOCAL_RANK` | `SLURM_LOCALID` |
# | world size | `WORLD_SIZE` | `SLURM_NTASKS` |

# %%
question("global-rank")

# %% [markdown]
# ## Exercise 2.1: who am I?
#
# *Difficulty ●●○, importance ●●●, 15 minutes.*
#
# Find `TODO 2.1` in [exercises/distributed_utils.py](../exercises/distributed_utils.py). Be strict: if a variable is missing, a program
# that guesses "world size 1" trains alone on every rank, and looks perfectly well while it does.

# %% check="2.1"
check("2.1")

# %% [markdown]
# ## Exercise 2.2: join the process group
#
# *Difficulty ●●○, importance ●●●, 15 minutes.*
#
# `TODO 2.2`: choose the device first, then join the group with `dist.init_process_group`. With CUDA the ranks talk through **nccl**, without through **gloo**.

# %% check="2.2"
check("2.2")

# %% [markdown]
# **Question.** Why does the local rank choose the device, and not the rank? What would happen on the second node of a job with two nodes
# of four GPUs, if it were the rank?

# %% [markdown] answer="why-local-rank" points=2
# *Write your answer here.*

# %% [markdown]
# **Question.** srun or torchrun: what does each of the two do for you? When would you take which, and when both?

# %% [markdown] answer="srun-or-torchrun" points=2
# *Write your answer here.*

# %% [markdown]
# ## Six collectives
#
# A cell that begins with `%%ranks 3` runs on three ranks of its own: real processes, with a process group. In it `rank`,
# `world_size`, `torch` and `dist` (`torch.distributed`) are there already, and `show(name, value)` puts a row into the table below.
# The first collective: **all_reduce** adds up a tensor over all ranks, and all of them get the sum.

# %%
# %%ranks 3
x = torch.tensor([1.0, 2.0]) * (rank + 1)
show("before", x)
dist.all_reduce(x)
show("after", x)

# %% [markdown]
# The picture below the table is the **trace**: one column for each rank, one row for each collective, joined where the ranks met.
# Several in a row from one line of code share a row: `x3` are three collectives, and the title counts them one by one.
#
# **broadcast** gives all ranks what one of them has. **all_gather** gives all of them everything.

# %%
# %%ranks 3
x = torch.full((2,), float(rank))
show("before broadcast", x)
dist.broadcast(x, src=2)
show("after broadcast", x)

mine = torch.tensor([10.0 * rank, 10.0 * rank + 1])
everything = [torch.empty(2) for _ in range(world_size)]
show("before all_gather", mine)
dist.all_gather(everything, mine)
show("after all_gather", everything)

# %% [markdown]
# **reduce_scatter** adds up like all_reduce, but leaves each rank only its own part of the sum. **all_to_all** sends part *i* of every
# rank to rank *i*: rows become columns. Predict the last row before you run it. (In the trace one reduce_scatter is `x3`: on the CPU it is made of
# one collective for each rank.)

# %%
# %%ranks 3
x = torch.tensor([1.0, 2.0, 3.0]) + 10 * rank
part = torch.empty(1)
show("before", x)
dist.reduce_scatter(part, list(x.split(1)))
show("after reduce_scatter", part)

swapped = torch.empty(3)
dist.all_to_all_single(swapped, x)
show("after all_to_all", swapped)

# %% [markdown]
# A **barrier** moves nothing: nobody passes before all have come. Here rank 0 comes half a second late.

# %%
# %%ranks 3
import time

start = time.monotonic()
if rank == 0:
    time.sleep(0.5)
dist.barrier()
show("seconds at the barrier", round(time.monotonic() - start, 1))

# %% [markdown]
# | collective | before, on rank r | after, on rank r | used for |
# |---|---|---|---|
# | `barrier` | - | - | waiting: a download (section 3) |
# | `broadcast` | a tensor | that of the rank `src` | the same weights everywhere (4) |
# | `all_reduce` | a tensor | the sum of all | averaging gradients (4), counting (6) |
# | `all_gather` | a part | all parts, one after the other | FSDP: a block's parameters (4) |
# | `reduce_scatter` | a tensor | part r of the sum | FSDP: gradients (4) |
# | `all_to_all` | W parts | part r of every rank | models of experts, not in this lab |
#
# Can you make an all_reduce from two of the others? Try it, in a cell of your own.

# %%
question("sum-everywhere")

# %%
question("own-part")

# %% [markdown]
# Now what happens to almost everybody once: one rank leaves out a collective. Nothing raises, the others wait for it for ever. Which line
# will wait, and for whom? Predict, run it, then repair it.

# %%
# %%ranks 3
loss = torch.tensor([0.5 + rank])
if rank == 0:
    dist.all_reduce(loss)
    print("mean loss", loss.item() / world_size)
dist.barrier()

# %%
question("who-waits")

# %%
question("line-that-hangs")

# %% [markdown]
# ## Exercise 2.3: leave in good order
#
# *Difficulty ●○○, importance ●●○, 5 minutes.*
#
# A process group is threads and open connections to the other ranks, with nccl GPU memory too. A process has one *default* group, of
# all ranks, and must leave it before it can join another; further groups of some of its ranks are made with `dist.new_group`.
# `TODO 2.3a` and `TODO 2.3b`: leave the group, and know whether you are the rank that prints and writes files.

# %% check="2.3"
check("2.3")

# %% [markdown]
# **Question.** What can happen if `cleanup()` is left out at the end of the program?

# %% [markdown] answer="no-cleanup" points=2
# *Write your answer here.*

# %% [markdown]
# ## On your own
#
# Each rank goes at its own pace. Here each waits up to a second before it says who it is. In a terminal:
#
# ```
# torchrun --standalone --nproc-per-node 3 --no-python \
#     bash -c 'sleep 0.$((RANDOM % 90 + 10)); echo rank $RANK of $WORLD_SIZE'
# ```
#
# Run it a few times: the order is another one each time. What would you have to add so that rank 0 is always the first?
#
# **Look it up:** [torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html),
# [torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) (initialization, backends),
# [srun](https://slurm.schedmd.com/srun.html) (its output environment variables),
# [NCCL's environment variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html).
#
# **Bonus:** all_reduce with nothing but `dist.send` and `dist.recv`, in a `%%ranks 3` cell: pass sums around a ring. Section 4 shows
# how the fast one goes.
#
# **What you could not do before:** start one program on many ranks, let them talk, and say which line hangs when they do not.
#
# Next: [3 The data](3_data.ipynb).
