"""packaging/gpu-check.sh says where there is no GPU; what it writes where there is one is tried with stand-ins. What
packaging/gpu-bundle.sh gathers starts without the libraries of this machine."""

import json
import os
import pathlib
import re
import tempfile

from house import BUILD, SOURCE, expect, run, run_well

SCRIPT = SOURCE / "packaging/gpu-check.sh"

# Says what the command says of this machine, but for a GPU that can be used; computes nothing.
COMMAND = """#!/bin/sh
case "$*" in
  info*) cat "$(dirname "$0")/../info.json" ;;
  *attend-variants*"--head-dim 192"*) printf '[\n  {"command": "cut o'; kill -SEGV $$ ;;
  *fp16*) echo 'distattn: a "wrong" result' >&2; echo '[]'; exit 1 ;;
  *) echo '[{"command": "'$1'"}]' ;;
esac
"""


def check(*steps, build, **variables):
    own = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES" or build == BUILD}
    return run(SCRIPT, *steps, env={**own, **variables, "DISTATTN_BUILD": str(build),
                                    "PATH": f"{build}/bin:{os.environ['PATH']}"})


def programs(folder, **texts):
    for name, text in texts.items():
        path = folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def report_of(folder):
    report = json.loads((folder / "gpu-check/report.json").read_text())
    return report, {step["step"]: step for step in report["steps"]}


def info():
    return json.loads(run_well(BUILD / "bin/distattn", "info", "--json"))


def why_not(name):
    return next(entry["why"] for entry in info()["backends"] if entry["name"] == name)


def write_info(folder, **usable):
    """What the stand-in of the command says of this machine."""
    text = info()
    for entry in text["backends"] + text["providers"]:
        if entry["name"] in usable:
            entry["usable"] = usable[entry["name"]]
            entry["why"] = "as the test says"
    (folder / "info.json").write_text(json.dumps(text, indent=2))


def without_a_gpu():
    done = check(build=BUILD)
    if done.returncode != 3:
        return  # this machine has one, and the other tests use it
    expect("gpu-check: nothing was checked: " in done.stdout and why_not("cuda") in done.stdout,
           f"no clear line: {done.stdout}")
    expect(len(done.stdout.strip().splitlines()) == 1, f"more than a line: {done.stdout}")


def with_stand_ins(folder):
    test = "#!/bin/sh\necho ran\n"
    programs(folder, distattn=COMMAND, test_gpu_primitives=test, test_gpu_elementwise=test, test_gpu_attention=test,
             test_gpu_hopper_primitives=test, **{"nvidia-smi": "#!/bin/sh\necho 'Stand-in, 1'\n"})

    write_info(folder, cuda=False)
    done = check("tests", build=folder)
    expect(done.returncode == 3 and "nothing was checked: as the test says" in done.stdout, f"no GPU: {done.stdout}")

    write_info(folder, cuda=True, cudnn=False)
    done = check("tests", "kernels", "processes", build=folder)
    expect(done.returncode == 0, f"a step failed: {done.stdout}")
    report, steps = report_of(folder)
    expect(report["distattn"]["backends"] and report["gpus"] == "Stand-in, 1", f"no machine: {report}")
    expect([step["outcome"] for step in steps.values()] == ["passed", "passed", "skipped"], f"outcomes: {steps}")
    expect("one GPU" in steps["processes"]["why"], f"no reason: {steps}")
    log = (folder / "gpu-check/tests.log").read_text()
    expect(log.index("test_gpu_hopper_primitives") < log.index("test_gpu_attention"), f"parts come last: {log}")
    expect({"provider": "cudnn", "not_measured": "as the test says"} in steps["kernels"]["results"],
           f"cuDNN's absence is not said: {steps}")

    write_info(folder, cuda=True, cudnn=True)
    done = check("kernels", build=folder)
    results = report_of(folder)[1]["kernels"]["results"]
    expect(done.returncode == 0 and len(results) == 14, f"cuDNN is not measured: {results}")

    done = check("types", build=folder)
    expect(done.returncode == 1 and "failed: types" in done.stdout, f"a wrong result passed: {done.stdout}")
    steps = report_of(folder)[1]
    expect(list(steps) == ["tests", "types", "kernels", "processes"], f"earlier steps are gone: {list(steps)}")
    expect(steps["types"]["outcome"] == "failed" and 'a "wrong" result' in steps["types"]["why"], f"{steps['types']}")
    expect(len(steps["types"]["results"]) == 18, f"what follows a failure is left out: {steps['types']}")

    # What one command leaves half-written does not spoil the report.
    done = check("variants", build=folder)
    steps = report_of(folder)[1]
    expect(done.returncode == 1 and len(steps["variants"]["results"]) == 6, f"cut off: {steps['variants']}")

    write_info(folder, cuda=True)
    programs(folder, mpirun="#!/bin/sh\necho ran\n", **{"nvidia-smi": "#!/bin/sh\necho 'GPU 0'\necho 'GPU 1'\n"})
    text = json.loads((folder / "info.json").read_text())
    for kind, name, step in (("transports", "ucx", "passed"), ("bootstraps", "pmix", "skipped")):
        next(entry for entry in text[kind] if entry["name"] == name)["built"] = False
        (folder / "info.json").write_text(json.dumps(text, indent=2))
        done = check("processes", build=folder)
        processes = report_of(folder)[1]["processes"]
        expect(done.returncode == 0 and processes["outcome"] == step, f"without {name}: {done.stdout}")
    expect("without PMIx" in processes["why"], f"no reason: {processes}")
    check("processes", build=folder, CUDA_VISIBLE_DEVICES="1")
    expect("one GPU" in report_of(folder)[1]["processes"]["why"], "GPUs that are hidden count")

    (folder / "bin/distattn").chmod(0o644)
    done = check("tests", build=folder)
    expect(done.returncode == 2 and "chmod" in done.stdout, f"no hint: {done.stdout}")
    (folder / "bin/distattn").chmod(0o755)

    done = check("nonsense", build=folder)
    expect(done.returncode == 2 and "no step is called nonsense" in done.stdout, f"nonsense ran: {done.stdout}")


def bundled(folder):
    """A program of the bundle loads nothing of this machine but what every system has."""
    none = run(SOURCE / "packaging/gpu-bundle.sh", folder, SOURCE)
    expect(none.returncode == 2 and "no distattn" in none.stdout and not folder.exists(), f"no build: {none.stdout}")
    with tempfile.TemporaryDirectory() as name:
        (pathlib.Path(name) / "bin").mkdir()
        (pathlib.Path(name) / "bin/distattn").symlink_to(BUILD / "bin/distattn")
        none = run(SOURCE / "packaging/gpu-bundle.sh", folder, name)
    expect(none.returncode == 2 and "no test_gpu" in none.stdout and not folder.exists(), f"no tests: {none.stdout}")
    run_well(SOURCE / "packaging/gpu-bundle.sh", folder, BUILD)
    again = run(SOURCE / "packaging/gpu-bundle.sh", folder, BUILD)
    expect(again.returncode == 2 and (folder / "bin/distattn").exists(), "a bundle that exists is replaced")
    (folder / "bin/distattn").rename(folder / "distattn")  # no way back to the build by a relative path
    env = {"LD_LIBRARY_PATH": str(folder / "lib"), "PATH": os.environ["PATH"], "HOME": str(folder)}
    program = folder / "distattn"
    system = r"(linux-vdso|\S*ld-linux\S*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s))\.so"
    for line in run_well("ldd", program, env=env, cwd="/").splitlines():
        name, _, path = line.strip().partition(" => ")
        expect(path.startswith(str(folder)) or re.match(system, name), f"the bundle lacks {line}")
    text = json.loads(run_well(program, "info", "--json", env=env, cwd="/"))
    expect(text["version"] == info()["version"], "the bundle is of another version")


without_a_gpu()
with tempfile.TemporaryDirectory() as name:
    bundled(pathlib.Path(name) / "bundle")
with tempfile.TemporaryDirectory() as name:
    with_stand_ins(pathlib.Path(name))
