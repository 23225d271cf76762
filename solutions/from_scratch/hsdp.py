"""Exercise 9.7: two dimensions, or DDP of FSDP groups, built by hand (hybrid sharding, HSDP).

Links inside a node are fast, those between nodes slow. FSDP over all ranks would gather every parameter over the
slow ones. So the parameters are sharded inside each node, and the nodes are replicas of each other:

                  position 0   position 1
        node 0      rank 0  ---  rank 1      shard group: all-gather the parameters, reduce-scatter the gradients
                      |            |
        node 1      rank 2  ---  rank 3      each column is a replicate group: all-reduce the gradients' shards

Between nodes goes only a rank's 1/P of the gradients, with P ranks a node. But a rank keeps 1/P of all, not 1/N.
All parameters are gathered at once here, and not by blocks. Zhao et al., "PyTorch FSDP", 2023.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn

# Called ..._single since PyTorch 2.14.
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def make_groups(ranks_per_node: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """This rank's shard group, which is its node, and its replicate group: the same position in each node.

    Launchers number ranks node by node: the first `ranks_per_node` are one node's.
    """
    # TODO 9.7a: dist.new_group(ranks) for each node, and for each position. All ranks make all groups, in the same
    # order, those that they are not in, too; then each returns its own two.
    ### BEGIN SOLUTION 9.7a
    node, position = divmod(dist.get_rank(), ranks_per_node)
    mesh = torch.arange(dist.get_world_size()).view(-1, ranks_per_node)  # [nodes, positions]
    shard_groups = [dist.new_group(row) for row in mesh.tolist()]
    replicate_groups = [dist.new_group(column) for column in mesh.T.tolist()]
    return shard_groups[node], replicate_groups[position]
    ### END SOLUTION


class MyHSDP:
    """A step: gather(), forward, backward, reduce(), and the optimizer's step of `shard`, a part of it all.

    Args:
        module: with parameters of one type. Outside of a step they are empty.
    """

    def __init__(
        self, module: nn.Module, shard_group: dist.ProcessGroup, replicate_group: dist.ProcessGroup
    ) -> None:
        self.parameters = list(module.parameters())
        self.shapes = [parameter.shape for parameter in self.parameters]
        self.sizes = [parameter.numel() for parameter in self.parameters]
        self.shard_group, self.replicate_group = shard_group, replicate_group
        # TODO 9.7b: all parameters, joined(); those of rank 0 for all; and self.shard, an nn.Parameter with a copy
        # of this rank's part: dist.get_rank(group) is the position in a group.
        ### BEGIN SOLUTION 9.7b
        ranks, position = dist.get_world_size(shard_group), dist.get_rank(shard_group)
        flat = self.joined([parameter.detach() for parameter in self.parameters])
        dist.broadcast(flat, src=0)
        self.shard = nn.Parameter(flat.chunk(ranks)[position].clone())
        ### END SOLUTION
        self.free()

    def joined(self, tensors: list[Tensor]) -> Tensor:
        flat = torch.cat([tensor.flatten() for tensor in tensors])  # padding follows
        return nn.functional.pad(flat, (0, -len(flat) % dist.get_world_size(self.shard_group)))

    def gather(self) -> None:
        """Make the parameters whole."""
        # TODO 9.7c: all_gather(whole, own shard, group=...) over the group that has all shards between them. Then
        # parameter.data of each is its part, in its shape: self.sizes, self.shapes.
        ### BEGIN SOLUTION 9.7c
        whole = self.shard.new_empty(len(self.shard) * dist.get_world_size(self.shard_group))
        all_gather(whole, self.shard.detach(), group=self.shard_group)
        parts = whole[: sum(self.sizes)].split(self.sizes)
        for parameter, part, shape in zip(self.parameters, parts, self.shapes, strict=True):
            parameter.data = part.view(shape)
        ### END SOLUTION

    def reduce(self) -> None:
        """After backward(): self.shard.grad is this rank's part of the mean of all ranks' gradients."""
        # TODO 9.7d: the gradients joined, zeros where a parameter has none. Reduce-scatter them into a tensor like
        # the shard, over one group; all-reduce that over the other one; and divide by the number of all ranks.
        ### BEGIN SOLUTION 9.7d
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        own = torch.empty_like(self.shard)
        reduce_scatter(own, self.joined(gradients), group=self.shard_group)
        dist.all_reduce(own, group=self.replicate_group)
        self.shard.grad = own / dist.get_world_size()
        ### END SOLUTION
        self.free()

    def free(self) -> None:
        """Keep nothing but the shard and its gradient."""
        # TODO 9.7e: parameter.data of each is an empty tensor, and its gradient None.
        ### BEGIN SOLUTION 9.7e
        for parameter in self.parameters:
            parameter.data = parameter.new_empty(0)
            parameter.grad = None
        ### END SOLUTION
