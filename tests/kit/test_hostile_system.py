"""Submissions against the machine and the engine: limits, processes, files, network, and the grader's own connection.

Whatever they do: a row, the right points, a reason, the same bytes, and everybody else's grade as it is without them.
"""

import os
import socket
import uuid
from pathlib import Path

import pytest
from hostile_class import ASSIGNMENT, FULL, HONEST, LOCAL, OUTPUT, SCORES, STEP, WEIGHTS, Class, Trouble

from lessonkit.grading.report import results
from lessonkit.grading.sandbox import linux as walls

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(walls.why_not() is not None, reason=str(walls.why_not())),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),  # nbgrader's way with it
]

CELL_SECONDS, NOTEBOOK_SECONDS, PROCESSES = 6, 13, 24
LIMITS = f"""
c.ExecuteOrReplay.timeout = {CELL_SECONDS}
c.ExecuteOrReplay.notebook_timeout = {NOTEBOOK_SECONDS}
c.ExecuteOrReplay.memory_mb = 1000
c.ExecuteOrReplay.home_mb = 16
c.ExecuteOrReplay.processes = {PROCESSES}
"""
LOOP = f"stopped after {CELL_SECONDS} seconds: is there a loop"
DIED, TAMPERED = "the Python process died", "tampered with its connection to the grader"
MARK = f"troublemaker-{uuid.uuid4().hex}"  # in the command line of what tries to stay alive, and in names of files


def dies(cell, body, says, ended="", **more):
    """An exercise whose cell ends the process: what ran before it keeps its points."""
    later = list(FULL)[list(FULL).index(cell) + 1 :]
    told = {cell: says, **dict.fromkeys(later, f"not run, because {ended or says}")}
    return Trouble({cell: body}, says=told, dies=cell, ended=ended or says, **more)


HUNG = "could not be interrupted in `check-attention_output`"

# How a learner finds the connection to the grader, and writes whatever it likes into it.
FRAMES = """
import json, os, socket, struct, time
for name in os.listdir("/proc/self/fd"):
    try:
        if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
            line = socket.socket(fileno=os.dup(int(name)))
            break
    except OSError:
        pass
def frame(kind, body=b"", **fields):
    text = json.dumps([kind, fields]).encode()
    line.sendall(struct.pack("!II", len(text), len(body)) + text + body)
"""
IMPOSTOR = """
def read(n):
    data = b""
    while len(data) < n:
        data += line.recv(n - len(data))
    return data
def check(name, answer, seeds=None):
    frame("check", name=name)
    while True:
        text, body = (read(n) for n in struct.unpack("!II", read(8)))
        if b"enough" in text:
            return
        frame("reply", value={"tuple": [{"opaque": "\\ud800"}, 0, ""]} if b"call" in text else None)
impostor = check
get_ipython().events.register("pre_run_cell", lambda info: get_ipython().user_ns.update(check=impostor))
def local_attention(*inputs):
    pass
"""


def forges(code, **more):
    """A cell above all exercises that writes into the grader's connection, and is found out."""
    told = dict.fromkeys(FULL, f"not run, because the Python process {TAMPERED}")
    expected = {"says": told, "dies": "first", "ended": TAMPERED, "flag": "tampered"}
    return Trouble(first=(FRAMES + code,), **{**expected, **more})


TIME = {
    "an answer that loops costs its own exercise only": Trouble(
        {WEIGHTS: "while True: pass"}, gets={WEIGHTS: 0}, says={WEIGHTS: LOOP}
    ),
    "an answer that loops on the way back costs its own exercise only": Trouble(
        {
            OUTPUT: "import time\nresult = weights @ encoder_states\n"
            "if result.requires_grad:\n    result.register_hook(lambda gradient: time.sleep(1000))\nreturn result"
        },
        gets={OUTPUT: 0},
        says={OUTPUT: LOOP},
    ),
    "an error whose text loops, for IPython that wants to show it too, costs its own exercise only": Trouble(
        {
            OUTPUT: "import time\nclass Endless(Exception):\n    def __str__(self):\n"
            "        time.sleep(1000)\nraise Endless"
        },
        gets={OUTPUT: 0},
        says={OUTPUT: LOOP},
        flag=HUNG,
    ),
    "an object whose repr loops costs nothing but its own cell": Trouble(
        first=("import time\nclass Endless:\n    def __repr__(self):\n        time.sleep(1000)\nEndless()",),
        shows=LOOP,
    ),
    "a loop that swallows the interrupt costs its own exercise only": Trouble(
        {
            OUTPUT: "import time\nwhile True:\n    try:\n        time.sleep(1000)\n"
            "    except BaseException:\n        pass"
        },
        gets={OUTPUT: 0},
        says={OUTPUT: LOOP},
        flag=HUNG,
    ),
    "a loop in compiled code that holds the interpreter costs its own exercise only": Trouble(
        {OUTPUT: "import itertools\nsum(itertools.repeat(0))"},
        gets={OUTPUT: 0},
        says={OUTPUT: LOOP},
        flag=HUNG,
    ),
    "ignoring signals and sleeping costs its own exercise only": Trouble(
        {
            OUTPUT: "import signal, time\nfor number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):\n"
            "    signal.signal(number, signal.SIG_IGN)\ntime.sleep(1000)"
        },
        gets={OUTPUT: 0},
        says={OUTPUT: LOOP},
        flag=HUNG,
    ),
    "a grader's half that is silenced is silent in its own cell only": Trouble(
        first=("check._process.say = lambda *a, **k: None",), flag="could not be interrupted in a cell"
    ),
    "cells above one that hangs are run again, and what they define is there": Trouble(
        {OUTPUT: "import itertools\nsum(itertools.repeat(0))", LOCAL: "assert mine() == times == 1\n{model}"},
        first=(
            "times = 0",
            "times += 1\nopen('mine.txt', 'a').write('x')",
            "def mine():\n    return len(open('mine.txt').read())",
        ),
        gets={OUTPUT: 0},
        says={OUTPUT: LOOP},
        flag=HUNG,
    ),
    "a notebook that has no time left to run its cells again ends": Trouble(
        {WEIGHTS: "import itertools\nsum(itertools.repeat(0))"},
        first=("import time\ntime.sleep(4)",),
        dies=WEIGHTS,
        ended="all cells together took more than",
        says={WEIGHTS: LOOP, OUTPUT: "all cells together took more than"},
        flag="could not be interrupted in `check-attention_distribution`",
    ),
    "many cells, each just under the limit, end when all their time is used up": Trouble(
        first=tuple(f"import time\ntime.sleep(2.4)  # {i}" for i in range(6)),
        dies="first",
        ended=f"all cells together took more than {NOTEBOOK_SECONDS} seconds",
        says=dict.fromkeys(FULL, f"not run, because all cells together took more than {NOTEBOOK_SECONDS} seconds"),
    ),
}
ENDS = {
    "ending the process in a check keeps what came before": dies(
        OUTPUT, "import os; os._exit(0)", f"{DIED} (it ended itself with exit code 0)"
    ),
    "a segmentation fault keeps what came before": dies(
        STEP, "import ctypes\nctypes.string_at(0)", f"{DIED} (segmentation fault)"
    ),
    "aborting keeps what came before": dies(OUTPUT, "import os; os.abort()", DIED),
    "overflowing the stack of compiled code keeps what came before": dies(
        OUTPUT,
        # in a thread whose stack is small: to run through eight megabytes takes a busy machine seconds
        "import sys, threading\nsys.setrecursionlimit(10**9)\nthreading.stack_size(1 << 18)\nvalue = []\n"
        "for _ in range(10**5): value = [value]\n"
        "thread = threading.Thread(target=repr, args=(value,))\nthread.start()\nthread.join()\nreturn value",
        DIED,
    ),
}
MEMORY = {
    "thirty gigabytes in Python are refused, with the reason": Trouble(
        {OUTPUT: "return bytearray(30 << 30)"}, gets={OUTPUT: 0}, says={OUTPUT: "MemoryError"}
    ),
    "thirty gigabytes in torch are refused, with the reason": Trouble(
        {OUTPUT: "return torch.ones(30 << 28)"}, gets={OUTPUT: 0}, says={OUTPUT: "allocate"}
    ),
    "three gigabytes that are shared, written and put aside are refused, with the reason": Trouble(
        {
            OUTPUT: "import mmap\nmemory = mmap.mmap(-1, 3 << 30)\nfor place in range(0, 3 << 30, 1 << 26):\n"
            "    memory[place:place + (1 << 26)] = bytes(1 << 26)\n    memory.madvise(mmap.MADV_DONTNEED)\n"
            "kept.append(memory)"
        },
        first=("kept = []",),
        gets={OUTPUT: 0},
        says={OUTPUT: "Cannot allocate memory"},
    ),
    "a result too large to be looked at is told so": Trouble(
        {OUTPUT: "return torch.zeros(1, 1, 5_000_000)"}, gets={OUTPUT: 0}, says={OUTPUT: "too many"}
    ),
    "a result that would grow here when it meets others is told so": Trouble(
        {WEIGHTS: "return torch.zeros(1_100_000, 1, 1)"}, gets={WEIGHTS: 0}, says={WEIGHTS: "too many"}
    ),
    "a view that pretends to be huge is told so": Trouble(
        {OUTPUT: "return torch.zeros(1).expand(10**6, 10**6)"}, gets={OUTPUT: 0}, says={OUTPUT: "too many"}
    ),
}
FILES = {
    "filling the disk with one file costs nothing but the attempt": Trouble(
        first=("with open('full', 'wb') as file:\n    while True: file.write(bytes(1 << 20))",), shows="Error"
    ),
    "filling the disk with many files costs nothing but the attempt": Trouble(
        first=("for i in range(100_000):\n    open(f'{i}', 'x').close()",), shows="No space left"
    ),
    "links and permissions left in the folder go with it": Trouble(
        first=(
            "import os\nos.symlink('/', 'root')\nos.symlink('loop', 'loop')\nos.mkfifo('pipe')\n"
            "open('file', 'x').close()\nos.chmod('file', 0o7777)\nos.mkdir('closed')\nos.chmod('closed', 0)\n"
            "os.chmod('.', 0)",
        )
    ),
    "files that do not fit into the folder are missed, and nothing else": Trouble(
        first=("print(open('0-with-a-name-that-is-quite-long.txt').read(), 'read')",), shows="have no room"
    ),
    "nothing outside can be changed": Trouble(first=("{writes}",), shows="nothing could be changed"),
    "nobody's secrets can be read": Trouble(first=("{reads}",), shows="nothing could be read"),
}
PRINTS = {
    "a hundred megabytes of print are cut short": Trouble(
        {SCORES: "{model}"}, first=("for _ in range(100):\n    print('x' * 1_000_000)",), flag="printed more than"
    ),
    "a hundred megabytes past Python are cut short": Trouble(
        first=("import os\nfor _ in range(100):\n    os.write(1, b'x' * 1_000_000)",), flag="printed more than"
    ),
    "a hundred megabytes from another program are cut short": Trouble(
        first=("!yes | head -c 100000000",), flag="printed more than"
    ),
    "displays by the hundred are cut short": Trouble(
        first=("for i in range(600): display(i)",), flag="more than 500 outputs"
    ),
    "megabytes hidden in the metadata of what is shown are cut short": Trouble(
        first=("for i in range(12):\n    display({'text/plain': ''}, raw=True, metadata={'x': 'y' * 2_000_000})",),
        flag="showed more than 20 MB",
    ),
    "a thread that prints for ever disturbs no grade": Trouble(
        first=(
            "import threading, time\ndef noise():\n    while True:\n        print('noise')\n        time.sleep(0.001)\n"
            "threading.Thread(target=noise).start()",
        ),
        shows="noise",
    ),
}
PROCESSES_ = {
    "a fork bomb goes off in its own cell": Trouble(
        {OUTPUT: "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"},
        gets={OUTPUT: 0},
        says={OUTPUT: LOOP},
        flag="as many processes",
    ),
    "five hundred processes are too many in the cell that starts them": Trouble(
        first=("import os, time\nfor _ in range(500):\n    if os.fork() == 0:\n        time.sleep(1000)",),
        flag="as many processes",
        shows="BlockingIOError",
    ),
    "five hundred threads are too many in the cell that starts them": Trouble(
        first=(
            "import threading, time\nfor _ in range(500):\n"
            "    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        ),
        shows="can't start new thread",
    ),
    "what is left running dies with the notebook": Trouble(
        first=(
            f"import os, subprocess, sys\n"
            f"if os.fork() == 0:\n"
            f"    os.setsid()\n"
            f"    if os.fork() == 0:\n"
            f"        os.execv('/bin/sh', ['/bin/sh', '-c', 'trap \"\" TERM HUP INT; while :; do sleep 1; done', "
            f"'{MARK}'])\n"
            f"    os._exit(0)\n"
            f"subprocess.Popen(['sleep', '1000'], start_new_session=True)",
            "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=False).start()",
            "import atexit, os, time\natexit.register(time.sleep, 1000)\n"
            "class Last:\n    def __del__(self):\n        time.sleep(1000)\nlast = Last()",
        )
    ),
    "a fork that goes on as if it were the notebook is not heard": Trouble(
        first=("import os\nfirst = os.getpid()\nif os.fork() == 0:\n    print('fork', 'speaks')",), shows="fork speaks"
    ),
    "a data loader with processes of its own works as in a kernel": Trouble(
        first=(
            "from torch.utils.data import DataLoader\n"
            "print('batches:', sum(1 for _ in DataLoader(range(8), num_workers=2)))",
        ),
        shows="batches: 8",
    ),
    "closing the connection ends the notebook": Trouble(
        first=("import os\nos.closerange(3, 100)",), dies="first", ended=DIED, says=dict.fromkeys(FULL, DIED)
    ),
    "closing its own outputs costs nothing": Trouble(first=("import os\nos.close(1)\nos.close(2)",)),
    "a cell of nine megabytes is told so": Trouble(
        {OUTPUT: "# " + "x" * 9_000_000 + "\n{model}"}, gets={OUTPUT: 0}, says={OUTPUT: "too large: 9 MB"}
    ),
    "killing everything in sight kills nothing that counts": Trouble(
        first=(
            "import os, signal\n"
            "for attempt in (lambda: os.kill(1, 9), lambda: os.kill(-1, 9), lambda: os.killpg(0, signal.SIGTERM),\n"
            "                lambda: os.kill(os.getppid(), 9), lambda: os.kill(os.getpid(), signal.SIGSTOP)):\n"
            "    try:\n        attempt()\n    except OSError:\n        pass",
        ),
    ),
    "the machine's processes cannot be seen or traced": Trouble(
        first=(
            "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
            "seen = [name for name in os.listdir('/proc') if name.isdecimal() and int(name) != os.getpid()]\n"
            "print('others:', seen, 'traced:', libc.ptrace(16, 1, 0, 0), 'root:', libc.setuid(0))",
        ),
        shows="others: [] traced: -1 root: -1",
    ),
    "no network": Trouble(first=("{connects}",), shows="reached: []"),
    "pip installs nothing, and the rest of its cell runs": Trouble(
        first=("!pip install --no-input --retries 0 attrs==1.0 >/dev/null 2>&1 || echo failed\nprint('went on')",),
        shows="went on",
    ),
    "nobody answers input or a question for a password": Trouble(
        {OUTPUT: "input('your answer?')\n{model}"},
        first=("import getpass\ngetpass.getpass()", "input()"),
        gets={OUTPUT: 0},
        says={OUTPUT: "nobody is there to type"},
        shows="nobody is there to type",
    ),
}
FORGED = {
    "lengths without end": forges("line.sendall(bytes([255]) * 8)"),
    "a shape that no memory could hold": forges(
        'frame("reply", value={"tensor": ["float32", [0, 2**62, 2**62], False]})'
    ),
    "one array that is to be read a hundred thousand times": forges(
        'frame("reply", bytes(1 << 20), value=[{"tensor": ["uint8", [1 << 20], False]}] * 100_000)'
    ),
    "lists within lists": forges(
        'value = 1\nfor _ in range(400): value = [value]\n'
        'frame("display", data={"dict": [["application/json", value]]}, metadata={"dict": []}, name=None)'
    ),
    "brackets by the million": forges('text = b"[" * 4_000_000\nline.sendall(struct.pack("!II", len(text), 0) + text)'),
    "a message whose yes and no is an array": forges(
        'frame("error", bytes(30 << 20), name="a", value="b", traceback={"tensor": ["uint8", [30 << 20], False]})'
    ),
    "a reply that nobody asked for": forges('frame("reply", value=[1, 2, 3])'),
    "an unknown word": forges('frame("points", value=4)'),
    "a flood of requests whose answers it does not read": forges('while True: frame("check", name="x")'),
    "a check of one's own, with half a character in the name of a type": Trouble(
        code={LOCAL: FRAMES + IMPOSTOR}, gets={LOCAL: 0}, says={LOCAL: "returned ?, expected a tensor"}
    ),
    "two replies to one request": dies(
        OUTPUT,
        FRAMES + 'frame("reply", value={"tuple": [1, 0, ""]})\nreturn weights @ encoder_states',
        f"the Python process {TAMPERED}",
        flag="tampered",
    ),
    "numbers and formats that no notebook holds": Trouble(
        first=(
            FRAMES + 'bundle = {"dict": [["x/json", {"dict": [["a", 1]]}], ["application/json", float("nan")],\n'
            '                   ["text/html", 5], ["text/plain", None]]}\n'
            'frame("display", data=bundle, metadata={"dict": [["a", float("inf")]]}, name=None)\n'
            'frame("result", data=bundle, metadata={"dict": []}, count=-5)\n'
            'frame("stream", name="stdout", text="\\ud800\\u202e")\n'
            'frame("error", name="", value="", traceback=[])',
        )
    ),
    "the end of the cell, before it has ended": Trouble(
        {WEIGHTS: FRAMES + 'frame("done", count=1)\nreturn scores'}, gets={WEIGHTS: 0}, flag="tampered",
        dies=WEIGHTS, ended=TAMPERED,
    ),
    "a check within a check": Trouble(
        {WEIGHTS: FRAMES + 'frame("check", name="attention_distribution")\nreturn scores'}, gets={WEIGHTS: 0}
    ),
}  # fmt: skip
# What may take longer than a cell of the others has: a gigabyte of memory took more than 6 seconds on a slow machine.
PATIENT_SECONDS = 60
SLOW = {
    "three gigabytes of pages that were made to be read only count": dies(
        OUTPUT,
        "import ctypes, mmap, time\nkept = []\nfor _ in range(48):\n"
        "    pages = mmap.mmap(-1, 1 << 26, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)\n"
        "    place = ctypes.addressof(ctypes.c_char.from_buffer(pages))\n"
        "    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(place), 1 << 26, mmap.PROT_READ) == 0\n"
        "    kept.append(pages)\n"
        "time.sleep(1000)",
        "the Python process took more than 1000 MB of memory and was ended",
    ),
}
ALL = TIME | ENDS | MEMORY | FILES | PRINTS | PROCESSES_ | FORGED | SLOW
NAMES = {
    "comma, junior", 'quo"te', "=1+1", "-dash", "two  spaces", "[brackets]", "{braces}", "émoji 🎓", "apo'strophe",
    "a;b",
    "%s", "#hash", "star*", "q?", "שלום", "$HOME",
}  # fmt: skip


def tree(folder, *left_out):
    """What is in a folder: path, size, mode and time."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if not any(part in left_out for part in path.relative_to(folder).parts):
            stat = path.lstat()
            found[str(path)] = [
                stat.st_mode,
                stat.st_uid,
                *([stat.st_size, stat.st_mtime_ns] if path.is_file() else []),
            ]
    return found


@pytest.fixture(scope="module")
def everybody(tmp_path_factory):
    """The graded class; beside it what there was before, and what was noticed while it was graded."""
    room = Class(tmp_path_factory.mktemp("system") / "course", LIMITS)
    root = room.root
    for name in sorted(NAMES):
        room.hand_in(name)
    room.grade_honest_alone()
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
        pytest.MonkeyPatch.context() as patch,
    ):
        udp.bind(("127.0.0.1", 0))
        unix.bind(str(root.parent / "socket"))
        unix.listen()
        for one in (tcp, udp, unix):
            one.setblocking(False)
        patch.setenv("TOKEN_OF_THE_GRADER", MARK)
        filled = {
            "{writes}": writes(root),
            "{reads}": reads(root),
            "{connects}": connects(tcp.getsockname()[1], udp.getsockname()[1], root.parent / "socket"),
        }
        for student, trouble in ALL.items():
            first = tuple(filled.get(cell, cell) for cell in trouble.first)
            room.hand_in(student, Trouble(**{**vars(trouble), "first": first}))
        beside = root / "submitted" / next(name for name in ALL if name.startswith("files that")) / ASSIGNMENT
        (beside / "0.bin").write_bytes(bytes(20_000_000))
        (beside / "1.bin").write_bytes(bytes(15_500_000))
        for i in range(300):
            (beside / f"{i}-with-a-name-that-is-quite-long.txt").write_bytes(bytes(8_000))
        room.before = tree(root, "autograded", "grading", "gradebook.db", "gradebook.db-journal")
        room.outcome = room.grade(
            force=True, n_workers=4, students=[name for name in room.handed_in if name not in SLOW]
        )
        room.after = tree(root, "autograded", "grading", "gradebook.db", "gradebook.db-journal")
        room.reached = []
        for one, ask in ((tcp, tcp.accept), (udp, lambda: udp.recv(1)), (unix, unix.accept)):
            try:
                ask()
                room.reached.append(one)
            except BlockingIOError:
                pass
    with (root / "nbgrader_config.py").open("a") as config:
        config.write(f"c.ExecuteOrReplay.timeout = c.ExecuteOrReplay.notebook_timeout = {PATIENT_SECONDS}\n")
    room.grade(students=SLOW)
    return room


def places(root):
    """What no submission may write to."""
    other = root / "submitted" / HONEST[0] / ASSIGNMENT
    return [
        *(root, root / "gradebook.db", root / "solutions", root / "grading", other, *other.glob("*.ipynb")),
        *(Path(__file__).parents[2], Path.home(), *map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/etc/passwd"))),
        *(Path(results.__file__), Path(os.__file__), Path("/course/attncourse/__init__.py")),
    ]


def writes(root):
    return (
        "import os, shutil, sqlite3\nchanged = []\n"
        f"for place in {[str(place) for place in places(root)]}:\n"
        f"    inside = os.path.join(place, '{MARK}')\n"
        "    for attempt in (\n"
        "        lambda: open(place, 'a').write('x'), lambda: os.truncate(place, 0), lambda: os.unlink(place),\n"
        "        lambda: os.chmod(place, 0o777), lambda: os.chown(place, 0, 0),\n"
        "        lambda: os.rename(place, place + '~'),\n"
        "        lambda: open(inside, 'w').write('x'), lambda: os.mkdir(inside), lambda: os.symlink('/', inside),\n"
        "        lambda: sqlite3.connect(place).execute('delete from grade'), lambda: shutil.rmtree(place),\n"
        "    ):\n"
        "        try:\n            attempt()\n            changed.append(place)\n"
        "        except (OSError, sqlite3.Error):\n            pass\n"
        "print(set(changed) - {'/tmp', '/var/tmp', '/dev/shm'} or 'nothing could be changed')"
    )


def reads(root):
    secrets = [root / "grading" / ASSIGNMENT / "seeds.json", *places(root), Path("/etc/shadow"), Path("/root")]
    secrets = [str(path) for path in secrets if path not in map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/etc/passwd"))]
    secrets = [path for path in secrets if not path.endswith(("/os.py", "/course/attncourse/__init__.py"))]
    return (
        "import glob, os\nread = []\n"
        f"for place in {secrets}:\n"
        "    for attempt in (lambda: open(place, 'rb').read(1), lambda: os.listdir(place)):\n"
        "        try:\n            attempt()\n            read.append(place)\n"
        "        except OSError:\n            pass\n"
        f"secret = b'-'.join([b'{MARK[:12]}', b'{MARK[13:]}'])\n"
        "for place in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline'):\n"
        "    try:\n"
        "        if secret in open(place, 'rb').read(): read.append(place)\n"
        "    except OSError:\n        pass\n"
        "if secret.decode() in str(dict(os.environ)): read.append('the environment')\n"
        "hidden = ['attncourse.attention', 'attncourse.recurrent', 'lessonkit.exercises.judge', 'lessonkit.course']\n"
        "hidden += ['attncourse_lessons.l03_cross_attention.exercises', 'lessonkit.grading.engine.grade']\n"
        "for name in hidden:\n"
        "    try:\n        __import__(name)\n        read.append(name)\n"
        "    except ImportError:\n        pass\n"
        "for place, folders, names in os.walk('/'):\n"
        "    if place.endswith('attncourse') and 'attention.py' in names: read.append(place)\n"
        "    if place.endswith('attncourse_lessons') and folders: read.append(place)\n"
        "    if place.endswith('site-packages'):\n"
        "        folders[:] = [name for name in folders if 'attn' in name or 'lesson' in name]\n"
        "    folders[:] = [name for name in folders if name not in ('proc', 'sys')]\n"
        "print(read or 'nothing could be read')"
    )


def connects(tcp, udp, unix):
    return (
        "import socket, urllib.request\nreached = []\n"
        "def attempt(name, what):\n"
        "    try:\n        what()\n        reached.append(name)\n"
        "    except OSError:\n        pass\n"
        f"attempt('tcp', lambda: socket.create_connection(('127.0.0.1', {tcp}), 1))\n"
        f"attempt('udp', lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp})))\n"
        f"attempt('unix', lambda: socket.socket(socket.AF_UNIX).connect({str(unix)!r}))\n"
        "attempt('listen', lambda: socket.create_server(('127.0.0.1', 0)))\n"
        "attempt('names', lambda: socket.getaddrinfo('example.org', 80))\n"
        "attempt('netlink', lambda: socket.socket(socket.AF_NETLINK))\n"
        f"attempt('web', lambda: urllib.request.urlopen('http://127.0.0.1:{tcp}', timeout=1))\n"
        "print('reached:', reached)"
    )


@pytest.mark.parametrize("student", ALL)
def test_the_right_points_and_the_reason_in(everybody, student):
    everybody.check(student, ALL[student])


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_may_be(everybody, name):
    assert everybody.points(name) == FULL and everybody.bytes_kept(name)


@pytest.mark.parametrize("student", HONEST)
def test_an_honest_students_grade_is_what_it_is_without_the_others(everybody, student):
    assert (everybody.points(student), everybody.rows[student].verdicts) == everybody.alone[student]
    assert everybody.bytes_kept(student)


def test_every_submission_has_a_row_and_none_failed(everybody):
    assert everybody.outcome.failed == {}
    assert {*everybody.handed_in} == {r.student for r in everybody.rows.values() if r.submitted}


def test_nothing_outside_was_changed(everybody):
    assert everybody.after == everybody.before
    assert not [place for place in places(everybody.root) if (place / MARK).exists()]


def test_nothing_is_left_running(everybody):
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        assert MARK.encode() not in words, place


def test_nothing_was_reached_over_the_network(everybody):
    assert everybody.reached == []


def test_the_extra_exercise_counts_like_the_others(everybody):
    assert everybody.points(HONEST[0])[LOCAL] == FULL[LOCAL]
