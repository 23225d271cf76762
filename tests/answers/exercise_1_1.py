"""Answers to 1.1: a network for any batch size."""

from answers.entries import Bank

bank = Bank(
    "1.1",
    {
        "1.1": """
assert x.shape[1:] == (3, 32, 32), x.shape  # check
for block in self.blocks:  # loop
    x = block(x)  # block
x = x.flatten(1)  # flatten
return self.classifier(x)  # result
"""
    },
)

# ---- right

bank.right("view in place of flatten", flatten="x = x.view(x.size(0), -1)")
bank.right("one assertion a dimension", check="assert x.size(1) == 3\nassert x.size(2) == 32 and x.size(3) == 32")
bank.right(
    "torch._assert",
    check="import torch\ntorch._assert(tuple(x.shape[1:]) == (3, 32, 32), 'images of 3 x 32 x 32')",
)
bank.right("the whole shape, with the batch's own size", check="assert x.shape == (len(x), 3, 32, 32)")
bank.right("log_softmax, which cross_entropy leaves as it is", result="return self.classifier(x).log_softmax(1)")
bank.right(
    "a helper function",
    whole={
        "1.1": """
def features(images):
    first, second, third = self.blocks
    return third(second(first(images)))

batch, *image = x.shape
assert image == [3, 32, 32]
return self.classifier(features(x).reshape(batch, -1))
"""
    },
)

# ---- wrong

bank.wrong("fixed-batch-size", "the assertion fixes the batch size", check="assert x.shape == (128, 3, 32, 32)")
bank.wrong("fixed-batch-size", "the view fixes the batch size", flatten="x = x.view(64, -1)")
bank.wrong("batch-flattened", "flatten without start_dim", flatten="x = x.flatten()")
bank.wrong("no-assertion", "no assertion", check="")
bank.wrong("assertion-too-weak", "the channels are not asserted", check="assert x.shape[2:] == (32, 32)")
bank.wrong(
    "not-an-assertion",
    "an exception in place of the assertion",
    check="if x.shape[1:] != (3, 32, 32):\n    raise ValueError('images of another size')",
)
bank.wrong("softmax-before-loss", "softmax before the loss", result="return self.classifier(x).softmax(dim=1)")
bank.wrong("no-negative-logits", "ReLU after the classifier", result="return self.classifier(x).relu()")
bank.wrong("nothing-returned", "nothing is returned", result="self.classifier(x)")
bank.wrong("no-logits", "logits and features are returned", result="return self.classifier(x), x")
bank.wrong("wrong-shape", "classes in place of logits", result="return self.classifier(x).argmax(dim=1)")
bank.wrong(
    "wrong-shape", "squeeze, which turns a batch of one into none", result="return self.classifier(x).squeeze()"
)
bank.wrong(
    "rows-depend-on-batch", "each batch is normalised by its own mean", flatten="x = (x - x.mean(0)).flatten(1)"
)
bank.wrong("random-forward", "dropout", flatten="x = nn.functional.dropout(x).flatten(1)")
bank.wrong("no-gradients", "the logits are detached", result="return self.classifier(x).detach()")
bank.wrong("dtype-changed", "the logits are cast to float32", result="return self.classifier(x).float()")
bank.wrong(
    "num-classes-ignored",
    "ten logits whatever num_classes says",
    result="x = self.classifier(x)\nreturn nn.functional.pad(x, (0, 10 - x.shape[1]))",
)
bank.wrong("raised", "a layer that is not there", result="return self.head(x)")
bank.wrong("raised", "nothing is flattened", flatten="x = x * 1")
bank.wrong(
    "raised", "the list of blocks called as one layer", loop="x = self.blocks(x)\nfor block in self.blocks:"
)
bank.wrong("images-changed", "the images are scaled in place", loop="x *= 0.5\nfor block in self.blocks:")
bank.wrong("device-written-down", "results that are always on the CPU", flatten='x = x.flatten(1).to("cpu")')

# ---- seen in other settings, on other ranks, in other hands

bank.right(
    "a tuple of the shape, by its elements",
    check="b, c, h, w = x.shape\nassert (c, h, w) == (3, 32, 32)",
)
bank.right(
    "asserts that x is an image tensor",
    check="import torch\nassert isinstance(x, torch.Tensor) and x.dim() == 4\n"
    "assert tuple(x.shape[1:]) == (3, 32, 32)",
)
bank.right(
    "isinstance of blocks",
    loop="assert isinstance(self.blocks, nn.ModuleList)\n"
    "assert x.shape[1:] == (3, 32, 32)\nfor block in self.blocks:",
)
bank.wrong(
    "assertion-cannot-fail",
    "a tuple is asserted",
    check="assert (x.shape[1:] == (3, 32, 32), 'wrong images')",
)
bank.wrong(
    "assertion-cannot-fail",
    "or in place of ==",
    check="assert x.shape[1:] or (3, 32, 32)",
)
bank.wrong(
    "assertion-cannot-fail",
    "the assertion is compared with itself",
    check="assert x.shape[1:] == x.shape[1:]",
)
bank.wrong(
    "assertion-cannot-fail",
    "the assertion after the return",
    check="",
    result="return self.classifier(x)\nassert x.shape[1:] == (3, 32, 32)",
)
bank.wrong(
    "assertion-too-weak",
    "the channels only",
    check="assert x.shape[1] == 3",
)
bank.wrong(
    "assertion-too-weak",
    "the number of dimensions only",
    check="assert x.ndim == 4",
)
bank.wrong(
    "assertion-too-weak",
    "the number of pixels",
    check="assert x[0].numel() == 3 * 32 * 32",
)
bank.wrong(
    "assertion-too-weak",
    "asserted after the blocks",
    check="",
    flatten="assert x.shape[1:] == (128, 4, 4)\nx = x.flatten(1)",
)
bank.wrong(
    "error-swallowed",
    "the assertion's error is swallowed",
    check="try:\n    assert x.shape[1:] == (3, 32, 32)\nexcept AssertionError:\n    print('wrong images')",
)
bank.wrong(
    "fixed-batch-size",
    "the assertion takes batches of 64 and smaller only... as a list",
    check="assert list(x.shape) == [64, 3, 32, 32]",
)
bank.wrong(
    "num-classes-ignored",
    "cuts the logits to ten",
    result="return self.classifier(x)[:, :10] if False else "
    "nn.functional.pad(self.classifier(x), (0, 10))[:, :10]",
)
bank.wrong(
    "wrong-shape",
    "squeezes",
    result="return self.classifier(x).squeeze()",
)
bank.wrong(
    "device-written-down",
    "to cuda if available",
    check="import torch\nassert x.shape[1:] == (3, 32, 32)\nif torch.cuda.is_available(): x = x.cpu()",
)

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "1.1": """
assert x.shape == (64, 3, 32, 32)
for block in self.blocks:
    x = block(x)
return self.classifier(x.flatten(1))
""",
}

bank.right(
    "flatten from one",
    whole={
        "1.1": """
assert tuple(x.shape[1:]) == (3, 32, 32), f"images must be [3, 32, 32], got {tuple(x.shape)}"
for block in self.blocks:
    x = block(x)
return self.classifier(x.flatten(1))
"""
    },
)
bank.right(
    "raises itself",
    whole={
        "1.1": """
if x.ndim != 4 or x.shape[1:] != (3, 32, 32):
    raise AssertionError(f"expected [B, 3, 32, 32], got {list(x.shape)}")
features = nn.Sequential(*self.blocks)(x)
batch = features.size(0)
return self.classifier(features.view(batch, -1))
"""
    },
)
bank.right(
    "reduce the blocks",
    whole={
        "1.1": """
import functools
import torch

assert x.shape[1:] == torch.Size([3, 32, 32])
features = functools.reduce(lambda h, block: block(h), self.blocks, x)
return self.classifier(torch.flatten(features, start_dim=1))
"""
    },
)
bank.right(
    "helper and unrolled",
    whole={
        "1.1": """
def _check_images(images: Tensor) -> None:
    batch, *image = images.shape
    assert image == [3, 32, 32], image

_check_images(x)
first, second, third = self.blocks
h = third(second(first(x)))
return self.classifier(h.reshape(len(h), self.classifier.in_features))
"""
    },
)
bank.right(
    "index loop flatten module",
    whole={
        "1.1": """
_, channels, height, width = x.shape
assert channels == 3 and height == width == 32, "wrong image"
for i in range(len(self.blocks)):
    x = self.blocks[i](x)
logits = nn.Flatten()(x)
logits = self.classifier(logits)
return logits
"""
    },
)
bank.wrong("fixed-batch-size", "batch is fixed", whole=STRAIGHT, slow=True)
bank.wrong(
    "assertion-of-other-images",
    "channels last shape",
    whole={
        "1.1": """
assert x.shape[1:] == (32, 32, 3)
for block in self.blocks:
    x = block(x)
return self.classifier(x.flatten(1))
"""
    },
)
bank.wrong(
    "assertion-cannot-fail",
    "comma instead of and",
    whole={
        "1.1": """
assert (x.ndim == 4, x.shape[1:] == (3, 32, 32))
for block in self.blocks:
    x = block(x)
return self.classifier(x.flatten(1))
"""
    },
    slow=True,
)
bank.right(
    "probabilities",
    whole={
        "1.1": """
assert x.shape[1:] == (3, 32, 32)
for block in self.blocks:
    x = block(x)
return self.classifier(x.flatten(1)).log_softmax(dim=-1)
"""
    },
    slow=True,
)
bank.wrong(
    "batch-flattened",
    "flattens the batch",
    whole={
        "1.1": """
import torch

assert x.shape[1:] == (3, 32, 32)
for block in self.blocks:
    x = block(x)
x = torch.flatten(x)
return self.classifier(x)
"""
    },
    slow=True,
)
bank.wrong(
    "blocks-not-in-turn",
    "loop from the input",
    whole={
        "1.1": """
assert x.shape[1:] == (3, 32, 32)
for block in self.blocks:
    y = block(x)
return self.classifier(y.flatten(1))
"""
    },
)
bank.wrong(
    "assertion-too-weak",
    "channels only",
    whole={
        "1.1": """
assert x.dim() == 4 and x.size(1) == 3, "need RGB images"
for block in self.blocks:
    x = block(x)
return self.classifier(x.flatten(1))
"""
    },
    slow=True,
)
bank.wrong(
    "wrong-shape",
    "squeezes one image",
    whole={
        "1.1": """
assert x.shape[1:] == (3, 32, 32)
for block in self.blocks:
    x = block(x)
logits = self.classifier(x.flatten(1)).squeeze()
return logits
"""
    },
    slow=True,
)
bank.wrong(
    "no-negative-logits",
    "relu on logits",
    whole={
        "1.1": """
assert x.shape[1:] == (3, 32, 32)
for block in self.blocks:
    x = block(x)
return self.classifier(x.flatten(1)).relu()
"""
    },
    slow=True,
)
bank.wrong(
    "error-swallowed",
    "assertion swallowed",
    whole={
        "1.1": """
try:
    assert x.shape[1:] == (3, 32, 32)
except AssertionError:
    pass
for block in self.blocks:
    x = block(x)
return self.classifier(x.flatten(1))
"""
    },
    slow=True,
)
bank.wrong(
    "no-assertion",
    "reshapes whatever comes",
    whole={
        "1.1": """
x = x.reshape(-1, 3, 32, 32)
for block in self.blocks:
    x = block(x)
return self.classifier(x.reshape(-1, 128 * 4 * 4))
"""
    },
    slow=True,
)
bank.wrong(
    "no-gradients",
    "no grad from inference",
    whole={
        "1.1": """
import torch

assert x.shape[1:] == (3, 32, 32)
with torch.no_grad():
    for block in self.blocks:
        x = block(x)
return self.classifier(x.flatten(1))
"""
    },
    slow=True,
)
bank.wrong(
    "no-assertion",
    "warns only",
    whole={
        "1.1": """
import warnings

if x.shape[1:] != (3, 32, 32):
    warnings.warn(f"bad shape {x.shape}")
for block in self.blocks:
    x = block(x)
return self.classifier(x.flatten(1))
"""
    },
    slow=True,
)
bank.wrong(
    "wrong-shape",
    "predicts classes",
    whole={
        "1.1": """
assert x.shape[1:] == (3, 32, 32)
for block in self.blocks:
    x = block(x)
logits = self.classifier(x.flatten(1))
return logits.argmax(dim=1)
"""
    },
    slow=True,
)
bank.wrong(
    "fixed-batch-size",
    "even batches only",
    whole={
        "1.1": """
assert x.shape[0] % 8 == 0, "batch size"
assert x.shape[1:] == (3, 32, 32)
for block in self.blocks:
    x = block(x)
return self.classifier(x.flatten(1))
"""
    },
    slow=True,
)
bank.wrong(
    "assertion-too-weak",
    "asserts afterwards",
    whole={
        "1.1": """
for block in self.blocks:
    x = block(x)
assert x.shape[2:] == (4, 4)
return self.classifier(x.flatten(1))
"""
    },
    slow=True,
)

# ---- right on this machine, in this mode, at this size

RESULT = "return self.classifier(x)"
bank.wrong(
    "dtype-changed",
    "autocast in the network itself",
    whole={
        "1.1": """
import torch

assert x.shape[1:] == (3, 32, 32)
with torch.autocast(x.device.type, dtype=torch.bfloat16):
    for block in self.blocks:
        x = block(x)
    return self.classifier(x.flatten(1))
"""
    },
)
bank.wrong(
    "dtype-changed",
    "autocast for GPUs in the network itself",
    check="import torch\nassert x.shape[1:] == (3, 32, 32)\n"
    "with torch.autocast('cuda', dtype=torch.bfloat16):\n    x = self.blocks[0](x)",
    loop="for block in self.blocks[1:]:",
    slow=True,
)
bank.wrong(
    "dtype-changed",
    "autocast switched off in the network",
    whole={
        "1.1": """
import torch

assert x.shape[1:] == (3, 32, 32)
with torch.autocast(x.device.type, enabled=False):
    for block in self.blocks:
        x = block(x)
return self.classifier(x.flatten(1))
"""
    },
    slow=True,
)
bank.wrong("dtype-changed", "the features are cast to float32", flatten="x = x.flatten(1).float()", slow=True)
bank.wrong("dtype-changed", "the features are cast to float64", flatten="x = x.flatten(1).double()", slow=True)
bank.wrong(
    "softmax-before-loss",
    "softmax in evaluation only",
    result=f"logits = {RESULT[7:]}\nreturn logits if self.training else logits.softmax(dim=1)",
)
bank.wrong(
    "other-in-evaluation",
    "logits divided in evaluation only",
    result=f"logits = {RESULT[7:]}\nreturn logits if self.training else logits / 2",
)
bank.wrong(
    "wrong-shape",
    "classes without gradients",
    result=f"import torch\nx = {RESULT[7:]}\nreturn x if torch.is_grad_enabled() else x.argmax(dim=1)",
    slow=True,
)
bank.wrong(
    "device-written-down",
    "GPU 0 for every rank",
    loop='import torch\nif torch.cuda.is_available():\n    x = x.to("cuda:0")\nfor block in self.blocks:',
)
bank.wrong(
    "device-written-down",
    "features collected on the CPU",
    flatten="import torch\nfeatures = torch.empty(len(x), 128 * 4 * 4)\n"
    "for i, image in enumerate(x):\n    features[i] = image.flatten()\nx = features",
    slow=True,
)
bank.right(
    "a mean that is made where the images are",
    loop="import torch\nx = x - torch.zeros(3, 1, 1, dtype=x.dtype, device=x.device)\n"
    "x = x.to(self.classifier.weight.device)\nfor block in self.blocks:",
    slow=True,
)
bank.wrong("fixed-batch-size", "at most 256 images", loop="assert len(x) <= 256\nfor block in self.blocks:")
bank.wrong("wrong-shape", "only the first 512 images", loop="x = x[:512]\nfor block in self.blocks:", slow=True)
bank.wrong(
    "wrong-shape",
    "the odd image is left out",
    loop="if len(x) > 1:\n    x = x[: len(x) // 2 * 2]\nfor block in self.blocks:",
    slow=True,
)
bank.wrong(
    "numbers-read",
    "asserts that all pixels are finite",
    loop="assert x.isfinite().all()\nfor block in self.blocks:",
)
bank.wrong(
    "numbers-read",
    "divides bright images only",
    loop="if x.max() > 100:\n    x = x / 255\nfor block in self.blocks:",
    slow=True,
)
bank.wrong(
    "assertion-too-late",
    "images with the channels last are repaired",
    check="if x.shape[-1] == 3:\n    x = x.permute(0, 3, 1, 2)\nassert x.shape[1:] == (3, 32, 32)",
)
bank.wrong(
    "assertion-too-late",
    "reshaped, then asserted",
    check="x = x.reshape(-1, 3, 32, 32)\nassert x.shape[1:] == (3, 32, 32)",
    slow=True,
)
bank.wrong(
    "assertion-too-late",
    "scaled to 32 x 32, then asserted",
    check="x = nn.functional.interpolate(x, (32, 32))\nassert x.shape[1:] == (3, 32, 32)",
    slow=True,
)
bank.wrong("blocks-not-called", "forward of each block", block="x = block.forward(x)")
bank.wrong(
    "blocks-not-called",
    "the layers of each block",
    loop="for layers in self.blocks:",
    block="for layer in layers:\n    x = layer(x)",
    slow=True,
)
bank.wrong(
    "dtype-changed",
    "half precision on a GPU",
    check="assert x.shape[1:] == (3, 32, 32)\nx = x.half() if x.is_cuda else x",
)
bank.wrong(
    "other-on-gpu",
    "the images are divided on a GPU",
    check="assert x.shape[1:] == (3, 32, 32)\nif x.device.type == 'cuda':\n    x = x / 255",
    slow=True,
)
bank.wrong(
    "assertion-not-everywhere",
    "the assertion in training only",
    check="if self.training:\n    assert x.shape[1:] == (3, 32, 32)",
)
bank.wrong(
    "assertion-not-everywhere",
    "the assertion on the CPU only",
    check="if not x.is_cuda:\n    assert x.shape[1:] == (3, 32, 32)",
    slow=True,
)

# ---- one of the sizes, and a batch that is kept

bank.right("the last three sizes", check="assert tuple(x.shape[-3:]) == (3, 32, 32)", slow=True)
bank.wrong(
    "assertion-too-weak",
    "the height is not asserted",
    check="assert x.shape[1] == 3 and x.shape[-1] == 32",
    slow=True,
)
bank.wrong("assertion-too-weak", "the width is not asserted", check="assert x.shape[1:3] == (3, 32)", slow=True)
bank.wrong(
    "assertion-too-weak",
    "as many pixels as 32 x 32",
    check="assert x.size(1) == 3 and x.size(2) * x.size(3) == 32 * 32",
    slow=True,
)
bank.wrong(
    "assertion-too-weak",
    "three channels at least",
    check="assert x.size(1) >= 3 and x.shape[2:] == (32, 32)",
    slow=True,
)
bank.wrong(
    "assertion-too-weak",
    "a height of 32 at most",
    check="assert x.size(1) == 3 and x.size(2) <= 32 and x.size(3) == 32",
    slow=True,
)
bank.wrong(
    "fixed-batch-size",
    "the size of the first batch is kept",
    check="assert x.shape[1:] == (3, 32, 32)\nif not hasattr(self, 'rows'):\n    self.rows = len(x)",
    flatten="x = x.view(self.rows, -1)",
    slow=True,
)
bank.wrong(
    "fixed-batch-size",
    "the size of the first batch is kept by the class",
    check="assert x.shape[1:] == (3, 32, 32)\nCNN.rows = getattr(CNN, 'rows', len(x))",
    flatten="x = x.view(CNN.rows, -1)",
    slow=True,
)
bank.wrong(
    "assertion-cannot-fail",
    "only the first batch is asserted",
    check="if not hasattr(self, 'seen'):\n    assert x.shape[1:] == (3, 32, 32)\nself.seen = True",
    slow=True,
)

# ---- asserted first, but too little

bank.wrong(
    "assertion-too-weak",
    "the sizes in any order, then reshaped",
    check="assert sorted(x.shape[1:]) == [3, 32, 32], x.shape\nx = x.reshape(-1, 3, 32, 32)",
    slow=True,
)
bank.wrong("wrong-shape", "squeezed before it is flattened", flatten="x = x.squeeze().flatten(1)", slow=True)
bank.wrong(
    "wrong-shape",
    "squeezed at the end, and asserted there",
    flatten="batch, x = len(x), x.flatten(1)",
    result="x = self.classifier(x).squeeze()\nassert x.shape == (batch, 10), x.shape\nreturn x",
    slow=True,
)
bank.wrong(
    "no-negative-logits",
    "a ReLU after everything",
    block="x = nn.functional.relu(block(x))",
    result="return nn.functional.relu(self.classifier(x))",
    slow=True,
)
bank.wrong(
    "rows-depend-on-batch",
    "reshaped to columns, and transposed",
    flatten="x = x.reshape(128 * 4 * 4, -1).T",
    slow=True,
)
bank.wrong(
    "rows-depend-on-batch",
    "the features sorted over the batch",
    flatten="x = x.reshape(len(x), -1)\nx = x.cumsum(dim=0)",
    slow=True,
)

# ---- as one rank of several

IMPORTED = "import os\nimport torch.distributed as dist\n"
bank.wrong(
    "other-on-ranks",
    "the rank's part, cut out of what is its part",
    loop=f"{IMPORTED}if dist.is_initialized():\n"
    "    x = x.chunk(dist.get_world_size())[dist.get_rank()]\nfor block in self.blocks:",
    slow=True,
)
bank.wrong(
    "other-on-ranks",
    "every world-size-th image, by the launcher's variables",
    loop=f'{IMPORTED}world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))\n'
    "x = x[rank::world]\nfor block in self.blocks:",
    slow=True,
)
bank.wrong(
    "other-on-ranks",
    "a batch that the ranks can share evenly",
    check=f"{IMPORTED}assert x.shape[1:] == (3, 32, 32), x.shape\n"
    "if dist.is_initialized():\n    assert len(x) % dist.get_world_size() == 0, len(x)",
    slow=True,
)
bank.wrong(
    "other-on-ranks",
    "the logits of all ranks",
    result=f"{IMPORTED}import torch\nlogits = self.classifier(x)\n"
    "if not dist.is_initialized():\n    return logits\n"
    "parts = [torch.empty_like(logits) for _ in range(dist.get_world_size())]\n"
    "dist.all_gather(parts, logits)\nreturn torch.cat(parts)",
    slow=True,
)
bank.right(
    "only rank 0 says what it has got",
    check=f"{IMPORTED}if not dist.is_initialized() or dist.get_rank() == 0:\n    print(len(x))\n"
    "assert x.shape[1:] == (3, 32, 32), x.shape",
    slow=True,
)
