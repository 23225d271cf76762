"""Answers to 9.2: gradients averaged in buckets, while the backward pass runs."""

from answers.entries import ON_ONE_RANK, UNEVEN_STEPS, Bank

bank = Bank(
    "9.2",
    {
        "9.2a": """
full, room = cap_mb * 2**20, []  # begin
buckets = []
for p in reversed(list(module.parameters())):  # order
    if not p.requires_grad: continue  # trained
    room.append(p)
    if sum(q.numel() * q.element_size() for q in room) >= full:  # full
        buckets.append(Bucket(room))  # close
        room = []  # empty
if room: buckets.append(Bucket(room))  # rest
return buckets
""",
        "9.2b": """
with torch.no_grad():  # quietly
    for p in module.parameters():  # parameters
        dist.broadcast(p, 0)  # send
    for b in module.buffers():  # buffers
        dist.broadcast(b, 0)  # send them
for bucket in self.buckets:  # hooked
    for p in bucket.parameters:
        p.register_post_accumulate_grad_hook(lambda p, b=bucket: self._ready(b))  # hook
""",
        "9.2c": """
if self.syncs:  # syncing
    bucket.ready += 1  # count
    full = [b.ready == len(b.parameters) for b in self.buckets]  # which
    while self.begun < len(full) and full[self.begun]:  # each
        self._begin(self.buckets[self.begun])  # go
""",
        "9.2d": """
bucket.flat.div_(dist.get_world_size())  # divide
bucket.work = dist.all_reduce(bucket.flat, async_op=True)  # reduce
self.begun = self.begun + 1  # next
""",
        "9.2e": """
if self.syncs:  # not in no_sync
    while self.begun < len(self.buckets):  # left
        self._begin(self.buckets[self.begun])  # late
    for bucket in self.buckets:  # every
        bucket.work.wait()  # wait
        bucket.ready = 0  # again
    self.begun = 0  # reset
""",
    },
)

bank.right(
    "one method for all hooks, and a dict from parameter to bucket",
    hooked="owner = {p: one for one in self.buckets for p in one.parameters}\nfor bucket in self.buckets:",
    hook="p.register_post_accumulate_grad_hook(lambda p: self._ready(owner[p]))",
)
bank.right(
    "divided after the all-reduce",
    divide="",
    again="bucket.flat.div_(dist.get_world_size())\nbucket.ready = 0",
)
bank.right(
    "the broadcast of the file",
    parameters="broadcast(list(module.parameters()))\nfor p in []:",
    buffers="broadcast(list(module.buffers()))\nfor b in []:",
)
bank.right(
    "bound with functools.partial",
    hooked="import functools\nfor bucket in self.buckets:",
    hook="p.register_post_accumulate_grad_hook(functools.partial(lambda b, _: self._ready(b), bucket))",
)
bank.right(
    "a count set back where its bucket begins",
    reduce="bucket.work, bucket.ready = dist.all_reduce(bucket.flat, async_op=True), 0",
    again="pass",
)

bank.wrong("not-broadcast", "every rank begins with its own weights", parameters="for p in []:")
bank.wrong("not-broadcast", "the weights of the last rank", send="dist.broadcast(p, dist.get_world_size() - 1)")
bank.wrong("buffers-not-broadcast", "parameters only", buffers="for b in []:")
bank.wrong(
    "never-reduced",
    "no hooks, and finish() waits only",
    hook="pass",
    left="while False:",
    every="for bucket in []:",
)
bank.wrong("no-overlap", "no hooks: all is left to finish()", hook="pass")
bank.wrong(
    "no-overlap",
    "begins when every gradient is there",
    each="while all(full) and self.begun < len(full):",
)
bank.wrong("summed-not-averaged", "summed, not divided", divide="")
bank.wrong(
    "divided-twice",
    "divided before and after",
    again="bucket.flat.div_(dist.get_world_size())\nbucket.ready = 0",
)
bank.wrong("not-waited", "wait() forgotten", wait="pass")
bank.wrong(
    "not-waited",
    "waits for the last bucket only",
    every="self.buckets[-1].work.wait()\nfor bucket in self.buckets:",
    wait="pass",
)
bank.wrong(
    "waits-in-backward",
    "an all-reduce that waits",
    reduce="dist.all_reduce(bucket.flat)\nclass Done:\n    def wait(self): pass\nbucket.work = Done()",
)
bank.wrong(
    "waits-in-backward",
    "waits as soon as it has begun",
    reduce="bucket.work = dist.all_reduce(bucket.flat, async_op=True)\nbucket.work.wait()",
)
bank.wrong(
    ON_ONE_RANK,
    "buckets that are not full are left out",
    left="while False:",
    every="for bucket in self.buckets[: self.begun]:",
)
bank.wrong(
    "buckets-in-forward-order", "from the first parameter to the last", order="for p in list(module.parameters()):"
)
bank.wrong("no-buckets", "an all-reduce for each parameter", full="if True:")
bank.wrong("buckets-too-large", "one bucket for all", full="if False:")
bank.wrong("buckets-too-large", "megabytes taken for kilobytes", begin="full, room = cap_mb * 2**30, []")
bank.wrong("some-not-reduced", "what waits at the end is forgotten", rest="")
bank.wrong("no-sync-communicates", "no_sync() is not asked", syncing="if True:")
bank.wrong("no-sync-communicates", "no_sync() is not asked in finish()", **{"not in no_sync": "if True:"})
bank.wrong(
    "buckets-out-of-order",
    "each bucket begins when it is full",
    each="if bucket.ready == len(bucket.parameters):",
    go="self._begin(bucket)",
    left="for late in [one for one in self.buckets if one.work is None]:",
    late="self._begin(late)",
    again="bucket.ready, bucket.work = 0, None",
)
bank.wrong(
    "hooks-share-a-bucket",
    "the last bucket for all hooks",
    hook="p.register_post_accumulate_grad_hook(lambda p: self._ready(bucket))",
)
bank.wrong("not-reset", "ready is never set back", again="pass")
bank.wrong(
    "not-reset",
    "what a full bucket holds is taken off the count",
    slow=True,
    again="bucket.ready -= len(bucket.parameters)",
)
bank.wrong(
    "done-at-times",
    "only full buckets are set back",
    again="if bucket.ready == len(bucket.parameters): bucket.ready = 0",
)
bank.wrong(
    "gradients-are-copies",
    "copies handed out",
    wait="bucket.work.wait()\nfor p, v in zip(bucket.parameters, bucket.views): p.grad = v.clone()",
)
bank.wrong(
    "other-collective",
    "reduced to rank 0, and broadcast",
    reduce="dist.reduce(bucket.flat, 0)\nbucket.work = dist.broadcast(bucket.flat, 0, async_op=True)",
)
bank.wrong("bucket-not-begun", "finish() waits for what has not begun", left="while False:")
bank.wrong("hook-too-early", "a tensor's own hook", hook="p.register_hook(lambda g, b=bucket: self._ready(b))")
bank.wrong(
    "closed-before-full",
    "closed before it would be too large",
    whole={
        "9.2a": """
buckets, room, size = [], [], 0
for p in reversed([p for p in module.parameters() if p.requires_grad]):
    own = p.numel() * p.element_size()
    if room and size + own > cap_mb * 2**20:
        buckets.append(Bucket(room))
        room, size = [], 0
    room.append(p)
    size += own
return [*buckets, Bucket(room)]
"""
    },
)
bank.wrong("frozen-in-buckets", "frozen parameters in buckets", trained="")
bank.wrong(
    "frozen-in-buckets",
    "frozen parameters in buckets, without a hook",
    trained="",
    hook="if p.requires_grad: p.register_post_accumulate_grad_hook(lambda p, b=bucket: self._ready(b))",
)
bank.wrong("megabytes", "a million bytes taken for a MiB", begin="full, room = cap_mb * 1e6, []")
bank.wrong(
    "full-bucket-waits",
    "one bucket for each gradient at most",
    each="if self.begun < len(full) and full[self.begun]:",
)
bank.wrong(
    "counted-in-no-sync",
    "counts before it asks for no_sync()",
    syncing="bucket.ready += 1\nif self.syncs:",
    count="pass",
)
bank.wrong(
    "changed-while-it-travels",
    "divided when the all-reduce has begun",
    divide="",
    reduce="bucket.work = dist.all_reduce(bucket.flat, async_op=True)\nbucket.flat /= dist.get_world_size()",
)
bank.wrong(
    "several-for-a-bucket",
    "an all-reduce for each view of a bucket",
    reduce="works = [dist.all_reduce(view, async_op=True) for view in bucket.views]\nbucket.work = works[-1]",
)
bank.wrong(
    "buffers-not-broadcast",
    "what is in the state_dict",
    parameters="broadcast(list(module.state_dict().values()))\nfor p in []:",
    buffers="for b in []:",
)
bank.wrong(
    ON_ONE_RANK,
    "a bucket of which nothing was used is left out",
    left="for late in [one for one in self.buckets if one.work is None and one.ready > 0]:",
    late="self._begin(late)",
    wait="if bucket.work is not None: bucket.work.wait()",
    again="bucket.work, bucket.ready = None, 0",
)
bank.wrong(
    ON_ONE_RANK,
    "a bucket without any gradient is left out",
    left="for late in self.buckets[self.begun :]:",
    late="if any(p.grad is not None for p in late.parameters): self._begin(late)",
    wait="if bucket.work is not None: bucket.work.wait()",
    again="bucket.work, bucket.ready = None, 0",
)

bank.wrong(
    "counts-numbers",
    "numbers compared with bytes",
    full="if sum(q.numel() for q in room) >= full:",
)
bank.wrong(
    UNEVEN_STEPS,
    "only rank 0 begins the buckets that are left",
    late="if dist.get_rank(): break\nself._begin(self.buckets[self.begun])",
)
bank.wrong(
    "not-reduced",
    "the flat tensor is another one after the division",
    slow=True,
    divide="bucket.flat = bucket.flat / dist.get_world_size()",
)
bank.wrong(
    "done-at-times",
    "waits for the buckets that got full",
    wait="if bucket.ready == len(bucket.parameters): bucket.work.wait()",
)
bank.wrong(
    "done-at-times",
    "hooks for matrices only",
    slow=True,
    hook="if p.ndim > 1: p.register_post_accumulate_grad_hook(lambda p, b=bucket: self._ready(b))",
)
bank.wrong(
    "buckets-out-of-order",
    "each as soon as it is full itself",
    slow=True,
    which="if bucket.ready == len(bucket.parameters):\n    self._begin(bucket)",
    each="while False:",
    left="for one in [one for one in self.buckets if not one.work]:",
    late="self._begin(one)",
    again="bucket.ready, bucket.work = 0, None",
)
bank.wrong(
    UNEVEN_STEPS,
    "nothing to finish where none has begun",
    **{"not in no_sync": "if self.syncs and self.begun:"},
)
bank.wrong(
    ON_ONE_RANK,
    "a bucket without any gradient is left out, and not waited for",
    slow=True,
    left="for late in self.buckets[self.begun :]:",
    late="if late.ready > 0: self._begin(late)",
    wait="if bucket.work is not None: bucket.work.wait()\nbucket.work = None",
)
bank.right(
    "divided in a callback that is waited for",
    slow=True,
    divide="ranks = dist.get_world_size()",
    reduce="work = dist.all_reduce(bucket.flat, async_op=True)\n"
    "bucket.work = work.get_future().then(lambda done: done.value()[0].div_(ranks))",
)
bank.right(
    "divided in callbacks that are waited for together",
    slow=True,
    divide="ranks = dist.get_world_size()",
    reduce="bucket.work = dist.all_reduce(bucket.flat, async_op=True)\n"
    "bucket.work = bucket.work.get_future().then(lambda done: bucket.flat.div_(ranks))",
    every="torch.futures.wait_all([bucket.work for bucket in self.buckets])\nfor bucket in self.buckets:",
    wait="bucket.work = None",
)
bank.wrong(
    "callback-not-awaited",
    "waits for the all-reduce, and not for the callback that divides",
    slow=True,
    divide="ranks = dist.get_world_size()",
    reduce="bucket.work = dist.all_reduce(bucket.flat, async_op=True)\n"
    "bucket.work.get_future().then(lambda done: bucket.flat.div_(ranks))",
)
bank.wrong(
    "callback-not-awaited",
    "waits for the future of the all-reduce, and not for its callback",
    slow=True,
    divide="ranks = dist.get_world_size()",
    reduce="bucket.work = dist.all_reduce(bucket.flat, async_op=True).get_future()\n"
    "bucket.work.add_done_callback(lambda done: bucket.flat.div_(ranks))",
)
bank.wrong(
    "bytes-of-another-type",
    "four bytes a number, whatever its type",
    slow=True,
    full="size = sum(4 * q.numel() for q in room)\nif size >= full:",
)
bank.wrong(
    ON_ONE_RANK,
    "one bucket alone of those that are left",
    slow=True,
    left="if self.begun < len(self.buckets):",
    wait="if bucket.work is not None: bucket.work.wait()\nbucket.work = None",
)
bank.wrong(
    "not-broadcast",
    "a list of the trained parameters is broadcast",
    slow=True,
    whole={
        "9.2b": """
tensors = [p for bucket in self.buckets for p in bucket.parameters]
tensors += module.buffers()
broadcast(tensors)
for bucket in self.buckets:
    for p in bucket.parameters:
        p.register_post_accumulate_grad_hook(lambda p, b=bucket: self._ready(b))
"""
    },
)
