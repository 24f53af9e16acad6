"""packaging/gpu-check.sh says where there is no GPU; what it writes where there is one is tried with stand-ins."""

import json
import os
import pathlib
import tempfile

from house import BUILD, SOURCE, expect, run

SCRIPT = SOURCE / "packaging/gpu-check.sh"

# Says what the command says of this machine, computes nothing, and has a cuDNN that is not usable.
COMMAND = f"""#!/bin/sh
case "$*" in
  info*) exec {BUILD}/bin/distattn "$@" ;;
  *cudnn*) echo 'distattn: no cuDNN' >&2; exit 3 ;;
  *fp16*) echo 'distattn: a "wrong" result' >&2; echo '[]'; exit 1 ;;
  *) echo '[{{"command": "'$1'"}}]' ;;
esac
"""


def check(*steps, build):
    return run(SCRIPT, *steps, env={**os.environ, "DISTATTN_BUILD": str(build),
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


def without_a_gpu():
    done = check(build=BUILD)
    if done.returncode != 3:
        return  # this machine has one, and the other tests use it
    expect("gpu-check: nothing was checked: distattn: --backend cuda cannot be used here" in done.stdout or
           "gpu-check: nothing was checked: distattn: backend cuda cannot be used here" in done.stdout,
           f"no clear line: {done.stdout}")
    expect(len(done.stdout.strip().splitlines()) == 1, f"more than a line: {done.stdout}")


def with_stand_ins(folder):
    test = "#!/bin/sh\necho ran\n"
    programs(folder, distattn=COMMAND, test_gpu_primitives=test, test_gpu_elementwise=test, test_gpu_attention=test,
             **{"nvidia-smi": "#!/bin/sh\necho 'Stand-in, 1'\n"})

    done = check("tests", "kernels", "processes", build=folder)
    expect(done.returncode == 0, f"a step failed: {done.stdout}")
    report, steps = report_of(folder)
    expect(report["distattn"]["backends"] and report["gpus"] == "Stand-in, 1", f"no machine: {report}")
    expect([step["outcome"] for step in steps.values()] == ["passed", "passed", "skipped"], f"outcomes: {steps}")
    expect("one GPU" in steps["processes"]["why"], f"no reason: {steps}")
    expect(len(steps["kernels"]["results"]) == 4, f"cuDNN's absence has a result: {steps}")

    done = check("types", build=folder)
    expect(done.returncode == 1 and "failed: types" in done.stdout, f"a wrong result passed: {done.stdout}")
    steps = report_of(folder)[1]
    expect(list(steps) == ["tests", "types", "kernels", "processes"], f"earlier steps are gone: {list(steps)}")
    expect(steps["types"]["outcome"] == "failed" and 'a "wrong" result' in steps["types"]["why"], f"{steps['types']}")

    done = check("nonsense", build=folder)
    expect(done.returncode == 2 and "no step is called nonsense" in done.stdout, f"nonsense ran: {done.stdout}")


without_a_gpu()
with tempfile.TemporaryDirectory() as name:
    with_stand_ins(pathlib.Path(name))
