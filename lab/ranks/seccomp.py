"""The sandbox's filter of system calls (seccomp, Linux): what no training needs is refused, for good."""

import ctypes
import platform
import struct

from lab.ranks.platform import prctl

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_EPERM, _ENOSYS = 1, 38

# What no training needs: looking into other processes, memory that belongs to none, mounts, ways into the kernel.
_REFUSED = {
    "x86_64": {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "memfd_create": 319, "shmget": 29,
        "semget": 64, "msgget": 68, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
        "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "bpf": 321,
        "perf_event_open": 298, "userfaultfd": 323,
    },
    "aarch64": {
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "memfd_create": 279, "shmget": 194,
        "semget": 190, "msgget": 186, "add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97,
        "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41, "bpf": 280,
        "perf_event_open": 241, "userfaultfd": 282,
    },
}  # fmt: skip
_EVERYWHERE = {"io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "memfd_secret": 447}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NEW_NAMESPACES = 0x7E020000  # the flags of clone() that make one
_X32 = 0x40000000  # the same calls by other numbers


def refuse_system_calls() -> None:
    """Refuse the calls above to this process and all that it starts. Does nothing on a machine of another kind."""
    kind = platform.machine()
    if kind not in _ARCHITECTURE:
        return
    program = _program(kind)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(header))


def _program(kind: str) -> bytes:
    """Berkeley packet filter over struct seccomp_data: number at 0, architecture at 4, first argument at 16."""
    load, equal, at_least, any_of, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, refuse, missing = 0x7FFF0000, 0x00050000 | _EPERM, 0x00050000 | _ENOSYS
    refused = sorted([*_REFUSED[kind].values(), *_EVERYWHERE.values()])
    steps: list[tuple[int, int, str | None, str | None]] = [
        (load, 4, None, None),
        (equal, _ARCHITECTURE[kind], None, "missing"),
        (load, 0, None, None),
        (at_least, _X32, "refuse", None),
        *((equal, number, "refuse", None) for number in refused),
        (equal, _CLONE3, "missing", None),  # its flags lie in memory; the C library then takes clone
        (equal, _CLONE[kind], None, "allow"),
        (load, 16, None, None),
        (any_of, _NEW_NAMESPACES, "refuse", "allow"),
    ]
    ends = {"allow": len(steps), "refuse": len(steps) + 1, "missing": len(steps) + 2}
    code = b""
    for at, (operation, value, yes, no) in enumerate(steps):
        jumps = [0 if target is None else ends[target] - at - 1 for target in (yes, no)]
        code += struct.pack("HBBI", operation, *jumps, value)
    return code + b"".join(struct.pack("HBBI", give, 0, 0, value) for value in (allow, refuse, missing))
