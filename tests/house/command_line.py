"""Manual and completions against what --help-all shows: every command and option is in them, and shells accept them.

The manual's examples run, and its environment variables are those that the program reads.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile

from house import BUILD, SOURCE, expect, run, run_well

DISTATTN = BUILD / "bin/distattn"
SMALL = {"bench": ["--seq", "64", "--heads", "4", "--head-dim", "8", "-n", "1", "-w", "0"]}  # the others ask for a length


def words(text):
    return set(re.findall(r"(?<![\w-])--?\w[\w-]*", text))


def commands_and_options():
    """command -> its options, "" for the root, read from the help texts."""
    root = run_well(DISTATTN, "--help")
    names = re.findall(r"^  (\w+) ", root, re.MULTILINE)
    texts = {"": root, **{name: run_well(DISTATTN, name, "--help-all") for name in names}}
    return {name: words("\n".join(re.findall(r"^  (-[\w-]+(?:,-[\w-]+)*)", text, re.MULTILINE)).replace(",", " "))
            for name, text in texts.items()}


def bash_offers(script, line):
    """What bash offers for the last word of `line`, which it takes apart as readline does: at = and :."""
    line = line.replace("''", " ") if line.endswith("''") else line
    parts = [part for word in line.split(" ") for part in (re.findall("[=:]|[^=:]+", word) or [""])]
    parts = [part for part in parts[:-1] if part] + parts[-1:]
    quoted = " ".join(f"'{part}'" for part in parts)
    code = f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(parts) - 1}; " \
        '_distattn; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", code], text=True, capture_output=True, check=True)
    expect(not done.stderr, f"bash complains after {line}: {done.stderr}")
    return set(done.stdout.split())


def check_values(script):
    """Names of schedules, machines and masks are those that the program itself takes, and bash completes parts of them."""
    def refusal(*command):
        done = run(DISTATTN, *command)
        expect(done.returncode == 2, f"{command} is not refused: {done.stdout}")
        return done.stdout

    def typed(forms):
        """"burst" and "burst:zigzag" of burst[:zigzag], "usp:" of usp:U."""
        words = set()
        for form in forms:
            name, *arguments = re.split(r"\[:|\||\]", form)
            words |= {re.sub("[A-Z].*", "", name)}
            if not re.search("[A-Z]", name):
                words |= {re.sub("[A-Z].*", "", f"{name}:{each}") for each in arguments if each}
        return words - {""}

    shape = ["--seq", "64", "--heads", "4", "--head-dim", "8"]
    known = re.search(r"\(there are (.*)\): choose", refusal("show", "--schedule", "spiral", *shape))[1]
    schedules = typed(known.split(", ")) | {"auto"}
    expect({"ring", "burst", "burst:zigzag", "usp:", "attention2d", "attention2d:", "mesh:"} <= schedules, f"{schedules}")
    machines = set(re.search(r"use (.*), this,", refusal("plan", "--machine", "/none", *shape))[1].split(", ")) | {"this"}
    masks = typed(re.search(r"one of (.*)", refusal("plan", "--mask", "nothing", *shape))[1].split(", "))
    for line, words in {
        "run --schedule ''": schedules, "plan --schedule ''": schedules | {"all"}, "run --schedule=''": schedules,
        "run --schedule burst:": {"zigzag"}, "run --schedule=burst:z": {"zigzag"}, "run --schedule ring/zig": {"ring/zigzag-ring"},
        "plan --schedule burst:zigzag,zig": {"zigzag,zigzag-ring"}, "plan --schedule ring,us": {"ring,usp:"},
        "plan --machine ''": machines, "run --machine dgx-h": {"dgx-h100x8"}, "run --machine ./": set(),
        "run --mask ''": masks, "run --mask=pre": {"prefix:"}, "bench --mask causal,blo": {"causal,block-causal:"},
        "bench --dtype fp32,b": {"fp32,bf16"}, "validate --backend ref": {"reference"},
        "plan --paper dist": {"distflashattn"}, "plan --step llama-3": {"llama-3-8b"},
    }.items():
        offered = bash_offers(script, f"distattn {line}")
        expect(offered == words, f"bash offers {sorted(offered)} after {line}, not {sorted(words)}")


def check_variables(manual):
    read = set()
    for room in ("backends", "cli", "core/src", "kernels"):
        for source in (SOURCE / room).rglob("*.cpp"):
            read |= set(re.findall(r'"(DISTATTN_[A-Z]+)"', source.read_text()))
    told = set(re.findall(r"^(DISTATTN_[A-Z]+)$", manual, re.M))
    expect(told == read, f"the manual tells of {sorted(told)}, the program reads {sorted(read)}")


def can_launch():
    """Whether processes that mpirun starts find each other with this build."""
    if shutil.which("mpirun") is None:
        return False
    info = json.loads(run_well(DISTATTN, "info", "--json"))
    return {"pmix", "ucx"} <= {each["name"] for kind in ("bootstraps", "transports") for each in info[kind]
                               if each["built"]}


def check_examples(manual):
    examples = [line.replace("\\-", "-") for line in re.findall(r"^\.EX\n(.*)\n\.EE$", manual, re.M)]
    expect(len(examples) >= 5, f"the manual has {len(examples)} examples")
    # Open MPI refuses root and more ranks than cores otherwise; containers are like that.
    environment = {**os.environ, "PATH": f"{DISTATTN.parent}:{os.environ['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                   "OMPI_MCA_hwloc_base_binding_policy": "none"}
    for example in examples:
        if example.startswith("mpirun") and not can_launch():
            continue
        with tempfile.TemporaryDirectory() as folder:
            run_well("bash", "-c", example, cwd=folder, env={**environment, "XDG_CACHE_HOME": folder})
    return len(examples)


tree = commands_and_options()
expect({"info", "completion", "manual"} <= set(tree), f"help shows the commands {sorted(tree)}")
versions = run_well(DISTATTN, "--version").splitlines()
expect(re.fullmatch(r"distattn \d+\.\d+\.\d+ \(\w+.*\)", versions[0]), f"--version begins with {versions[0]}")
for kind in ("backends", "transports", "bootstraps"):
    for info in json.loads(run_well(DISTATTN, "info", "--json"))[kind]:
        line = f"{info['name']}: {(info['version'] or '').split(', loaded ')[0].split(', driver ')[0]}"
        expect((line in versions) == (info["built"] and info["version"] is not None), f"--version and {line}")

manual = run_well(DISTATTN, "manual")
sections = {name: body for name, body in re.findall(r"^\.SS distattn (\S+)\n(.*?)(?=^\.S[SH])", manual, re.M | re.S)}
expect(set(sections) == set(tree) - {""}, f"the manual describes {sorted(sections)}")
for document, command in (("man/man1/distattn.1", ["manual"]),
                          ("bash-completion/completions/distattn", ["completion", "bash"])):
    if (BUILD / "share" / document).exists():
        expect((BUILD / "share" / document).read_text() == run_well(DISTATTN, *command), f"{document} is not of this build")
    else:
        print(f"{document} was not built: not compared")
for name, options in tree.items():
    text = sections[name] if name else manual
    missing = {option for option in options if f"\\fB{option}\\fR".replace("-", "\\-") not in text}
    expect(not missing, f"the manual of '{name}' lacks {sorted(missing)}")
if shutil.which("groff"):
    complaints = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=manual, text=True,
                                capture_output=True, check=False).stderr
    expect(not complaints, f"groff complains:\n{complaints}")

check_variables(manual)
ran = check_examples(manual)

scripts = {shell: run_well(DISTATTN, "completion", shell) for shell in ("bash", "zsh", "fish")}
for shell, script in scripts.items():
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False)
        expect(checked.returncode == 0, f"{shell} does not accept its completion\n{checked.stderr}")
for name, options in tree.items():
    offered = bash_offers(scripts["bash"], f"distattn {name} -")
    expect(not options - offered, f"bash does not offer {sorted(options - offered)} after '{name}'")
    for shell in ("zsh", "fish"):
        # fish writes -l name for --name and -s n for -n.
        spelled = {option: f"-l {option[2:]} " if option.startswith("--") else f"-s {option[1:]} " for option in options}
        missing = {o for o in options if (spelled[o] if shell == "fish" else f"'{o}[") not in scripts[shell]}
        expect(not missing, f"{shell}'s completion lacks {sorted(missing)}")
expect(bash_offers(scripts["bash"], "distattn completion z") == {"zsh"}, "bash does not complete a word")
offers = {"--dtype": {"fp64", "fp32", "bf16", "fp16"}, "--wire": {"fp32", "bf16"}, "--mode": {"overlapped", "serial", "gathered"},
          "--documents": {"pile", "prolong64k", "prolong512k"}}
for kind in ("backend", "transport", "bootstrap", "provider"):
    names = {info["name"] for info in json.loads(run_well(DISTATTN, "info", "--json"))[kind + "s"]}
    offers["--" + kind] = {"file:" if name == "file" else name for name in names}
for command, some in {"run": offers, "show": {"--format": {"text", "json", "svg", "trace", "layout"}},
                      "step": {"--checkpoint": {"none", "layer", "attention-output", "attention-output-host"}},
                      "plan": {"--checkpoint": {"none", "layer", "attention-output", "attention-output-host"},
                               "--state": {"replicated", "sharded"}, "--routes": {"routed", "straight", "both"}},
                      "bench": {"--kernel": {"all", "attend", "attend-variants", "merge", "copy"},
                                "-o": {"md", "csv", "json"}}}.items():
    for option, choices in some.items():
        offered = bash_offers(scripts["bash"], f"distattn {command} {option} ''")
        expect(offered == choices, f"bash offers {sorted(offered)} after {command} {option}, not {sorted(choices)}")
        for choice in choices:  # one that help shows is one that is taken
            done = run(DISTATTN, command, option, choice, *SMALL.get(command, []))
            expect(f"{option} {choice} (unknown)" not in done.stdout, f"{command} {option} {choice}: {done.stdout}")
check_values(scripts["bash"])
expect("info" in bash_offers(scripts["bash"], "distattn in"), "bash does not complete a command")
print(f"{len(tree) - 1} commands, {sum(map(len, tree.values()))} options, {ran} examples")
