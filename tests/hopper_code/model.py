"""A model of one quarter of a Hopper multiprocessor: one warp of each warpgroup executes rounds of a loop.

Taken from the code: stall fields, scoreboards, waits, products and their groups, named barriers. Assumed: rates of the
pipes, as NVIDIA publishes them, and latencies, drawn at random within bounds for each sample. Copies are never late.
Not known is whom the tensor core serves when two warpgroups have products queued: ARBITERS has both possibilities.
Nor is it known whose instruction is issued when two warps have one: SCHEDULERS. The first draws warps into step.
It ranks orders of code. What it says in cycles was within 10 to 15 % of published rates, and is never a measurement.
"""

import collections
import random
import statistics

ARBITERS = ("fifo", "rr")  # the oldest product first, or warpgroups in turns
# Whose instruction goes first: that of the warp that has done least, or of the one that had the last.
SCHEDULERS = {"behind": lambda warp: (len(warp.ends), warp.next), "greedy": lambda warp: (-warp.issued, -warp.group)}

# Cycles for which a warp's instruction occupies a pipe that its quarter has for itself.
MUFU, ALU, UNIFORM, SHUFFLE = 8, 2, 2, 4
SHARED_BYTES, QUEUE, TENSOR_DELAY, OPERANDS_AHEAD = 128, 32, 4, 2
FIXED = dict(mufu=22, shared=30, shuffle=24, constant=30, sync=24, r2ur=12, barrier=20, load=300, taken=6, product=32,
             fence=50, jitter=0, seed=0)


def samples(count=4):
    draw = random.Random(1)
    return [dict(mufu=draw.uniform(18, 30), product=draw.uniform(16, 64), barrier=draw.uniform(12, 32),
                 sync=draw.uniform(16, 32), taken=draw.uniform(2, 12), fence=draw.uniform(30, 80), jitter=80, seed=seed)
            for seed in range(count)]


def pipe_of(i):
    """(pipe, cycles)"""
    kind = i.kind
    if kind == "MUFU":
        return "mufu", MUFU
    if kind in ("FFMA", "FMUL", "FADD"):
        return "fma", 1
    if kind == "IMAD":
        return "fma", 2
    if kind in ("FMNMX", "FSEL", "SEL", "SETP", "F2FP", "INT", "MOV"):
        return "alu", ALU
    if kind == "UNIFORM":
        return "uniform", UNIFORM
    if kind == "SHFL":
        return "memory", SHUFFLE
    if kind == "STS":
        wide = ".128" in i.op or i.op.startswith("STSM") and ".4" in i.op
        return "memory", 16 if wide else 8 if ".64" in i.op else 4
    if kind == "LDS":
        return "memory", 8 if ".128" in i.op else 4
    return None, 0


def product_cost(i):
    """Cycles of the tensor core and bytes of operands in shared memory, for the four quarters together."""
    return i.columns / 2, (0 if i.left_in_registers else 2048) + i.columns * 32


def meetings(way, groups):
    """What barriers between warpgroups do: {address: "await", "pass" or "all"}. Others only take time."""
    bars = [i for i, _ in way if i.kind == "BAR"]
    turns = [i for i in bars if i.arguments.startswith("R") and i.arguments.endswith("0x100")]
    waits, arrivals = [i for i in turns if "SYNC" in i.op], [i for i in turns if "ARV" in i.op]
    met = {i.address: "all" for i in bars
           if "SYNC" in i.op and not i.arguments.startswith("R") and i.arguments.endswith(hex(groups * 128))}
    if len(waits) == 1 and arrivals:
        return met | {waits[0].address: "await", arrivals[-1].address: "pass"}
    return met | turns_at_exponentials(way)


def turns_at_exponentials(way):
    """A warpgroup waits at an mbarrier behind its scores for the other's exponentials, and arrives behind its own."""
    code = [i for i, _ in way]
    scores = next((n for n, i in enumerate(code) if i.op.startswith("WARPGROUP.DEPBAR")), len(code))
    last_exponential = max((n for n, i in enumerate(code) if i.kind == "MUFU"), default=0)
    waits = [n for n in range(scores, last_exponential) if code[n].op.startswith("SYNCS.PHASECHK")]
    arrivals = [n for n in range(waits[0], len(code)) if code[n].op.startswith("SYNCS.ARRIVE")] if waits else []
    return {code[waits[0]].address: "await", code[arrivals[0]].address: "pass"} if arrivals else {}


class Warp:
    def __init__(self, group):
        self.group, self.at, self.next, self.round = group, 200 * group, 0, 0
        self.left = [[] for _ in range(6)]  # of each scoreboard: when what it counts ends
        self.products = []  # when each committed group of products ends
        self.queue = []  # products that the tensor core has not begun
        self.waits_for = None  # a turn, or "all"
        self.ends = []  # of rounds
        self.issued = 0  # when it had an instruction issued


class Quarter:
    """Executes `ways[round]` in each warp."""

    def __init__(self, ways, groups, arbiter, latencies, scheduler="behind"):
        self.latency = FIXED | latencies
        self.groups, self.arbiter, self.first = groups, arbiter, SCHEDULERS[scheduler]
        self.chance = random.Random(self.latency["seed"])
        self.warps = [Warp(group) for group in range(groups)]
        prepared = {id(way): [(i, taken, i.kind, *pipe_of(i)) for i, taken in way] for way in ways}
        self.ways = [prepared[id(way)] for way in ways]
        self.met = {}
        for way in ways if groups > 1 else ():
            self.met |= meetings(way, groups)
        self.turn = collections.Counter({0: 1})
        self.free = collections.defaultdict(float)
        self.tensor = self.shared = 0.0
        self.last, self.order, self.now = -1, 0, 0

    def run(self, most_cycles=400000):
        """Ends of the rounds of each warp, or None if they wait for each other for ever."""
        while any(len(warp.ends) < len(self.ways) for warp in self.warps):
            self.now += 1
            if self.now > most_cycles:
                return None
            self.multiply()
            for warp in sorted(self.warps, key=self.first):
                if len(warp.ends) < len(self.ways) and self.issue(warp):
                    warp.issued = self.now
                    break
        return [warp.ends for warp in self.warps]

    def multiply(self):
        while self.tensor <= self.now:
            ready = [w for w in self.warps if w.queue and w.queue[0][0] <= self.now]
            if not ready:
                return
            oldest = lambda w: w.queue[0][1]
            in_turns = lambda w: (w.group - self.last - 1) % self.groups
            warp = min(ready, key=oldest if self.arbiter == "fifo" else in_turns)
            _, _, cycles, operands, group = warp.queue.pop(0)
            self.last, begin = warp.group, max(self.tensor, self.now)
            self.shared = max(self.shared, begin) + operands
            self.tensor = max(begin + cycles, self.shared - OPERANDS_AHEAD * operands)
            if group is not None:
                warp.products[group] = self.tensor + self.latency["product"]

    def is_held(self, warp, i, kind, pipe):
        if any(i.waits >> b & 1 and any(end > self.now for end in warp.left[b]) for b in range(6)):
            return True
        if pipe and self.free[pipe] > self.now or kind == "HGMMA" and len(warp.queue) >= QUEUE:
            return True
        if i.op.startswith("WARPGROUP.DEPBAR"):
            running = int(i.arguments.split(",")[1], 16)
            return any(end > self.now for end in warp.products[:len(warp.products) - running])
        return False

    def issue(self, warp):
        """Whether the warp issued something."""
        if warp.at > self.now:
            return False
        if warp.waits_for is not None:
            if warp.waits_for != "all" and self.turn[warp.waits_for] > 0:
                self.turn[warp.waits_for] -= 1
                warp.waits_for, warp.at = None, self.now + self.latency["barrier"]
            return False
        way = self.ways[warp.round]
        i, taken, kind, pipe, cycles = way[warp.next]
        if self.is_held(warp, i, kind, pipe):
            return False
        stall = max(1, i.stall) + (self.latency["taken"] if taken else 0)
        warp.at = self.now + stall
        if pipe:
            self.free[pipe] = max(self.free[pipe], self.now) + cycles
        done = self.end_of(warp, i, kind, cycles, stall)
        for scoreboard, until in ((i.writes, done), (i.reads, min(done, self.now + 10))):
            if scoreboard < 6:
                warp.left[scoreboard] = [end for end in warp.left[scoreboard] if end > self.now] + [until]
        if i.address in self.met or kind == "BAR":
            self.meet(warp, i, stall)
        warp.next += 1
        if warp.next == len(way):
            warp.next, warp.round = 0, warp.round + 1
            warp.ends.append(self.now)
        return True

    def end_of(self, warp, i, kind, cycles, stall):
        now, latency = self.now, self.latency
        if kind == "MUFU":
            return self.free["mufu"] - MUFU + latency["mufu"]
        if kind in ("LDS", "STS"):
            self.shared = max(self.shared, now) + cycles
            return max(now, self.free["memory"] - cycles) + latency["shared"]
        if kind == "HGMMA":
            cost, read = product_cost(i)
            closes = "gsb0" in i.arguments
            warp.products += [float("inf")] if closes else []
            self.order += 1
            group = len(warp.products) - 1 if closes else None
            warp.queue.append((now + TENSOR_DELAY, self.order, cost, read / SHARED_BYTES, group))
        late = {"SHFL": "shuffle", "CONST": "constant", "SYNCS": "sync", "R2UR": "r2ur", "FENCE": "fence", "LDG": "load"}
        done = now + (latency[late[kind]] if kind in late else 2 if kind == "BAR" else stall)
        return done + (self.chance.random() * latency["jitter"] if i.op.startswith("SYNCS.PHASECHK") else 0)

    def meet(self, warp, i, stall):
        what = self.met.get(i.address)
        if what == "await":
            warp.waits_for = warp.group
        elif what == "pass":
            self.turn[(warp.group + 1) % self.groups] += 1
        elif what == "all":
            warp.waits_for = "all"
            if all(other.waits_for == "all" for other in self.warps):
                for other in self.warps:
                    other.waits_for, other.at = None, self.now + self.latency["barrier"]
        elif "SYNC" in i.op:
            warp.at = self.now + max(stall, self.latency["barrier"])


def period(way, groups, arbiter="fifo", scheduler="behind", rounds=12):
    """Cycles of a round, of all warpgroups at once; None: they wait for each other for ever."""
    found = []
    for latencies in samples():
        ends = Quarter([way] * rounds, groups, arbiter, latencies, scheduler).run()
        if ends is None:
            return None
        found.append(statistics.mean((e[-1] - e[3]) / (len(e) - 4) for e in ends))
    return round(statistics.mean(found))


def more_if_cut(full, cut, groups, arbiter="fifo", scheduler="behind", rounds=6):
    """Cycles by which one round among others takes longer if its tile is cut."""
    found = []
    for latencies in samples():
        both = [Quarter([full] * 3 + [way] + [full] * (rounds - 3), groups, arbiter, latencies, scheduler).run()
                for way in (full, cut)]
        if None in both:
            return None
        found.append(max(e[-1] for e in both[1]) - max(e[-1] for e in both[0]))
    return round(statistics.mean(found))
