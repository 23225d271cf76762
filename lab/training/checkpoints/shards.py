"""Weights and optimizer state as each rank has them, written and read with torch.distributed.checkpoint.

Every rank writes its shards, of several copies the first one; and reads, of all files, what its own shards are
now, so that a checkpoint fits any number of ranks, any --shard and any strategy. All here is collective.

Nothing in a checkpoint may run code. PyTorch's own reader would unpickle whatever the list of tensors is, and each
value that is no tensor; so only tensors are given to it (the rest is in run.pth), and the list may only be made of
a few known types.
"""

import pickle
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from lab.base.errors import UserError
from lab.training.checkpoints.shard_folder import Sums

MODEL, OPTIMIZER = "model/", "optimizer/"  # before the names of their tensors
_METADATA = ".metadata"


def write(tensors: dict[str, Tensor], folder: Path, group: dist.ProcessGroup) -> Sums:
    """Write this rank's part of the tensors, and rank 0 the list of all. May be called in a thread.

    Args:
        tensors: in main memory; a DTensor for each that is sharded.
        folder: on a file system that all ranks see.
        group: of all ranks, for main memory; nobody else may use it meanwhile.

    Returns:
        Size and checksum of each file, of all ranks, on rank 0; on the others of their own.

    Raises:
        OSError: on all ranks alike: one of them could not write.
    """
    writer = dcp.FileSystemWriter(folder, per_thread_copy_ahead=0)  # ahead, it would look for a GPU
    files = writer.fs = _Files()
    # Of what every rank has, such as BatchNorm's running statistics, rank 0's counts.
    planner = DefaultSavePlanner(dedup_save_to_lowest_rank=True)
    try:
        dcp.save(tensors, storage_writer=writer, planner=planner, process_group=group)
    except CheckpointException as error:
        raise _cause(error) from error
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, files.sums, group=group)
    return {name: sums for one in everyone for name, sums in one.items()}


def _cause(error: CheckpointException) -> OSError:
    """The first rank's error, if the disk is to blame; else it is raised."""
    rank, (first, _) = min(error.failures.items())
    if not isinstance(first, OSError):
        raise RuntimeError(f"rank {rank} could not write its part of a checkpoint: {first!r}") from error
    return OSError(first.errno, f"{first.strerror or first}, rank {rank}")


class _Files(FileSystem):
    """Notes size and checksum of each file that is written.

    PyTorch's zip writer is C++: an exception from the file would come out of it as another one, or end the
    process. So the first error is kept until the tensors are written.
    """

    def __init__(self) -> None:
        self.sums: Sums = {}

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Generator[Any, None, None]:
        with super().create_stream(path, mode) as file:
            if mode != "wb":
                yield file
                return
            stream = _Summed(cast(IO[bytes], file))
            yield stream
            stream.close()
        self.sums[Path(path).name] = [stream.size, stream.crc]

    def rename(self, path: Any, new_path: Any) -> None:
        super().rename(path, new_path)
        self.sums[Path(new_path).name] = self.sums.pop(Path(path).name)


class _Summed:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = self.crc = 0
        self._error: OSError | None = None
        self.tell = file.tell

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._error is None:
            try:
                self._file.write(view)
            except OSError as error:
                self._error = error
        self.size, self.crc = self.size + len(view), zlib.crc32(view, self.crc)
        return len(view)

    def fileno(self) -> int:
        """For a sync to the disk, before which not every version of PyTorch empties Python's buffer."""
        self.flush()
        return self._file.fileno()

    def flush(self) -> None:
        """Python calls it, between two tensors: raises what write() has met."""
        if self._error is not None:
            raise self._error
        self._file.flush()

    def close(self) -> None:
        """Before the file itself is closed."""
        self.flush()


class Shards:
    """What a folder's tensors are called and how large they are; and their numbers, for whoever has room for them.

    Args:
        folder: of a complete checkpoint.

    Raises:
        UserError: its list of tensors is damaged, or holds code.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader = _Reader(folder)
        try:
            known = self._reader.read_metadata().state_dict_metadata
        except pickle.UnpicklingError as error:
            raise UserError(
                f"{folder / _METADATA} holds other things than a list of tensors ({error}), which could run any "
                "code: resume only from checkpoints that this program wrote"
            ) from error
        except (OSError, EOFError, AttributeError, ValueError, TypeError, KeyError, IndexError) as error:
            raise UserError(
                f"{folder / _METADATA} is damaged ({error}): resume from another checkpoint"
            ) from error
        self._known: dict[str, TensorStorageMetadata] = {}
        for name, one in known.items():
            if not isinstance(one, TensorStorageMetadata):
                raise UserError(f"{folder / _METADATA}: {name} is no tensor, so it is not loaded")
            self._known[name] = one

    def sizes(self, prefix: str) -> dict[str, torch.Size]:
        """Of the tensors whose names begin so, by the rest of the name."""
        return {
            name.removeprefix(prefix): one.size for name, one in self._known.items() if name.startswith(prefix)
        }

    def dtype(self, name: str) -> torch.dtype:
        return self._known[name].properties.dtype

    def fill(self, tensors: dict[str, Tensor]) -> None:
        """Put the numbers into these tensors, of DTensors into this rank's part.

        Raises:
            UserError: on all ranks alike: they cannot be read.
        """
        group = dist.new_group(backend="gloo")
        try:
            dcp.load(tensors, storage_reader=self._reader, process_group=group)
        except CheckpointException as error:
            rank, (first, _) = min(error.failures.items())
            raise UserError(
                f"{self._folder} is damaged (rank {rank}: {first!r}): resume from another checkpoint"
            ) from error
        finally:
            dist.destroy_process_group(group)


class _Reader(dcp.FileSystemReader):
    """PyTorch's, but for its list of tensors."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (Path(self.path) / _METADATA).open("rb") as file:
            metadata = _Unpickler(file).load()
        if not isinstance(metadata, Metadata):
            raise ValueError("it is something else")
        return metadata


class _Unpickler(pickle.Unpickler):
    """For the few types that a list of tensors is made of."""

    _TYPES = frozenset(
        {
            *(
                ("torch.distributed.checkpoint.metadata", name)
                for name in ("Metadata", "MetadataIndex", "StorageMeta")
            ),
            *(
                ("torch.distributed.checkpoint.metadata", name)
                for name in ("TensorStorageMetadata", "TensorProperties")
            ),
            *(
                ("torch.distributed.checkpoint.metadata", name)
                for name in ("ChunkStorageMetadata", "_MEM_FORMAT_ENCODING")
            ),
            ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
            ("torch.serialization", "_get_layout"),
            ("torch", "Size"),
            *(("pathlib", name) for name in ("PosixPath", "WindowsPath")),
            *(("pathlib._local", name) for name in ("PosixPath", "WindowsPath")),  # Python 3.13
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._TYPES and not (module == "torch" and _is_dtype(name)):
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)


def _is_dtype(name: str) -> bool:
    return isinstance(getattr(torch, name, None), torch.dtype)
