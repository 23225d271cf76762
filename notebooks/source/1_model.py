# %% [markdown]
# # 1 · The model
#
# | minutes | before this | you write |
# |---|---|---|
# | 15 | [0 Start here](0_start.ipynb) | exercise 1.1 in [exercises/model.py](../exercises/model.py) |
#
# **Afterwards you can** write a `forward` that works for any batch size, and say which parts of a shape belong to one image.
#
# **Words:** [rank](../docs/glossary.md#rank), [global batch](../docs/glossary.md#global-batch).

# %%
# Run this cell first, here and in every notebook.
from lab.notebook import answer, check, figures, hint, progress, question, trace

# %% [markdown]
# ## The idea
#
# On one device the batch size is a number that you chose. On W ranks each forward pass sees 1/W of the batch, and the last batch
# of the validation set may be smaller still. The images themselves do not change: three channels, 32 by 32 pixels.

# %%
figures.batch_parts(samples=10, global_batch=8, ranks=4)

# %% [markdown]
# Try `ranks=2`, then `samples=16`. When does the second row vanish?

# %% [markdown]
# ## Exercise 1.1: a network for any batch size
#
# *Difficulty ●○○, importance ●●○, 15 minutes.*
#
# Open [exercises/model.py](../exercises/model.py), find `TODO 1.1` in `CNN.forward`, and save what you write. The layers are there
# already. They have no BatchNorm and no dropout, so that many ranks compute what one device would: section 4 comes back to this.

# %% check="1.1"
check("1.1")

# %%
question("last-batch")

# %% [markdown]
# **Question.** Why is the assertion about `x.shape[1:]` and not about `x.shape`? Name two situations in which the first entry is not
# what a program on one device would expect.

# %% [markdown] answer="why-shape" points=2
# *Write your answer here.*

# %% [markdown]
# **Look it up:** [torch.nn.Module](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html), and what
# [flatten](https://docs.pytorch.org/docs/stable/generated/torch.flatten.html) does to a shape.
#
# **Bonus:** give the network a BatchNorm in `conv_block`, and run `check("1.1")` again. What does the check see, and what would it mean on
# many ranks? Take it out again and check once more; section 4 comes back to it.
#
# **What you could not do before:** write a network that is right on every rank, whatever part of the batch it gets.
#
# Next: [2 Ranks and devices](2_distributed_setup.ipynb).
