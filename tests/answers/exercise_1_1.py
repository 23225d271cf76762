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
bank.wrong("images-changed", "the images are scaled in place", loop="x *= 0.5\nfor block in self.blocks:")
bank.wrong("device-written-down", "results that are always on the CPU", flatten='x = x.flatten(1).to("cpu")')
