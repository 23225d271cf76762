# %% [markdown]
# # Section 3: the data
#
# **You will** download once, give every rank its own samples, validate each just once. · **Before:** [2](2_distributed_setup.ipynb) · **Time:** 55 minutes

# %%
from lab.notebook import check, hint, progress

# %% [markdown]
# Open [exercises/data.py](../exercises/data.py).

# %% check="3.2"
check("3.2")

# %% [markdown]
# **Question.** What happens without a DistributedSampler?

# %% [markdown] answer="no-sampler" points=2
# *Write your answer here.*
