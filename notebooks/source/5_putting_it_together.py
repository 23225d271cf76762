# %% [markdown]
# # 5 · Putting it together
#
# | minutes | before this | you write |
# |---|---|---|
# | 30 | sections [1](1_model.ipynb) to [4](4_wrapping.ipynb), all of their exercises | exercise 5.1 in [exercises/main.py](../exercises/main.py) |
#
# **Afterwards you can** put a distributed program in order from the process group to the last epoch, and start it.
#
# **Words:** [launcher](../docs/glossary.md#launcher), [wrapper](../docs/glossary.md#wrapper), [node](../docs/glossary.md#node).

# %%
# Run this cell first, here and in every notebook.
from lab.notebook import answer, check, figures, hint, progress, question, trace

# %% [markdown]
# ## The idea
#
# You have all the parts. What is left is their order, and it matters: some steps need what an earlier one made, and at some of
# them all ranks meet.

# %%
figures.run_in_order()

# %%
question("order-of-main")

# %% [markdown]
# ## Exercise 5.1: put it all together
#
# *Difficulty ●●○, importance ●●●, 30 minutes.*
#
# `TODO 5.1a` and `TODO 5.1b` in [exercises/main.py](../exercises/main.py). This exercise builds on the ones before: if one of them
# has not passed, the card says "blocked" and names it.

# %% check="5.1"
check("5.1")

# %% [markdown]
# Now start your program, in a terminal. A dry run does everything but the training, which is section 6:
#
# ```
# torchrun --standalone --nproc-per-node 2 \
#     exercises/main.py --strategy ddp --dry-run
# ```
#
# `python exercises/main.py --help` lists everything that you can choose.
#
# **On a cluster with Slurm** the job script starts it: `sbatch run.sh --strategy ddp --dry-run`. Two of its lines decide how many
# ranks there are: `--nodes` says on how many machines, `--ntasks-per-node` how many processes on each, one for each of its GPUs. The
# world size is the product of the two. Open [run.sh](../run.sh) and find them; options before the script's name override them:
#
# ```
# sbatch --nodes=2 --ntasks-per-node=4 run.sh --strategy ddp --dry-run
# ```
#
# What world size is that? Which local ranks are there, and which rank is the first on the second node?

# %%
question("share-of-a-job")

# %% [markdown]
# ## What each rank keeps
#
# Your own parts once more, on two ranks: how many of the network's numbers does a rank have after wrapping, and does an optimizer that
# was made before still hold the network's parameters? Predict all four rows.

# %%
# %%ranks 2
from ddp_utils import get_ddp_model  # yours, all three
from fsdp_utils import get_fsdp_model
from model import CNN

for name, wrap in (("DDP", get_ddp_model), ("FSDP", get_fsdp_model)):
    model = CNN()
    early = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped = wrap(model, torch.device("cpu"))
    own = [p.to_local() if name == "FSDP" else p for p in wrapped.parameters()]
    show(f"{name}: it keeps", sum(p.numel() for p in own))
    held = early.param_groups[0]["params"]
    show(f"{name}: early optimizer", "its parameters" if held[0] is next(wrapped.parameters()) else "others")

# %% [markdown]
# **Question.** Why is the optimizer built from the wrapped model, after the wrapping? What would an optimizer that was built before hold
# when the model is sharded with FSDP?

# %% [markdown] answer="optimizer-after-wrapping" points=2
# *Write your answer here.*

# %% [markdown]
# **Look it up:** [sbatch](https://slurm.schedmd.com/sbatch.html) (`--nodes`, `--ntasks-per-node`, `--gpus-per-node`),
# [torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html) (`--nnodes`, `--nproc-per-node`),
# [torch.optim](https://docs.pytorch.org/docs/stable/optim.html).
#
# **Bonus:** start the dry run with 3 ranks and `--global-batch-size 512`, which 3 does not divide. Who says so, and where? (The
# first line tells; what torchrun adds below it says no more than that a rank has failed.)
# Then with 2 ranks and `--strategy none`.
#
# **What you could not do before:** start a distributed program of your own, on a laptop and in a job, and say why its steps are in this
# order.
#
# Next: [6 The training loop](6_training_loop.ipynb).
