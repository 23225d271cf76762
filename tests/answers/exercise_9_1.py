"""Answers to 9.1: an all-reduce around a ring."""

from answers.entries import Bank

bank = Bank(
    "9.1",
    {
        "9.1a": """
here, n = dist.get_rank(), dist.get_world_size()  # who
to, source = (here + 1) % n, (here - 1 + n) % n  # neighbours
pending = [dist.isend(outgoing, dst=to), dist.irecv(incoming, src=source)]  # begin
for request in pending:  # each
    request.wait()  # wait
""",
        "9.1b": """
part = rank  # first
for _ in range(ranks - 1):  # steps
    before = (part - 1) % ranks  # next
    buffer = torch.zeros_like(parts[before])  # buffer
    exchange(parts[part], buffer)  # exchange
    parts[before].add_(buffer)  # add
    part = before  # onward
""",
        "9.1c": """
part = (rank + 1) % ranks  # start
for _ in range(ranks - 1):  # rounds
    before = (part - 1) % ranks  # previous
    exchange(parts[part], parts[before])  # gather
    part = before  # go on
""",
    },
)

bank.right(
    "the even ranks send first",
    begin="if n == 1: return\nif here % 2 == 0:\n    dist.send(outgoing, to)\n    dist.recv(incoming, source)\n"
    "else:\n    own = outgoing.clone()\n    dist.recv(incoming, source)\n    dist.send(own, to)\npending = []",
)
bank.right(
    "batch_isend_irecv",
    begin="sending, receiving = dist.P2POp(dist.isend, outgoing, to), dist.P2POp(dist.irecv, incoming, source)\n"
    "pending = dist.batch_isend_irecv([sending, receiving])",
)
bank.right(
    "the ring the other way round",
    neighbours="to, source = (here - 1) % n, (here + 1) % n",
    next="before = (part + 1) % ranks",
    start="part = (rank - 1) % ranks",
    previous="before = (part + 1) % ranks",
)
bank.right(
    "receive begun before the send", begin="pending = [dist.irecv(incoming, source), dist.isend(outgoing, to)]"
)
bank.right("with a tag", begin="pending = [dist.isend(outgoing, to, tag=7), dist.irecv(incoming, source, tag=7)]")
bank.right(
    "gathered through a buffer",
    gather="buffer = torch.empty_like(parts[before])\nexchange(parts[part], buffer)\nparts[before].copy_(buffer)",
)

bank.wrong(
    "all-receive-first",
    "recv before send on all ranks",
    begin="dist.recv(incoming, source)\ndist.send(outgoing, to)\npending = []",
)
bank.wrong(
    "all-send-first",
    "send before recv on all ranks",
    begin="dist.send(outgoing, to)\ndist.recv(incoming, source)\npending = []",
)
bank.wrong(
    "all-send-first",
    "waits for the isend before the irecv",
    begin="dist.isend(outgoing, to).wait()\ndist.irecv(incoming, source).wait()\npending = []",
)
bank.wrong("all-receive-first", "nobody sends", begin="pending = [dist.irecv(incoming, source)]")
bank.wrong(
    "wrong-peer", "sends to and receives from the same neighbour", neighbours="to = source = (here + 1) % n"
)
bank.wrong(
    "tags-differ",
    "another tag on each side",
    begin="pending = [dist.isend(outgoing, to, tag=1), dist.irecv(incoming, source, tag=2)]",
)

bank.wrong("message-missing", "rank 0 does a step more", rounds="for _ in range(ranks - 1 + (rank == 0)):")
bank.wrong("not-waited", "wait() forgotten", wait="pass")
bank.wrong("not-waited", "waits for the send only", each="for request in pending[:1]:")
bank.wrong(
    "message-sizes-differ",
    "the buffer has the size of the part that is sent",
    buffer="buffer = torch.zeros_like(parts[part])",
)
bank.wrong(
    "buffer-of-other-type", "a buffer of float32 for all", buffer="buffer = torch.zeros(len(parts[before]))"
)
bank.wrong("not-added", "received right into the own part", buffer="buffer = parts[before]", add="pass")
bank.wrong("not-in-place", "added out of place", add="parts[before] = parts[before] + buffer")
bank.wrong("not-in-place", "the buffer is never added", whole={"9.1c": "pass"}, add="pass")
bank.wrong("not-gathered", "no all-gather", whole={"9.1c": "pass"})
bank.wrong("begins-with-other-part", "hands its own part around first", start="part = rank")
bank.wrong("too-few-steps", "a step too few in the all-gather", rounds="for _ in range(ranks - 2):")
bank.wrong("too-few-steps", "a step too few in the reduce-scatter", steps="for _ in range(ranks - 2):")
bank.wrong("too-many-steps", "three times around in the reduce-scatter", steps="for _ in range(3 * ranks):")
bank.wrong("too-many-steps", "a whole round in the reduce-scatter", steps="for _ in range(ranks):")
bank.wrong("not-added", "the same part in every step", onward="pass")
bank.wrong(
    "averaged",
    "the mean in place of the sum",
    add="parts[before].add_(buffer)\nif _ == ranks - 2: parts[before] /= ranks",
)
bank.wrong(
    "averaged",
    "the complete part divided, as a method",
    slow=True,
    add="parts[before].add_(buffer)\nif _ == ranks - 2: parts[before].div_(ranks)",
)
bank.wrong(
    "collective-called",
    "PyTorch's all_reduce of each part",
    steps="for part in parts: dist.all_reduce(part)\nfor _ in range(0):",
    whole={"9.1c": "pass"},
)
bank.wrong(
    "whole-tensors-sent",
    "every tensor goes around the whole ring",
    whole={
        "9.1b": """
whole = torch.cat(parts)
outgoing, total = whole.clone(), whole.clone()
for _ in range(ranks - 1):
    incoming = torch.empty_like(outgoing)
    exchange(outgoing, incoming)
    total += incoming
    outgoing = incoming
for part, result in zip(parts, split(total)):
    part.copy_(result)
""",
        "9.1c": "pass",
    },
)
bank.wrong(
    "one-rank-does-all",
    "rank 0 adds up and hands out",
    whole={
        "9.1b": """
for part in parts:
    if rank == 0:
        buffer = torch.empty_like(part)
        for other in range(1, ranks):
            dist.recv(buffer, other)
            part += buffer
    else:
        dist.send(part, 0)
""",
        "9.1c": """
for part in parts:
    if rank == 0:
        for other in range(1, ranks):
            dist.send(part, other)
    else:
        dist.recv(part, 0)
""",
    },
)
bank.wrong(
    "not-a-ring",
    "every part straight to its owner",
    whole={
        "9.1b": """
mine = (rank + 1) % ranks
requests = [dist.isend(parts[(other + 1) % ranks], other) for other in range(ranks) if other != rank]
for other in range(ranks):
    if other != rank:
        buffer = torch.empty_like(parts[mine])
        dist.recv(buffer, other)
        parts[mine] += buffer
for request in requests:
    request.wait()
"""
    },
)
bank.wrong(
    "wrong-on-one-rank",
    "talks to itself where it is alone",
    add="parts[before].add_(buffer)",
    steps="for _ in range(max(ranks - 1, 1)):",
    exchange="if ranks > 1: exchange(parts[part], buffer)\nelse: buffer.fill_(1)",
)
bank.wrong("not-all-gathered", "hands around the same part in every step", **{"go on": "pass"})
bank.wrong(
    "talks-to-itself",
    "a round more, in which one rank alone sends to itself",
    steps="for _ in range(max(ranks - 1, 1)):",
)
bank.wrong(
    "no-such-rank",
    "the ring is not closed",
    neighbours="to, source = here + 1, here - 1",
    begin="if n == 1: return\npending = [dist.isend(outgoing, dst=to), dist.irecv(incoming, src=source)]",
)
bank.wrong("talks-to-itself", "every rank sends to itself", neighbours="to, source = here, (here - 1) % n")
bank.wrong("too-many-steps", "a round too many in the all-gather", rounds="for _ in range(ranks):")

bank.right(
    "each part in two messages",
    begin="pending = [dist.isend(one, to) for one in outgoing.tensor_split(2)]\n"
    "pending += [dist.irecv(one, source) for one in incoming.tensor_split(2)]",
)
bank.wrong(
    "not-all-sent",
    "an odd part's last number is in neither half",
    begin="half, other = len(outgoing) // 2, len(incoming) // 2\n"
    "pending = [dist.isend(one, to) for one in (outgoing[:half], outgoing[half : 2 * half])]\n"
    "pending += [dist.irecv(one, source) for one in (incoming[:other], incoming[other : 2 * other])]",
)
bank.wrong(
    "own-part-overwritten", "the buffer is the own part in other words", buffer="buffer = parts[before].detach()"
)
bank.wrong(
    "done-at-times",
    "leaves where it has nothing to send",
    who="if not len(outgoing): return\nhere, n = dist.get_rank(), dist.get_world_size()",
)
bank.wrong(
    "done-at-times",
    "adds in all steps but the last",
    slow=True,
    add="if _ < ranks - 2:\n    parts[before].add_(buffer)",
)
bank.wrong(
    "not-gathered",
    "gathered into a new tensor of the list",
    slow=True,
    gather="buffer = torch.empty_like(parts[before])\nexchange(parts[part], buffer)\nparts[before] = buffer",
)
bank.wrong("result-dropped", "adds to the variable", slow=True, add="own = parts[before]\nown = own + buffer")
bank.wrong(
    "message-sizes-differ", "sends its own part in every step", slow=True, exchange="exchange(parts[rank], buffer)"
)
bank.wrong(
    "not-waited",
    "nobody waits for the receive",
    slow=True,
    begin="pending = [dist.isend(outgoing, dst=to)]\ndist.irecv(incoming, src=source)",
)
bank.wrong(
    "wrong-peer",
    "sends forth, and expects from there",
    slow=True,
    begin="pending = [dist.isend(outgoing, dst=to)]\npending += [dist.irecv(incoming, src=to)]",
)
bank.wrong(
    "passed-on-as-it-came",
    "sends on what has come in",
    first="moving = parts[rank].clone()\npart = rank",
    exchange="exchange(moving, buffer)",
    onward="moving = buffer\npart = before",
)
bank.wrong(
    "ring-backwards",
    "the other way round, with the part numbers of this one",
    neighbours="to, source = (here - 1) % n, (here + 1) % n",
)
bank.wrong(
    "no-such-rank",
    "four ranks, whatever there are",
    neighbours="to = (here + 1) % 4\nsource = (here + 3) % 4",
    begin="if n == 1: return\npending = [dist.isend(outgoing, dst=to), dist.irecv(incoming, src=source)]",
)
bank.right(
    "what goes on is made of what came in",
    first="moving = parts[rank].clone()\npart = rank",
    exchange="exchange(moving, buffer)",
    add="buffer += parts[before]\nparts[before].copy_(buffer)",
    onward="moving = buffer\npart = before",
)

bank.wrong(
    "complete-parts-added",
    "the complete parts are added as in the first half",
    gather="buffer = torch.empty_like(parts[before])\nexchange(parts[part], buffer)\nparts[before] += buffer",
)
bank.wrong(
    "complete-parts-added",
    "the complete parts are added, in a new tensor that is copied",
    slow=True,
    gather="buffer = torch.empty_like(parts[before])\nexchange(parts[part], buffer)\n"
    "parts[before].copy_(parts[before] + buffer)",
)
bank.wrong(
    "not-its-neighbour",
    "a ring of two ranks, however many there are",
    slow=True,
    neighbours="to, source = (here + 1) % 2, (here - 1) % 2",
)
