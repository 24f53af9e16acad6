"""Hosts joined by links of 1 Gbit/s: namespaces of this machine. Root only.

shaped.py BINARY          what travels: routed, a segment enters a host once; over slow links, and over IPv6 alone
shaped.py BINARY TIMES    how long it takes, overlapped and serial, straight and routed, beside the prediction
"""

import json
import statistics
import sys

import netns
from ranks import SCRATCH, clean_up, expect, finish, start_ranks

TIMES = int(sys.argv[2]) if len(sys.argv) > 2 else 0
HOSTS, RANKS = 2, 4
GBIT = {"bytes_per_s": 0.119e9, "latency_s": 100e-6, "per": "node"}
OVER = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": netns.Network.device}


def machine_file(name, ranks_per_node, flops_per_s):
    """What prediction knows of these hosts: nominal links, and how fast a rank was alone."""
    path = SCRATCH / f"{name}.json"
    path.write_text(json.dumps({
        "name": name, "nodes": HOSTS, "ranks_per_node": ranks_per_node, "cores": 0, "memory_bytes": 1e9,
        "memory_bytes_per_s": 5e9, "near": {"bytes_per_s": 2e9, "latency_s": 50e-6}, "far": GBIT,
        "flops_per_s": {"fp32": flops_per_s}}))
    return path


def sent_bytes(network, host):
    return int(network.read(host, "/sys/class/net/eth0/statistics/tx_bytes"))


def run(network, ranks, *arguments):
    """The result, and what left each host."""
    before = [sent_bytes(network, host) for host in range(HOSTS)]
    ends = finish(start_ranks(ranks, "run", "--random", "--json", *arguments, prefix=network.inside, **OVER))
    expect(all(code == 0 for code, _, _ in ends), arguments, ends)
    return json.loads(ends[0][1]), [sent_bytes(network, host) - before[host] for host in range(HOSTS)]


def far_bytes_halve():
    shape = ("--seq", "2K", "--heads", "8", "--head-dim", "32", "--mask", "full", "--schedule", "zigzag-ring")
    with netns.Network(HOSTS, ranks_per_host=RANKS // HOSTS) as network:
        _, straight_bytes = run(network, RANKS, *shape, "--node-size", RANKS)
        _, routed_bytes = run(network, RANKS, *shape, "--node-size", RANKS // HOSTS)
        run(network, RANKS, *shape, "--node-size", RANKS // HOSTS, "--check")  # sends what results should be, too
    print(f"bytes that leave a host: straight {max(straight_bytes)}, routed {max(routed_bytes)}")
    for one, other in zip(straight_bytes, routed_bytes):
        expect(0.4 * one < other < 0.6 * one, "routed far bytes are not half:", straight_bytes, routed_bytes)


def slow_is_not_silent():
    """A message that takes longer than the timeout, on a link that moves a packet now and then."""
    with netns.Network(HOSTS, rate="2mbit") as network:
        run(network, HOSTS, "--seq", "512", "--heads", "8", "--head-dim", "64", "--mask", "full", "--schedule", "ring",
            "--timeout", "2")
    print("a slow link is no timeout")


def ipv6_alone():
    with netns.Network(HOSTS, ipv6=True) as network:
        run(network, HOSTS, "--seq", "64", "--heads", "1", "--head-dim", "16", "--schedule", "ring", "--timeout", "20")
    print("ranks meet over IPv6 alone")


def figure(network, ranks, label, *arguments):
    results = [run(network, ranks, *arguments) for _ in range(TIMES)]
    medians = [result["median_s"] for result, _ in results]
    print(f"{label:<28} {min(medians):>8.3f} {statistics.median(medians):>8.3f} {results[0][0]['predicted_s']:>10.3f} "
          f"{max(results[0][1]) / 1e6:>8.1f}", flush=True)


def flops_alone(*shape):
    [end] = finish(start_ranks(1, "run", "--random", "--json", "--threads", "1", "-n", "3", *shape))
    return json.loads(end[1])["gflops"] * 1e9


def figures():
    shape = ("--seq", "2K", "--heads", "8", "--head-dim", "64", "--mask", "full", "--threads", "1")
    flops = flops_alone(*shape[:-2], "--schedule", "ring")
    print(f"a rank alone: {flops / 1e9:.1f} GFLOP/s; links 1 Gbit/s")
    print(f"{'':<28} {'best s':>8} {'median':>8} {'predicted':>10} {'far MB':>8}")
    with netns.Network(HOSTS, rate="1gbit") as network:
        machine = machine_file("two-hosts", 1, flops)
        for mode in ("overlapped", "serial"):
            figure(network, 2, f"ring, {mode}", *shape, "--schedule", "ring", "--mode", mode, "--machine", machine,
                   "-n", "9")
    with netns.Network(HOSTS, rate="1gbit", ranks_per_host=2) as network:
        machine = machine_file("two-hosts-of-two", 2, flops / 2)
        for label, size in (("straight", RANKS), ("routed", 2)):
            figure(network, RANKS, f"zigzag-ring, {label}", *shape, "--schedule", "zigzag-ring", "--node-size", size,
                   "--machine", machine, "-n", "9")


def main():
    why_not = netns.available()
    if why_not:
        print("SKIPPED:", why_not)
        return
    if TIMES:
        figures()
    else:
        far_bytes_halve()
        slow_is_not_silent()
        ipv6_alone()


try:
    main()
finally:
    clean_up()
