# %% [markdown]
# # 6 · The training loop
#
# | minutes | before this | you write |
# |---|---|---|
# | 55 | [5 Putting it together](5_putting_it_together.ipynb), to run the program | exercises 6.1, 6.2, 6.3 in [exercises/train.py](../exercises/train.py) |
#
# **Afterwards you can** write a training loop that is the same for one device, DDP and FSDP, and validate over all ranks exactly.
#
# **Words:** [all-reduce](../docs/glossary.md#all-reduce), [filler](../docs/glossary.md#filler), [trace](../docs/glossary.md#trace), [mixed precision](../docs/glossary.md#mixed-precision).

# %%
# Run this cell first, here and in every notebook.
from lab.notebook import answer, check, figures, hint, progress, question, trace

# %% [markdown]
# ## Exercise 6.1: the training step and the epoch
#
# *Difficulty ●●○, importance ●●●, 20 minutes.*
#
# The step is the one you know: the wrapper communicates by itself. DDP averages the gradients during the backward pass; FSDP also gathers
# parameters, before each block of the forward and of the backward pass. In the mean loss of an epoch each sample counts the same, also where
# batches are of unequal size. `TODO 6.1a` and `TODO 6.1b` in [exercises/train.py](../exercises/train.py).

# %%
question("order-of-a-step")

# %% check="6.1"
check("6.1")

# %% [markdown]
# `backward()` adds to what is in `.grad` already.

# %%
figures.gradients_kept(steps=5)

# %% [markdown]
# **Question.** What happens to the training if `zero_grad` is forgotten?

# %% [markdown] answer="zero-grad-forgotten" points=2
# *Write your answer here.*

# %% [markdown]
# ## Exercise 6.2: evaluate over all ranks
#
# *Difficulty ●●●, importance ●●●, 25 minutes.*
#
# Every rank sees only its part of the validation set, and the parts differ by the filler.

# %%
figures.sums_or_means(right=(9, 1), samples=(10, 4))

# %% [markdown]
# For which numbers are the two the same?

# %%
question("accuracy-of-all")

# %% [markdown]
# **What padding does.** PyTorch's own sampler makes the ranks' parts equally long by repeating samples. Seven validation samples on two
# ranks, four of them right: which of the three accuracies is 4/7?

# %%
# %%ranks 2
from torch.utils.data import DistributedSampler

right = torch.tensor([1.0, 0, 1, 1, 0, 1, 0])  # whether the network has each of them right
for name, mine in (
    ("padded", list(DistributedSampler(range(7), shuffle=False))),
    ("each once", list(range(rank, 7, world_size))),
):
    counts = torch.tensor([right[mine].sum(), len(mine)])
    mean = counts[0] / counts[1]
    show(f"{name}: samples", mine)
    dist.all_reduce(counts)
    show(f"{name}: accuracy", counts[0] / counts[1])
dist.all_reduce(mean)
show("mean of the means", mean / world_size)

# %% [markdown]
# `TODO 6.2` in [exercises/train.py](../exercises/train.py).

# %% check="6.2"
check("6.2")

# %% [markdown]
# When the check has passed, look at what your ranks have said to each other. `trace` records every collective, yours and those of
# DDP and FSDP. `x5` are five in a row from one place: FSDP gathers anew for each batch, and here two ranks have three
# batches each, three ranks two.

# %%
trace("6.2")

# %% [markdown]
# **Question.** Why is the evaluation under `no_grad`? What would be different without it, in memory and in time?

# %% [markdown] answer="why-no-grad" points=2
# *Write your answer here.*

# %% [markdown]
# **Question.** Why is there an all-reduce after the validation? What would rank 0 print without it?

# %% [markdown] answer="why-all-reduce" points=2
# *Write your answer here.*

# %% [markdown]
# **Question.** Why does `evaluate` put the model into training mode again? Which layers would notice if it did not?

# %% [markdown] answer="why-train-again" points=2
# *Write your answer here.*

# %% [markdown]
# ## Exercise 6.3: the whole training run
#
# *Difficulty ●○○, importance ●●○, 10 minutes.*
#
# `TODO 6.3`: three calls for each epoch.

# %% check="6.3"
check("6.3")

# %% [markdown]
# ## Train
#
# Section 5 done? Then train with both wrappers, in a terminal. This takes a minute or two on a laptop:
#
# ```
# torchrun --standalone --nproc-per-node 2 \
#     exercises/main.py --strategy ddp --epochs 5
# torchrun --standalone --nproc-per-node 2 \
#     exercises/main.py --strategy fsdp --epochs 5
# ```
#
# Each run leaves a folder in `results/`; the lines that begin with `[METRIC]` are its figures, epoch by epoch.
#
# On a cluster the job runs without you. Submit it, and look at what it prints, as it prints it:
#
# ```
# sbatch run.sh --strategy ddp --epochs 5
# squeue --me          # PD waits, R runs, gone means ended
# tail -f train.log    # Ctrl-C stops the looking, not the job
# ```

# %% [markdown]
# **Question.** Does the loss fall on both, and does the accuracy improve in each epoch? Copy the first and the last `[METRIC]` line of
# each run.

# %% [markdown] answer="loss-falls" points=1
# *Write your answer here.*

# %% [markdown]
# **Question.** Which of the two trains faster? What differs between the run with DDP and the one with FSDP, and what does not: loss,
# accuracy, time, memory? Explain each in a sentence.

# %% [markdown] answer="ddp-against-fsdp" points=2
# *Write your answer here.*

# %% [markdown]
# ## On your own
#
# Break `evaluate` on purpose: let only rank 0 call the all-reduce. Save, and run `check("6.2")` and `trace("6.2")`. Which line
# waits for whom? Then take it back.
#
# **Look it up:** [no_grad](https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html),
# [automatic mixed precision](https://docs.pytorch.org/docs/stable/amp.html) (`autocast`),
# [all_reduce](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce),
# [squeue](https://slurm.schedmd.com/squeue.html).
#
# **Bonus:** train with `--accumulate 4`: four smaller batches for each step of the optimizer. Under DDP three of the four backward passes
# need not communicate. Which call of DDP's says so? Look in its documentation for `no_sync`.
#
# **What you could not do before:** train on many ranks and report a loss and an accuracy that are those of the whole data set.
#
# Next: [7 Benchmarks](7_benchmarks.ipynb).
