"""Answers to 8.3: batches from images on the device."""

from answers.entries import Bank

bank = Bank(
    "8.3",
    {
        "8.3a": """
self.device = device  # device
self.images = images.to(device)  # images
self.labels = labels.to(device)  # labels
""",
        "8.3b": """
order = torch.tensor(list(self.sampler)).to(self.images.device)  # order
for i in range(len(self)):  # loop
    chosen = order[i * self.batch_size : (i + 1) * self.batch_size]  # chosen
    batch = self.images[chosen]  # pick
    yield batch.to(torch.float32) / 255, self.labels[chosen]  # yield
""",
    },
)

bank.right("index_select", pick="batch = self.images.index_select(0, chosen)")
bank.right(
    "the part of each batch copied by itself",
    order="order = torch.tensor(list(self.sampler))",
    chosen="chosen = order[i * self.batch_size : (i + 1) * self.batch_size].to(self.images.device)",
)
bank.right("lists of Python's", order="order = list(self.sampler)")
bank.right(
    "a product in place of the division", **{"yield": "yield batch.float().mul_(1 / 255), self.labels[chosen]"}
)
bank.right(
    "channels last",
    **{"yield": "yield (batch.float() / 255).contiguous(memory_format=torch.channels_last), self.labels[chosen]"},
)

bank.wrong(
    "order-frozen",
    "the sampler is asked once",
    device="self.order = list(sampler)",
    order="order = torch.tensor(self.order, device=self.images.device)",
)
bank.wrong(
    "order-frozen",
    "set_epoch(0) at each epoch's begin",
    order="self.sampler.set_epoch(0)\norder = torch.tensor(list(self.sampler), device=self.images.device)",
)
bank.wrong(
    "sampler-not-used",
    "the data set's own order",
    order="order = torch.arange(len(self.images), device=self.images.device)",
)
bank.wrong(
    "not-the-samplers-order",
    "a shuffle of all images",
    order="order = torch.randperm(len(self.images), generator=torch.Generator().manual_seed(1))",
)
bank.wrong(
    "other-batches",
    "the sampler's samples, shuffled once more",
    order="order = torch.tensor(list(self.sampler)[::-1], device=self.images.device)",
)
bank.wrong(
    "other-batches", "every n-th sample of the order", chosen="chosen = order[i :: len(self)][: self.batch_size]"
)
bank.wrong(
    "order-sorted",
    "the order sorted",
    order="order = torch.tensor(sorted(self.sampler), device=self.images.device)",
)
bank.wrong("last-batch-yielded", "the last batch, which is smaller", loop="for i in range(len(self) + 1):")
bank.wrong(
    "labels-of-other-images",
    "labels in the data set's order",
    **{"yield": "yield batch.float() / 255, self.labels[i * self.batch_size : (i + 1) * self.batch_size]"},
)
bank.wrong(
    "images-copied-in-each-batch",
    "each batch copied to the device",
    images="self.images = images",
    order="order = torch.tensor(list(self.sampler))",
    pick="batch = self.images[chosen].to(self.device)",
    **{"yield": "yield batch.float() / 255, self.labels[chosen.to(self.device)]"},
)
bank.wrong(
    "kept-as-floats",
    "all images as floats",
    images="self.images = (images.float() / 255).to(device)",
    **{"yield": "yield batch, self.labels[chosen]"},
)
bank.wrong("float64-images", "float64", **{"yield": "yield batch.double() / 255, self.labels[chosen]"})
bank.wrong("not-floats", "bytes", **{"yield": "yield batch, self.labels[chosen]"})
bank.wrong("not-floats", "float16", **{"yield": "yield batch.half() / 255, self.labels[chosen]"})
bank.wrong("not-scaled", "0 to 255", **{"yield": "yield batch.float(), self.labels[chosen]"})
bank.wrong("other-pixels", "divided by 256", **{"yield": "yield batch.float() / 256, self.labels[chosen]"})
bank.wrong("other-pixels", "-1 to 1", **{"yield": "yield batch.float() / 127.5 - 1, self.labels[chosen]"})
bank.wrong("labels-of-another-type", "labels as int32", labels="self.labels = labels.to(device, torch.int32)")
PICKED = "self.labels[chosen.cpu()] if not chosen.is_meta else self.labels[: len(chosen)]"
bank.wrong(
    "not-on-its-device",
    "labels on the CPU",
    labels="self.labels = labels",
    **{"yield": f"yield batch.float() / 255, {PICKED}"},
)
bank.wrong("no-batches", "nothing is yielded", loop="for i in range(0):")
bank.wrong(
    "no-images", "images flattened", **{"yield": "yield batch.float().flatten(1) / 255, self.labels[chosen]"}
)
bank.wrong(
    "raised",
    "one index too many",
    chosen="chosen = order[i * self.batch_size : (i + 1) * self.batch_size] + len(self.images)",
)
bank.wrong(
    "kept-as-floats",
    "all images as floats, made on the device",
    images="self.images = images.to(device).float() / 255",
    **{"yield": "yield batch, self.labels[chosen]"},
)
bank.wrong(
    "kept-as-floats",
    "the epoch's images as floats when it begins",
    order="order = torch.tensor(list(self.sampler)).to(self.images.device)\n"
    "epoch = self.images[order].float() / 255",
    pick="batch = epoch[i * self.batch_size : (i + 1) * self.batch_size]",
    **{"yield": "yield batch, self.labels[chosen]"},
)
bank.wrong(
    "batch-overwritten",
    "one buffer for all batches",
    order="order = torch.tensor(list(self.sampler)).to(self.images.device)\n"
    "buffer = torch.empty(self.batch_size, *self.images.shape[1:], device=self.images.device)",
    **{"yield": "buffer.copy_(batch).div_(255)\nyield buffer, self.labels[chosen]"},
)
bank.wrong(
    "whole-batch-left-out",
    "the range ends before the last whole batch",
    loop="for i in range((len(order) - 1) // self.batch_size):",
)
ORDER = "order = torch.tensor(list(self.sampler)).to(self.images.device)"
bank.right("the epoch that is set, set again", order=f"self.sampler.set_epoch(self.sampler.epoch)\n{ORDER}")
bank.wrong(
    "epoch-set-over",
    "a count of its own epochs",
    device="self.epoch = 0",
    order=f"self.sampler.set_epoch(self.epoch)\nself.epoch += 1\n{ORDER}",
)
bank.wrong(
    "divided-twice", "every n-th of the rank's samples", order=f"{ORDER}[dist.get_rank() :: dist.get_world_size()]"
)
bank.wrong(
    "divided-twice",
    "a rank's share of the rank's samples",
    slow=True,
    order=f"share = len(self.sampler) // dist.get_world_size()\n{ORDER}[dist.get_rank() * share :][:share]",
)
bank.wrong("whole-batch-left-out", "the first batch", slow=True, loop="for i in range(1, len(self)):")
bank.wrong(
    "other-batches",
    "the columns of the order",
    slow=True,
    order=f"grid = {ORDER[8:]}[: len(self) * self.batch_size].view(self.batch_size, -1)",
    chosen="chosen = grid[:, i]",
)
bank.wrong(
    "other-batches",
    "batches that overlap",
    slow=True,
    chosen="chosen = order[i : i + self.batch_size]",
)
bank.wrong(
    "labels-of-another-type", "labels as floats", slow=True, labels="self.labels = labels.to(device).float()"
)
bank.wrong("labels-of-another-shape", "labels one-hot", labels="self.labels = F.one_hot(labels).to(device)")
bank.wrong(
    "labels-of-other-images", "labels turned around", slow=True, labels="self.labels = labels.flip(0).to(device)"
)
bank.wrong(
    "labels-of-other-images", "images turned around", slow=True, images="self.images = images.flip(0).to(device)"
)
bank.wrong(
    "other-pixels",
    "-1 to 1, in a second line",
    slow=True,
    pick="batch = self.images[chosen].float() / 255\nbatch = (batch - 0.5) / 0.5",
    **{"yield": "yield batch, self.labels[chosen]"},
)
bank.wrong(
    "other-pixels",
    "-1 to 1, where it is yielded",
    slow=True,
    pick="batch = self.images[chosen].float() / 255",
    **{"yield": "yield batch * 2 - 1, self.labels[chosen]"},
)
bank.wrong(
    "indices-on-cpu",
    "the order on the CPU",
    order="order = torch.tensor(list(self.sampler))",
)
bank.wrong(
    "data-set-kept",
    "images that the class keeps",
    images="if not hasattr(type(self), 'cache'): DeviceBatches.cache = images.to(device)\n"
    "self.images = DeviceBatches.cache.to(device)",
)
bank.wrong(
    "data-set-kept",
    "labels that the class keeps",
    slow=True,
    labels="if not hasattr(type(self), 'cache'): DeviceBatches.cache = labels.to(device)\n"
    "self.labels = DeviceBatches.cache.to(device)",
)
bank.right(
    "copied while the CPU goes on",
    order="order = torch.tensor(list(self.sampler))",
    chosen="chosen = order[i * self.batch_size : (i + 1) * self.batch_size]\n"
    "chosen = chosen.to(self.images.device, non_blocking=True)",
)
bank.wrong(
    "not-on-its-device",
    "labels that are moved in each batch",
    slow=True,
    labels="self.labels = labels",
    **{"yield": "yield batch.float() / 255, self.labels[chosen.cpu()].to(batch.device)"},
)
bank.wrong(
    "other-pixels",
    "all images divided at the beginning of each epoch",
    slow=True,
    order="self.images = self.images.float() / 255\n"
    "order = torch.tensor(list(self.sampler)).to(self.images.device)",
    **{"yield": "yield batch, self.labels[chosen]"},
)

# ---- numbers of as many images as real data sets have

bank.wrong(
    "order-in-too-few-bits",
    "the order as int16",
    slow=True,
    whole={
        "8.3b": """
order = torch.tensor(list(self.sampler)).to(torch.int16)
for begin in range(0, len(order) - self.batch_size + 1, self.batch_size):
    picked = order[begin : begin + self.batch_size].long().to(self.images.device)
    yield self.images[picked].float() / 255, self.labels[picked]
"""
    },
)
bank.wrong(
    "divided-twice",
    "every n-th of the rank's samples, by names for rank and number of ranks",
    slow=True,
    order="rank, ranks = dist.get_rank(), dist.get_world_size()\n"
    "order = torch.tensor(list(self.sampler))\n"
    "order = order[rank::ranks].to(self.images.device)",
    loop="for i in range(len(order) // self.batch_size):",
)
