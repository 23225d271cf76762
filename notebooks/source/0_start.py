# %% [markdown]
# # 0 · Start here
#
# | minutes | before this | you need |
# |---|---|---|
# | 15 | you have trained a network on one device with PyTorch | this notebook, and a terminal now and then |
#
# **Afterwards you can** say what changes when the same training runs on several devices at once, and you know how to work with
# this lab.
#
# A **rank** is a process that takes part in the training, usually one for each GPU. The **world size** is the number of
# ranks. Here the ranks run on your CPU: what you learn holds for a hundred GPUs.

# %%
# Run this cell first, here and in every notebook.
from lab.notebook import answer, check, figures, hint, progress, question, trace

# %% [markdown]
# ## See it first
#
# Before you read on, see what you are going to build. The next cell trains a small network on drawn images, on one rank, and then
# on two, which share the images of every step. It takes a few seconds.

# %%
from lab.first_look import first_look

first_look(ranks=(1, 2), epochs=5)

# %% [markdown]
# Both have learned the same, and the losses are the same to the second or third digit: two ranks make the steps that one would make.
# With a free core for each rank they need fewer seconds, but not half as many. Try `ranks=(1, 2, 4)`: what if there are more ranks
# than cores? All that happened in there is what you write in sections 1 to 6.
#
# ## The idea of the whole lab
#
# Every rank has the same weights and its own samples. Each computes a gradient of its own. The ranks average these, make the
# same step, and so have the same weights again. Together they have done the work of one large batch, in the time of a
# small one and a little more. The rest of the lab is about that little more, and about everything that can go wrong.
#
# Averaging is a **collective**: an operation that all ranks call together, and that ends for each of them only when all have
# called it. The words, and most collectives, are those of MPI, which has been used on clusters since 1994; PyTorch has its own,
# `torch.distributed`, with **gloo** (CPUs) or **NCCL** (NVIDIA's GPUs) below it. All words are in the
# [glossary](../docs/glossary.md); each notebook names its own at the top.

# %%
figures.one_step(ranks=3, samples=4)

# %% [markdown]
# You can change the arguments of every figure and run its cell again. What if there is only one rank?
#
# **Predict.** How many times as fast are 4 devices as 1? Write your guess on paper, with a reason. Section 7 measures it.

# %% [markdown]
# ## How to work
#
# 1. **Edit** the seven Python files in `exercises/`, beside this notebook, for example [exercises/model.py](../exercises/model.py).
#    Look for a `TODO` and replace the line `raise NotImplementedError(...)` below it.
# 2. **Save** the file. Only what is saved is checked.
# 3. **Check**: run the section's check cell, such as `check("1.1")`. It starts fresh processes each time, so you never need to
#    restart this kernel or import anything again.
# 4. **Read** the card: what the check *saw*, what that *means*, where to *look*. "Not started" means that the `raise` is still
#    there; "blocked" that an earlier exercise comes first; a "lab error" is our fault.
# 5. **Stuck?** `hint("1.1")` shows one hint at a time. `trace("6.2")` draws what the ranks have said to each other.
# 6. **Answer** the questions in the cells below them: two or three sentences are enough. Your instructor reads them. Who learns alone,
#    from the lab's repository, gets a model answer with `answer("why-shape")` once an own one is written and saved; `answer()` lists them.
#
# 7. **Small questions** have a number, a letter or an order as their answer, and numbers of your own: put your answer into the cell
#    (`question("ddp-sends", 120)`) and run it again. Wrong answers are explained, and nothing is counted. `question()` lists them.
#
# The minutes of a section are those of its exercises. Reading, experiments and small questions take about half as long again.
#
# Each exercise says how difficult it is and how important, of three dots each. Short of time? Do those with three dots of importance
# yourself and take more hints for the others. A **bonus** at a section's end is for who has time left: nothing builds on it.
#
# A notebook whose first cell has run keeps PyTorch loaded, in about 0.8 GB. When you have finished one: *File, Close and Shut Down
# Notebook*.
#
# The same in a terminal (*File, New, Terminal*): `lab check 1.1`, `lab hint 1.1`, `lab watch`; in VS Code, too:
# [other hands](../docs/other-hands.md). If something looks wrong with the
# machine: `lab doctor`.

# %% [markdown]
# ## Where you are

# %%
progress()

# %% [markdown]
# | section | you write | minutes |
# |---|---|---|
# | [1 The model](1_model.ipynb) | a network that does not care how large its batch is | 15 |
# | [2 Ranks and devices](2_distributed_setup.ipynb) | who am I, which GPU is mine, how do we find each other | 35 |
# | [3 The data](3_data.ipynb) | every rank its own samples, each counted once | 55 |
# | [4 Wrapping the model](4_wrapping.ipynb) | averaging gradients: by hand, with DDP, with FSDP | 50 |
# | [5 Putting it together](5_putting_it_together.ipynb) | a program that starts, trains and ends | 30 |
# | [6 The training loop](6_training_loop.ipynb) | steps, epochs, validation over all ranks | 55 |
# | [7 Benchmarks](7_benchmarks.ipynb) | a sweep that you can defend | 60 |
#
# Sections 8 (the fast step) and 9 (DDP and sharding from scratch) are for those who want more, where your copy has them.
#
# **What you could not do before:** say in three sentences what happens when two processes train one network.
#
# Go on with [section 1](1_model.ipynb).
