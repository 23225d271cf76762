# %% [markdown]
# # 8 · Make it fast
#
# | minutes | before this | you write |
# |---|---|---|
# | 135 | [6 The training loop](6_training_loop.ipynb); this section is for who wants more | exercises 8.1 to 8.6 in [exercises/fast.py](../exercises/fast.py) |
#
# **Afterwards you can** say what a training step spends its time on, keep the CPU out of its way, and record a whole step as one
# CUDA graph, with the same numbers coming out. No GPU is needed: on the CPU the lab records with a graph of its own, which has the
# same rules.

# %%
# Run this cell first, here and in every notebook.
from lab.notebook import check, figures, hint, progress, trace

# %% [markdown]
# ## Exercise 8.1: where a step's time goes
#
# *Difficulty ●●○, importance ●●●, 20 minutes.*
#
# A GPU does nothing by itself: the CPU tells it each **kernel** by a **launch**, and goes on without waiting. As long as kernels take
# longer than launches, the CPU is ahead, and the GPU always has something to do. In a small network it is the other way round: the GPU
# is done before the CPU has told it what comes next. Such a step is **launch-bound**.

# %%
figures.launches(kernel_us=6, launch_us=10, kernels=6)

# %% [markdown]
# Make the kernels longer than the launches. What becomes of the gaps? And what does a recorded step gain then?
#
# A profile notes what ran from when to when. Four things can hold up a step: the GPU computes, it communicates with nothing to
# compute meanwhile, it waits because the CPU waits for the next batch, or it waits for launches. `TODO 8.1` in
# [exercises/fast.py](../exercises/fast.py) tells them apart.

# %% check="8.1"
check("8.1")

# %% [markdown]
# **Question.** A step takes 10 ms: 4 ms of compute, 1 ms of communication that nothing hides, 5 ms of launches. Somebody buys a GPU that
# computes twice as fast. How long does the step take then? And what would you do in place of buying it?

# %% [markdown] answer="launch-bound" points=2
# *Write your answer here.*

# %% [markdown]
# ## Exercise 8.2: no waiting in the loop
#
# *Difficulty ●○○, importance ●●●, 15 minutes.*
#
# `loss.item()` asks for a number that the GPU has not computed yet. So the CPU waits until the GPU has done everything that it was
# given, and launches nothing meanwhile; then the GPU waits for the CPU. `TODO 8.2` adds up the losses where they are, and reads once.

# %% check="8.2"
check("8.2")

# %% [markdown]
# **Question.** Why does `print(loss)` in every step make the training slower, although printing takes no time? Name two other lines of
# Python that do the same without looking like it.

# %% [markdown] answer="hidden-waits" points=2
# *Write your answer here.*

# %% [markdown]
# ## Exercise 8.3: the data set on the device
#
# *Difficulty ●●○, importance ●●○, 25 minutes.*
#
# The 50,000 images of CIFAR-10 are 150 MB as bytes: they fit on any GPU, and then no worker has to read them and no copy has to be made
# in a step. What stays the same is the order: each rank takes its part from the sampler, in a new order in each epoch. `TODO 8.3a` and
# `TODO 8.3b`.

# %% check="8.3"
check("8.3")

# %% [markdown]
# ## Exercise 8.4: capture a step
#
# *Difficulty ●●●, importance ●●●, 40 minutes.*
#
# A **CUDA graph** is a list of kernels with the addresses of the tensors that they read and write. It is recorded once, without
# computing anything, and then launched as a whole: one launch in place of hundreds.

# %%
figures.graph_memory()

# %% [markdown]
# All that goes wrong with graphs follows from that picture:
#
# - It knows tensors, not names. Each batch has to be **copied into** the tensors of the recording, and what comes out has to be
#   **cloned** before the next replay writes over it.
# - It has no Python in it: an `if` is decided while it is recorded, a number stays what it was.
# - What is made in a first step (momentum, DDP's buckets) must be there before: some steps of **warm-up**, in a stream of their own,
#   since CUDA records nothing in the default one.
# - Gradients that are there when the recording begins are added to, in every replay. So they are set to None **inside**.
#
# `TODO 8.4`. The check runs your step under DDP on two ranks, and compares weights and losses with a training without a graph.

# %% check="8.4"
check("8.4")

# %% [markdown]
# Try out what you were warned of: leave out the `clone()`, save, and run the check again. Then set the gradients to None outside.

# %% [markdown]
# **Question.** Why can a graph not contain `if loss.isnan(): skip the step`? How could a step that must be skipped be written so that
# it can be recorded?

# %% [markdown] answer="no-branches" points=3
# *Write your answer here.*

# %% [markdown]
# ## Exercise 8.5: a rate that replays see
#
# *Difficulty ●●○, importance ●●○, 15 minutes.*
#
# A schedule changes the learning rate in every step. A float would be part of the recording; a tensor is read anew in each replay.
# `TODO 8.5a` and `TODO 8.5b`.

# %% check="8.5"
check("8.5")

# %% [markdown]
# ## Exercise 8.6: what was gained, and kept
#
# *Difficulty ●●○, importance ●●●, 20 minutes.*
#
# A faster step that trains something else is no gain, and a time that was read before the GPU was done is no time. `TODO 8.6a` measures,
# `TODO 8.6b` compares.

# %% check="8.6"
check("8.6")

# %% [markdown]
# With a GPU, compare in main.py what you have understood by now:
#
# ```
# python exercises/main.py --model resnet18 --epochs 3
# python exercises/main.py --model resnet18 --epochs 3 --capture
# ```

# %% [markdown]
# **Question.** When is it not worth while to record a step? Name two cases, and say for each how you would find out beforehand.

# %% [markdown] answer="when-not-to-capture" points=2
# *Write your answer here.*

# %% [markdown]
# **Look it up:** [CUDA graphs](https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs) and
# [torch.cuda.graph](https://docs.pytorch.org/docs/stable/generated/torch.cuda.graph.html), whose example is this step without a
# wrapper; [SGD](https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html) and its `fused`.

# %% [markdown]
# **Bonus:** take the profile of a run of your own (`--profile`, [torch.profiler](https://docs.pytorch.org/docs/stable/profiler.html)
# says what is in it) and let your 8.1 judge it.
#
# **What you could not do before:** say what a step waits for, take the CPU out of its way, and prove that the numbers are the same.

# %%
progress()
