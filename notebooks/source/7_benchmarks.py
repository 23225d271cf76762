# %% [markdown]
# # 7 · Benchmarks
#
# | minutes | before this | you need |
# |---|---|---|
# | 60 | all exercises passed | a terminal; a machine with several GPUs if you have one, else two CPU cores |
#
# **Afterwards you can** measure how training scales, read the plots, and say what a result does and does not show.
#
# **Words:** [strong scaling](../docs/glossary.md#strong-scaling), [weak scaling](../docs/glossary.md#weak-scaling), [speed-up](../docs/glossary.md#speed-up), [efficiency](../docs/glossary.md#efficiency), [baseline](../docs/glossary.md#baseline), [mixed precision](../docs/glossary.md#mixed-precision), [latency](../docs/glossary.md#latency), [bandwidth](../docs/glossary.md#bandwidth), [launch-bound](../docs/glossary.md#launch-bound).

# %%
# Run this cell first, here and in every notebook.
from lab.notebook import answer, check, figures, hint, progress, question, trace

# %% [markdown]
# ## The idea
#
# **Strong scaling** keeps the global batch and cuts it into smaller parts: how much sooner is the same work done? **Weak scaling** keeps
# the batch on every device: how much more work is done in the same time? **Speed-up** says how many times as much is done in a
# second: for strong scaling, where the work stays the same, the time on one device divided by the time on N; for weak scaling, where the
# work grows N-fold, N times that. **Efficiency** is the speed-up divided by N.

# %%
figures.scaling(compute_ms=100, communication_ms=20, hidden=0.0)

# %% [markdown]
# Try `hidden=0.8`: most of the communication overlaps with the backward pass. Then `compute_ms=10`: a small network. Which of the
# three numbers would you change by buying a faster GPU, which by buying a faster network?

# %%
question("strong-efficiency")

# %%
question("weak-efficiency")

# %%
question("step-on-more")

# %% [markdown]
# ## What a message costs
#
# Two ranks on this machine: how long does an all-reduce take, and what does it depend on? From the smallest you read what it costs to
# begin one, the **latency**; from the largest how many bytes pass in a second, the **bandwidth**. `lab predict` will want to know both.

# %%
# %%ranks 2
import time

for kilobytes in (1, 64, 1024, 16384):
    x = torch.ones(kilobytes * 256)  # 4 bytes each
    dist.all_reduce(x)  # the first one makes connections
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(x)
    show(f"{kilobytes} KB", f"{1000 * (time.perf_counter() - start):.2f} ms")

# %% [markdown]
# A gradient of this lab's CNN has 0.45 MB, one of ResNet-18 45 MB. Which of the two costs does each feel?
#
# ## A worked reading
#
# A real measurement: ResNet-18 on one, two and four H100 of one node, 128 images on each.
#
# ![Weak scaling efficiency of ResNet-18 on one, two and four H100: without a wrapper 100%; ddp 77, 74 and 65%; fsdp 21, 11 and 10%](../docs/scaling-plot.png)
#
# Six questions to ask of any scaling plot, and what this one answers:
#
# 1. **What is 100%?** One device *without* a wrapper, 13,198 images/s. Against DDP on one device (10,183) the line would begin at
#    100%, and four devices would look better: 85% in place of 65%. Nothing would be faster.
# 2. **What stays the same, and what grows?** Weak scaling: 128 images on each device, so 512 in all on four. The ideal is a flat line.
# 3. **How much do repeats differ?** The bars are the least and the largest of three. Those of DDP overlap at all numbers of devices: that
#    74% is less than 77% is not shown. The baseline alone goes from 95 to 116%: a machine whose repeats differ so much is waiting
#    for something that is not computing.
# 4. **Where is the loss?** Most of DDP's is there on *one* device, where nothing is sent. FSDP has lost four fifths there. So the network
#    between the GPUs cannot be the cause of that part. From one to two devices FSDP halves again, from 21 to 11%: there it begins to
#    send, and to launch what sends. Which of the two costs so much, this plot does not tell.
# 5. **What else could make this picture?** A step of ResNet-18 is hundreds of kernels, small programs that the CPU launches on the GPU
#    one by one, and it needs 10 to 16 ms for them, on one GPU as on four: the step is **launch-bound**. Recorded as one CUDA graph
#    (section 8), it is launched at once: then DDP keeps 90, 86 and 85%, and repeats agree within 0.1%. The plot shows the CPU.
# 6. **What does it not say?** Whether FSDP is slow where there is something to shard (11 million parameters are not). Anything about
#    more than one node, or about accuracy: the global batch grew fourfold.
#
# The sentence to write under it: *kernel by kernel, the step is launch-bound; DDP loses 23% on one GPU before anything is sent, and about 12 points
# more on four, not much more than the spread of the repeats.* Ask the same six of your own plots below.
#
# ## Measure
#
# In a terminal: one device without a wrapper as the baseline, then DDP and FSDP on more. `--dry-run` shows the commands first.
#
# ```
# python run_benchmarks.py --devices 1 2
# ./plot_results.sh
# ```
#
# On a laptop `--preset course` in place of `--devices 1 2` asks for more in steps that are timed: strong and weak, each twice, into
# `results/course`; `--dry-run` says how many minutes that takes.
#
# Where you have GPUs, take `--devices 1 2 4 --scaling strong weak --repeat 3`, and a network that fills them:
# `-- --dataset cifar10 --data-dir data --model resnet18`.
#
# **On a cluster with Slurm** the same command submits a job for every point and comes back at once. The jobs wait in the queue and
# run without you; draw when the queue lists none of them any more. The same command again submits only what has failed or is missing:
#
# ```
# python run_benchmarks.py --devices 1 2 4 8 --dry-run
# python run_benchmarks.py --devices 1 2 4 8
# watch -n 10 squeue --me    # until none is left; Ctrl-C ends the looking
# ./plot_results.sh
# ```
#
# **Before you run it**, write down what you expect for two devices: the speed-up, the accuracy, the memory. Then:

# %%
figures.show_results("results")

# %% [markdown]
# **Question.** Read the three plots (time per epoch, validation, memory): one sentence on each, with numbers. Was your prediction right?

# %% [markdown] answer="three-plots" points=3
# *Write your answer here.*

# %% [markdown]
# **Work it out yourself.** `load` gives all runs as a table of [pandas](https://pandas.pydata.org/docs/user_guide/10min.html), a row a run,
# with the columns of results.csv: `load("../results")` in a cell of your own shows it. Three lines make efficiencies of it, by strategy and
# number of devices: with `groupby`, the median `time_epoch_s` of each; the numbers of devices, which are `world_size` in its index; and
# the time of `("none", 1)` divided by both. Put them in the place of `return ...` and compare with the lab's own.

# %%
from lab.sweep import load


def efficiency(folder):
    runs = load(folder)
    runs = runs[(runs.status == "done") & (runs.scaling == "strong")]
    return ...


figures.check_efficiency(efficiency)

# %% [markdown]
# **Question.** Is the scaling ideal? What is the efficiency, and where has the rest of the time gone?

# %% [markdown] answer="scaling-ideal" points=2
# *Write your answer here.*

# %% [markdown]
# **Question.** Does the accuracy suffer with more devices? Which other change that came with the devices could be the cause if it did?

# %% [markdown] answer="accuracy-suffers" points=2
# *Write your answer here.*

# %% [markdown]
# **Question.** Who needs less memory, DDP or FSDP, and is the difference what section 4 made you expect? If not, why?

# %% [markdown] answer="less-memory" points=2
# *Write your answer here.*

# %% [markdown]
# ## Predict more devices
#
# Four devices: what do you expect? Write a number down. Then let a small cost model say what it makes of your one and two:
#
# ```
# lab predict results/results.csv --devices 4 8
# ```
#
# It prints a range, because two devices cannot tell how much of the waiting is messages and how much is bytes. Run
# `python run_benchmarks.py --devices 4` if you can, collect, and predict again: the measurement now stands beside the
# prediction, which still knows one and two devices only. On two CPU cores four ranks share cores: which way will the model be wrong?

# %% [markdown]
# ## Explore
#
# Three experiments. For each: write your **prediction** into the answer cell first, then run it, then write what came out. A wrong
# prediction that you can explain earns full marks.
#
# ### Another global batch
#
# ```
# python run_benchmarks.py --devices 1 2 \
#     --global-batch-size 128 2048 --output-dir results-batch
# ./plot_results.sh results-batch
# ```
#
# Predict for both, against the 512 of before: the time per epoch, the speed-up, the accuracy.

# %%
figures.show_results("results-batch")

# %% [markdown] answer="explore-batch" points=3
# *Prediction:*
#
# *What came out, and why:*

# %% [markdown]
# ### More epochs
#
# ```
# python run_benchmarks.py --devices 1 2 --epochs 15 \
#     --output-dir results-epochs
# ./plot_results.sh results-epochs
# ```
#
# Predict: do the losses of one and of two devices move closer together, or apart? Does the speed-up change?

# %%
figures.show_results("results-epochs")

# %% [markdown] answer="explore-epochs" points=3
# *Prediction:*
#
# *What came out, and why:*

# %% [markdown]
# ### Mixed precision off
#
# On GPUs the forward and backward pass run in 16 bits unless you say otherwise; on CPUs in fp32. Run both:
#
# ```
# python run_benchmarks.py --devices 1 2 \
#     --precision bf16 fp32 --output-dir results-precision
# ./plot_results.sh results-precision
# ```
#
# Predict: time, memory, accuracy. Why compare strategies only at equal precision?

# %%
figures.show_results("results-precision")

# %% [markdown] answer="explore-precision" points=3
# *Prediction:*
#
# *What came out, and why:*

# %% [markdown]
# **Look it up:** [Slurm's quick start](https://slurm.schedmd.com/quickstart.html),
# [PyTorch's tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html),
# [DDP's paper](https://arxiv.org/abs/2006.15704) and [FSDP's](https://arxiv.org/abs/2304.11277), with their own scaling plots.
#
# **Bonus:** hide communication, where you have GPUs (two CPU cores need hours). `python run_benchmarks.py --devices 2 --strategies
# ddp --bucket-cap-mb 1 5 25 --measure-steps 50 --output-dir results-buckets -- --model resnet18` runs DDP on a network with more to
# send. Explain the order with section 4's figure.
#
# ## Look back
#
# In section 0 you guessed how many times as fast 4 devices are as 1. What would you say today, and what would you ask first?
#
# **What you could not do before:** measure how a training scales, say what the measurement shows and what it does not, and defend both.

# %%
progress()
