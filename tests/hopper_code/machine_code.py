"""The machine code of Hopper kernels: instructions with what the scheduler is told of each, and the ways round a loop.

Reads cubins, or objects and libraries that hold some, with NVIDIA's nvdisasm and cuobjdump.
"""

import collections
import dataclasses
import functools
import heapq
import pathlib
import re
import subprocess
import tempfile

INSTRUCTION = re.compile(
    r"/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P[T0-9]+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;?\s*/\* 0x[0-9a-f]{16} \*/")
CONTROL = re.compile(r"^\s*/\* (0x[0-9a-f]{16}) \*/")
CLAMPS = re.compile("VI(ADD)?MNMX")  # of columns to those of a tile
SELECTS = re.compile(r"F?SEL\b")  # by which scores are hidden; a few others stand in every round

# Kinds of instructions that share a pipe or are counted. The first that fits counts.
KINDS = [(name, re.compile(pattern)) for name, pattern in (
    ("HGMMA", "[HQ]GMMA"), ("MUFU", "MUFU"), ("F2FP", "F2FP"), ("FFMA", "FFMA"), ("FMUL", "FMUL"), ("FADD", "FADD"),
    ("FMNMX", "FMNMX"), ("FSEL", "FSEL"), ("SEL", "SEL"), ("SETP", "[FI]SETP|PLOP|LOP3|R2P"), ("SHFL", "SHFL"),
    ("STS", "STS"), ("LDS", "LDS"), ("LOCAL", "LDL|STL"), ("LDG", r"LDG|LD\.E"), ("CONST", "U?LDC"), ("BAR", "BAR"),
    ("SYNCS", "SYNCS"), ("WARPGROUP", "WARPGROUP"), ("FENCE", "MEMBAR|FENCE"), ("R2UR", "R2UR|S2UR"),
    ("UNIFORM", "U[A-Z]"), ("MOV", r"MOV|IMAD\.MOV|CS2R|S2R"), ("IMAD", "IMAD"),
    ("INT", "IADD|SHF|LEA|VI|VADD|I|PRMT"), ("BRA", "BRA|BSYNC|BSSY|EXIT|BREAK"))]


@dataclasses.dataclass(frozen=True)
class Instruction:
    address: int
    predicate: str
    op: str
    arguments: str
    stall: int  # cycles until the warp's next one may follow
    writes: int  # scoreboard that counts until the result is there; 7: none
    reads: int  # scoreboard that counts until the operands are read; 7: none
    waits: int  # scoreboards that must be at zero first, a bit for each

    @functools.cached_property
    def kind(self):
        return next((name for name, pattern in KINDS if pattern.match(self.op)), "OTHER")

    @property
    def is_product(self):
        return self.kind == "HGMMA"

    @property
    def columns(self):
        """Of a product: n of m64nNk16."""
        return int(re.match(r"[HQ]GMMA\.64x(\d+)x", self.op)[1])

    @property
    def left_in_registers(self):
        return bool(re.match(r"R\d+, R\d+, gdesc", self.arguments))

    @functools.cached_property
    def base(self):
        return self.op.split(".")[0]


@dataclasses.dataclass
class Kernel:
    name: str
    code: list
    labels: dict

    def target(self, instruction):
        label = re.search(r"`\((\.L_\S+?)\)", instruction.arguments)
        return self.labels.get(label[1]) if label else None

    def registers(self):
        """What warpgroups ask for by themselves, consumers first."""
        return [int(i.arguments.split(",")[-1], 16) for i in self.code if i.base == "USETMAXREG"]

    def local_accesses(self):
        return sum(i.kind == "LOCAL" for i in self.code)


def parse(text):
    """The kernels of a disassembly, by their mangled names."""
    kernels, current, pending, unfinished = [], None, [], None
    for line in text.split("\n"):
        if section := re.match(r"\s*\.section\s+\.text\.([^,\s\"]+)", line):
            current, pending = Kernel(section[1], [], {}), []
            kernels.append(current)
        elif current is None:
            continue
        elif label := re.match(r"^(\.L_\S+):", line):
            pending.append(label[1])
        elif found := INSTRUCTION.search(line):
            unfinished = (int(found[1], 16), found[2] or "", found[3], found[4])
            current.labels.update((name, unfinished[0]) for name in pending)
            pending = []
        elif unfinished and (found := CONTROL.match(line)):
            control = int(found[1], 16) >> 41  # stall 4 bits, yield 1, scoreboard of the result 3, of operands 3, waits 6
            current.code.append(Instruction(*unfinished, stall=control & 15, writes=control >> 5 & 7,
                                            reads=control >> 8 & 7, waits=control >> 11 & 63))
            unfinished = None
    return kernels


def short_names(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    plain = [re.sub(r"^void |distattn::kernels::(cuda::)?", "", line) for line in text.split("\n")]
    return [re.sub(r"\(AttendParams\)$", "", line) for line in plain]


def read_kernels(path, nvdisasm, cuobjdump):
    """The kernels of a cubin, an object or a library, and the version of ptxas that made them."""
    path = pathlib.Path(path).resolve()
    with tempfile.TemporaryDirectory() as folder:
        cubins = [path]
        if path.suffix != ".cubin":
            subprocess.run([cuobjdump, "-arch", "sm_90a", "-xelf", "all", path], cwd=folder, capture_output=True,
                           check=True)
            cubins = sorted(pathlib.Path(folder).glob("*.cubin"))
        kernels, made_by = [], set()
        for cubin in cubins:
            made_by |= {found.decode() for found in re.findall(rb"release [\d.]+, V([\d.]+)", cubin.read_bytes())}
            done = subprocess.run([nvdisasm, "-c", "-hex", cubin], capture_output=True, text=True, check=True)
            kernels += parse(done.stdout)
    for kernel, name in zip(kernels, short_names([kernel.name for kernel in kernels])):
        kernel.name = name
    return kernels, sorted(made_by)


class Blocks:
    """Stretches of code that are entered at their first instruction only, and who follows whom."""

    def __init__(self, kernel):
        self.kernel, self.blocks = kernel, []
        leaders = {kernel.code[0].address, *kernel.labels.values()}
        leaders |= {after.address for i, after in zip(kernel.code, kernel.code[1:])
                    if i.base in ("BRA", "BRX", "EXIT", "RET")}
        for i in kernel.code:
            if i.address in leaders:
                self.blocks.append([])
            self.blocks[-1].append(i)
        self.number = {block[0].address: n for n, block in enumerate(self.blocks)}

    def after(self, n):
        """(block, whether its branch is taken)"""
        last = self.blocks[n][-1]
        diverges = ".DIV" in last.op or ".ANY" in last.op  # branches of warps whose lanes part: none does in a hot loop
        if last.base == "BRA" and self.kernel.target(last) in self.number:
            yield self.number[self.kernel.target(last)], True
        if (last.base not in ("BRA", "BRX", "EXIT", "RET") or last.predicate or diverges) and n + 1 < len(self.blocks):
            yield n + 1, False

    def shortest_round(self, head, needed):
        """The way from block `head` back to it with the fewest instructions that passes all blocks in `needed`:
        [(instruction, whether it is a branch that is taken)], or None."""
        bit = {n: 1 << k for k, n in enumerate(sorted(needed))}
        everything = (1 << len(bit)) - 1
        queue, came_from = [(0, (head, bit.get(head, 0)), None)], {}
        while queue:
            length, state, before = heapq.heappop(queue)
            if state in came_from:
                continue
            came_from[state] = before
            for m, taken in self.after(state[0]):
                if m == head and state[1] == everything:
                    return self._way(came_from, state, taken)
                follows = (m, state[1] | bit.get(m, 0))
                if m != head and follows not in came_from:
                    heapq.heappush(queue, (length + len(self.blocks[m]), follows, (state, taken)))
        return None

    def in_inner_loop(self, n, head):
        """Whether a way leads from block `n` back to it without passing block `head`."""
        waiting, seen = [n], set()
        while waiting:
            for m, _ in self.after(waiting.pop()):
                if m == n:
                    return True
                if m != head and m not in seen:
                    seen.add(m)
                    waiting.append(m)
        return False

    def _way(self, came_from, state, taken):
        way = []
        while state:
            way.append((state[0], taken))
            before = came_from[state]
            state, taken = before if before else (None, None)
        return [(i, taken and i is self.blocks[n][-1] and i.base == "BRA") for n, taken in reversed(way)
                for i in self.blocks[n]]


@dataclasses.dataclass
class Rounds:
    """What a warpgroup executes in one round of its main loop."""
    full: list  # of a tile that nothing cuts
    cut: list  # of one with masks, which a visit begins with; None where masks are not told apart


def main_loop(kernel):
    """The rounds of the loop that multiplies, or None."""
    loops = {}
    for i in kernel.code:
        to = kernel.target(i) if i.base == "BRA" and ".DIV" not in i.op else None
        if to is None or to > i.address:
            continue
        products = frozenset(x.address for x in kernel.code if to <= x.address <= i.address and x.is_product)
        if products and (products not in loops or i.address - to < loops[products][1] - loops[products][0]):
            loops[products] = (to, i.address)
    blocks, found = Blocks(kernel), []
    for products, (head, end) in loops.items():
        if any(other < products for other in loops):
            continue
        needed = {n for n, block in enumerate(blocks.blocks) if any(i.address in products for i in block)}
        if way := blocks.shortest_round(blocks.number[head], needed):
            found.append((len(products), way, blocks.number[head], needed, end))
    if not found:
        return None
    most = max(count for count, *_ in found)
    _, full, head, needed, end = min((f for f in found if f[0] >= 0.7 * most), key=lambda f: len(f[1]))
    cut = cut_round(blocks, full, head, needed, end)
    if cut is None and not hides(full):  # cut tiles may have a loop of their own
        cut = min((way for count, way, *_ in found if count >= 0.7 * most and hides(way)), key=len, default=None)
    return Rounds(full, cut)


def hides(way):
    """Whether it hides scores."""
    return sum(bool(SELECTS.match(i.op)) for i, _ in way) >= 16


def cuts(block):
    """Whether it loads or tells what a visit begins with, or makes masks."""
    loads, words = (sum(i.kind == kind for i in block) for kind in ("LDG", "SHFL"))
    return loads >= 2 or words >= 3 or any(CLAMPS.match(i.op) for i in block)


def cut_round(blocks, full, head, needed, end):
    """The shortest way that also hides scores, makes masks and loads what a visit begins with."""
    walked = {i.address for i, _ in full}
    inside = [n for n, block in enumerate(blocks.blocks)
              if blocks.blocks[head][0].address <= block[0].address <= end and block[0].address not in walked]
    hiding = {n for n in inside if hides((i, False) for i in blocks.blocks[n])}
    if not hiding:
        return None
    cutting = [n for n in inside if cuts(blocks.blocks[n]) and not blocks.in_inner_loop(n, head)]  # more cuts are rare
    needed = needed | hiding
    for n in cutting:  # what cannot be on the same way as the others is an alternative to them
        if blocks.shortest_round(head, needed | {n}):
            needed = needed | {n}
    return blocks.shortest_round(head, needed)


def counts(way):
    return dict(collections.Counter(i.kind for i, _ in way).most_common())
