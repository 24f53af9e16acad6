"""Network namespaces joined by a bridge: hosts of their own, as far as the network is concerned. Root only."""

import os
import subprocess


def run(*command):
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


def available():
    """Why not; empty: they can be had."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        run("ip", "netns", "add", f"dt{os.getpid()}")
        run("ip", "netns", "del", f"dt{os.getpid()}")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"network namespaces cannot be made ({error})"
    return ""


class Network:
    """`hosts` namespaces on one bridge, each sending at most at `rate` (as tc says it: "1gbit"; none: unlimited), with
    an address of IPv4, or of IPv6 alone."""

    device = "eth0"

    def __init__(self, hosts, rate=None, ranks_per_host=1, ipv6=False):
        self.tag = f"d{os.getpid() % 100000}"
        self.bridge = f"{self.tag}br"
        self.hosts, self.rate, self.ranks_per_host, self.ipv6 = hosts, rate, ranks_per_host, ipv6

    def name(self, host):
        return f"{self.tag}h{host}"

    def port(self, host):
        return f"{self.tag}v{host}"

    def __enter__(self):
        try:
            run("ip", "link", "add", self.bridge, "type", "bridge")
            run("ip", "link", "set", self.bridge, "up")
            for host in range(self.hosts):
                self.add(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def add(self, host):
        name, port = self.name(host), self.port(host)
        inside = ("ip", "netns", "exec", name)
        run("ip", "netns", "add", name)
        run("ip", "link", "add", port, "type", "veth", "peer", "name", self.device, "netns", name)
        run("ip", "link", "set", port, "master", self.bridge, "up")
        # Without a search for others that have the same address, until whose end it cannot be used.
        address = (f"fd00:77::{host + 1}/64", "nodad") if self.ipv6 else (f"10.77.0.{host + 1}/24",)
        run(*inside, "ip", "addr", "add", *address, "dev", self.device)
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "link", "set", self.device, "up")
        if self.rate:
            run(*inside, "tc", "qdisc", "add", "dev", self.device, "root", "tbf", "rate", self.rate, "burst", "256kb",
                "latency", "50ms")

    def inside(self, rank):
        """What starts a command where a rank lives."""
        return ("ip", "netns", "exec", self.name(rank // self.ranks_per_host))

    def read(self, host, path):
        return subprocess.run(["ip", "netns", "exec", self.name(host), "cat", path], capture_output=True, text=True,
                              check=True).stdout

    def cut(self, host):
        run("ip", "link", "set", self.port(host), "down")

    def __exit__(self, *_):
        for host in range(self.hosts):
            subprocess.run(["ip", "netns", "del", self.name(host)], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", self.port(host)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=False)
