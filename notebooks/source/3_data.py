# %% [markdown]
# # 3 · The data
#
# | minutes | before this | you write |
# |---|---|---|
# | 55 | [2 Ranks and devices](2_distributed_setup.ipynb) | exercises 3.1, 3.2, 3.3 in [exercises/data.py](../exercises/data.py) |
#
# **Afterwards you can** download a data set once for many ranks, give every rank its own part of it in each epoch, and validate over
# all ranks without counting a sample twice.
#
# **Words:** [barrier](../docs/glossary.md#barrier), [sampler](../docs/glossary.md#sampler), [shard](../docs/glossary.md#shard), [global batch](../docs/glossary.md#global-batch), [filler](../docs/glossary.md#filler).

# %%
# Run this cell first, here and in every notebook.
from lab.notebook import answer, check, figures, hint, progress, question, trace

# %% [markdown]
# ## Exercise 3.1: download once
#
# *Difficulty ●●○, importance ●●○, 15 minutes.*
#
# Four ranks that download to the same folder at once overwrite each other's files. So one goes first, and the others wait for it at
# a **barrier**, `dist.barrier()`, which nobody passes before all have come. Which one goes first, `is_first` says: rank 0 where all
# nodes share a disk, and one rank on each node where every node has a disk of its own.
#
# `TODO 3.1` in [exercises/data.py](../exercises/data.py).

# %% check="3.1"
check("3.1")

# %% [markdown]
# **Question.** Why must the ranks synchronise after the download? Describe what goes wrong without it, and what goes wrong if only the
# downloading rank calls the barrier.

# %% [markdown] answer="sync-after-download" points=2
# *Write your answer here.*

# %% [markdown]
# ## Which rank draws which sample
#
# A **DistributedSampler** shuffles all indices in the same way on every rank, and then each of the W ranks takes every W-th of
# them. The figure asks PyTorch's own sampler.

# %%
figures.who_draws_what(samples=12, ranks=3, epochs=2)

# %% [markdown]
# Now without it: every rank has a shuffling loader of its own, as on one device. Count how often sample 0 is drawn in an epoch.

# %%
figures.who_draws_what(samples=12, ranks=3, epochs=1, sampler=False)

# %% [markdown]
# The sampler shuffles by its seed and the number of the epoch, which it must be told: `sampler.set_epoch(epoch)`. Here somebody
# forgot. You will call it in section 6.

# %%
figures.who_draws_what(samples=12, ranks=3, set_epoch=False)

# %% [markdown]
# Try `samples=13` here and in the first figure. One sample is left out: is it the same one in both epochs?
#
# The same on three real ranks. Predict which rows are alike, then run it.

# %%
# %%ranks 3
from torch.utils.data import DistributedSampler

for told in (False, True):
    sampler = DistributedSampler(range(12), seed=4)
    for epoch in (1, 2):
        if told:
            sampler.set_epoch(epoch)
        show(f"{'told' if told else 'not told'}, epoch {epoch}", list(sampler))

# %%
question("no-set-epoch")

# %%
question("samples-a-rank")

# %% [markdown]
# ## Exercise 3.2: every rank its own samples
#
# *Difficulty ●●●, importance ●●●, 20 minutes.*
#
# `TODO 3.2` in `get_dataloaders`. The **global batch** is what all ranks draw together for one step: each rank loads its share of it.
# A **shard** is one rank's part of something larger: the validation loader reads your `ValidationShard`, which exercise 3.3 fills in.

# %% check="3.2"
check("3.2")

# %% [markdown]
# **Question.** What happens to the training without a DistributedSampler, on W ranks? Think of the time for an epoch, of what the ranks
# learn from, and of how often an epoch uses each sample.

# %% [markdown] answer="no-sampler" points=2
# *Write your answer here.*

# %%
question("steps-an-epoch")

# %% [markdown]
# ## Exercise 3.3: validate every sample just once
#
# *Difficulty ●●●, importance ●●○, 20 minutes.*
#
# In training a few dropped samples do no harm. In validation they change the result, and so do samples that are counted
# twice. Yet every rank needs the same number of batches, or one waits for ever for a collective that the other does not
# call. So the last places are **filler**, with the label -100: the `ignore_index` of `cross_entropy` (and of `nll_loss`; other losses
# have no such thing).

# %%
figures.validation_parts(samples=7, ranks=2)

# %% [markdown]
# Try 4 ranks with 7, 8 and 9 samples. How much filler can there be at most?
#
# You know it? Then it is one line of arithmetic:

# %%
question("how-much-filler")

# %% [markdown]
# `TODO 3.3a` and `TODO 3.3b` in `ValidationShard`.

# %% check="3.3"
check("3.3")

# %% [markdown]
# **Look it up:** [DistributedSampler](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler),
# [DataLoader](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader),
# [cross_entropy](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html) and its `ignore_index`.
#
# **Bonus:** the last few samples of each epoch are dropped, so that batches are whole. Count in a `%%ranks 3` cell how often each of 13
# samples is drawn in 20 epochs, with `drop_last=True`. Is any of them drawn less often than others?
#
# **What you could not do before:** give W ranks disjoint samples in a new order each epoch, and validate on every sample just once.
#
# Next: [4 Wrapping the model](4_wrapping.ipynb).
