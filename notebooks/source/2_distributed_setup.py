# %% [markdown]
# # 2 · Ranks and devices
#
# | minutes | before this | you write |
# |---|---|---|
# | 35 | [1 The model](1_model.ipynb) | exercises 2.1, 2.2, 2.3 in [exercises/distributed_utils.py](../exercises/distributed_utils.py) |
#
# **Afterwards you can** start one program on many ranks with torchrun or Slurm, say what each rank knows about itself, and give each
# its own device.

# %%
# Run this cell first, here and in every notebook.
from lab.notebook import check, figures, hint, progress, trace

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

# %% [markdown]
# ## Exercise 2.1: who am I?
#
# Find `TODO 2.1` in [exercises/distributed_utils.py](../exercises/distributed_utils.py). Be strict: if a variable is missing, a program
# that guesses "world size 1" trains alone on every rank, and looks perfectly well while it does.

# %% check="2.1"
check("2.1")

# %% [markdown]
# ## Exercise 2.2: join the process group
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
# ## Exercise 2.3: leave in good order
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
# Next: [3 The data](3_data.ipynb).
