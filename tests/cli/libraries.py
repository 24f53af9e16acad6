#!/usr/bin/env python3
"""Libraries keep to themselves: which are loaded by which command, and where what they write goes.

usage: libraries.py DISTATTN
"""
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

DISTATTN = os.path.abspath(sys.argv[1])
RUN = "run --random --seq 64 --heads 2 --head-dim 16 --threads 1 -q --json"
STEP = "step --layers 1 --hidden 32 --ffn 32 --vocab 32 --seq 32 --heads 2 --threads 1 -q --json"


def call(command, megabytes=None, **variables):
    def limit():
        if megabytes:
            resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    return subprocess.run([DISTATTN, *command.split()], capture_output=True, text=True, timeout=60, preexec_fn=limit,
                          env={**os.environ, **variables})


INFO = json.loads(call("info --json").stdout)
STEPS = INFO["step"]["built"]
USES_UCX = any(each["name"] == "ucx" and each["usable"] for each in INFO["transports"])


def two_processes(folder, more="", **variables):
    """Two ranks that meet at a file in that folder."""
    command = f"{RUN} --ranks 2 --bootstrap file:{folder}/meeting {more}"
    return [subprocess.Popen([DISTATTN, *command.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, **variables, "DISTATTN_RANK": str(rank)}) for rank in (0, 1)]


def loaded(command):
    """What the system's loader initialised."""
    lines = call(command, LD_DEBUG="files").stderr.splitlines()
    return [line.split("calling init:")[1].strip() for line in lines if "calling init:" in line]


def blas_is_loaded_by_step_alone():
    assert not any("blas" in library for command in ("info", RUN, "plan --seq 64 --heads 2 --head-dim 16")
                   for library in loaded(command))
    if not STEPS:
        print("step: skipped (it is not built)")
        return
    assert INFO["step"]["blas"], INFO["step"]
    mine = [library for library in loaded(STEP) if INFO["step"]["blas"].split(".")[0] in library or "blas" in library]
    assert mine, "step loads no BLAS"
    file = INFO["step"]["file"]
    assert file is None or any(os.path.realpath(library) == file for library in mine), (file, mine)


def transports_are_loaded_by_who_uses_them():
    """Nothing of UCX, NCCL or cuDNN for what is computed in one process, or not at all."""
    shape = "--seq 64 --heads 2 --head-dim 16"
    commands = ("--version", f"{RUN} --backend reference --ranks 2", f"plan --ranks 2 {shape} -q",
                f"show --schedule ring --ranks 2 {shape}", "info --why-this-launcher",
                f"validate --backend reference --schedule ring --ranks 2 {shape} -q")
    others = ("libuc", "nccl", "cudnn", "ibverbs", "rdmacm")
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            wrong = [library for library in loaded(command) if any(name in library for name in others)]
            assert not wrong, (command, wrong)
            for log in ("/nonexistent/x", folder + "/log-%p"):
                done = call(command, UCX_LOG_FILE=log)
                assert done.returncode == 0 and done.stderr == "", (command, log, done)
        assert not os.listdir(folder), os.listdir(folder)
        if not USES_UCX:
            print("the log of UCX: skipped (it is not usable here)")
            return
        assert any("libucp" in library for library in loaded("info"))
        with open(f"{folder}/read-only", "w", encoding="ascii") as file:
            os.chmod(file.name, 0o444)
        for log in ("/nonexistent/x", "file:/nonexistent/x", "/dev/null/x:1G") + ((f"{folder}/read-only",) if os.geteuid() else ()):
            told = json.loads(call("info --json", UCX_LOG_FILE=log).stdout)
            ucx = next(each for each in told["transports"] if each["name"] == "ucx")
            assert not ucx["usable"] and "UCX_LOG_FILE" in ucx["why"], ucx
            for process, code in zip(two_processes(folder, UCX_LOG_FILE=log), (3, 3)):
                _, told = process.communicate(timeout=60)
                assert process.returncode == code and told.count("\n") <= 1, (log, process.returncode, told)
                assert "UCX_LOG_FILE" in told or not told, (log, told)


def settings_that_ucx_refuses():
    """UCX's own words are on its log alone: the line names what is set."""
    if not USES_UCX:
        print("settings that UCX refuses: skipped (it is not usable here)")
        return
    for name, value in (("UCX_TLS", ""), ("UCX_TLS", "no_such_transport"), ("UCX_KEEPALIVE_INTERVAL", "abc")):
        with tempfile.TemporaryDirectory() as folder:
            for process in two_processes(folder, "--transport ucx --timeout 20", **{name: value}):
                _, told = process.communicate(timeout=60)
                assert process.returncode == 3 and told.count("\n") == 1, (name, value, process.returncode, told)
                assert f"with {name}={value}" in told and "UCX_LOG_LEVEL" in told, (name, value, told)


def signals_stay_ours():
    """UCX takes some while it is loaded: SIGHUP for its debugger, and those of faults."""
    if not USES_UCX:
        print("signals beside UCX: skipped (it is not usable here)")
        return
    for number, code in ((signal.SIGHUP, 130), (signal.SIGSEGV, -signal.SIGSEGV)):
        with tempfile.TemporaryDirectory() as folder:
            ranks = two_processes(folder, "-n 1000000")
            time.sleep(2)
            ranks[0].send_signal(number)
            _, told = ranks[0].communicate(timeout=60)
            assert ranks[0].returncode == code and told.count("\n") == 1, (number, ranks[0].returncode, told)
            ranks[1].communicate(timeout=60)


def address_space_is_short():
    """The process ends, well or with one line, and in time."""
    for megabytes in (63, 66, 69, 75, 150, 200, 260, 300, 400, 600):
        for command in ("info --json", RUN) + ((STEP,) if STEPS else ()):
            done = call(command, megabytes)
            assert done.returncode in (0, 3, 127), (command, megabytes, done.returncode, done.stderr)
            assert done.returncode != 0 or json.loads(done.stdout), (command, megabytes)
            assert done.returncode != 3 or done.stderr.count("\n") == 1, (command, megabytes, done.stderr)
    if STEPS:
        assert "address space" in call(STEP, 250).stderr
    if USES_UCX:
        assert "UCX is not used where ulimit -v" in call("info --json", 200).stdout


def settings_of_other_programs():
    """What is set for other programs of the same libraries, well or not, changes nothing."""
    def result(**variables):
        done = call(RUN, **variables)
        assert done.returncode == 0 and done.stderr == "", (variables, done)
        told = json.loads(done.stdout)
        return {name: told[name] for name in told if not name.endswith("_s") and name != "gflops"}
    alone = result()
    for name in ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "UCX_TLS", "UCX_NET_DEVICES", "NCCL_ALGO", "NCCL_DEBUG"):
        assert result(**{name: "abc"}) == alone, name
    for name in ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS") if STEPS else ():
        assert call(STEP, **{name: "-1"}).returncode == 0, name


def results_stand_alone():
    """stdout is rank 0's, whatever libraries log, wherever they are told to."""
    if not USES_UCX:
        print("the log of UCX: skipped (it is not usable here)")
        return
    for log in ({"UCX_LOG_LEVEL": "info"}, {"UCX_LOG_LEVEL": "info", "UCX_LOG_FILE": "stdout"},
                {"UCX_NO_SUCH_SETTING": "1", "UCX_LOG_LEVEL": "warn"}):
        with tempfile.TemporaryDirectory() as folder:
            (first, told), (second, _) = [rank.communicate(timeout=60) for rank in two_processes(folder, **log)]
            assert json.loads(first)["ranks"] == 2 and second == "", (log, first, second)
            assert "UCX" in told, (log, told)


def standard_output_by_name():
    """It is where it was, also for who names it as a file; a file that it goes to is not replaced."""
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        done = subprocess.run(f"{DISTATTN} {RUN} --trace {name} | cat", shell=True, capture_output=True, text=True,
                              timeout=60)
        result, _, trace = done.stdout.partition("\n}\n")
        assert json.loads(result + "}")["ranks"] == 1 and json.loads(trace), (name, done)
        with tempfile.NamedTemporaryFile() as file:
            done = subprocess.run([DISTATTN, *RUN.split(), "--trace", name], stdout=file, stderr=subprocess.PIPE,
                                  text=True, timeout=60)
            assert done.returncode == 3 and "standard output goes there" in done.stderr, done


def a_reader_that_takes_its_time():
    """Standard output that does not block, and is full for a while."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    process = subprocess.Popen([DISTATTN, "plan", "--seq", "4K", "--heads", "8", "--head-dim", "64", "--ranks", "2-64",
                                "--json"], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    time.sleep(1)
    with os.fdopen(reading) as pipe:
        rows = json.loads(pipe.read())
    assert process.wait(timeout=60) == 0 and len(rows) > 100, (len(rows), process.stderr.read())


for check in (blas_is_loaded_by_step_alone, transports_are_loaded_by_who_uses_them, settings_that_ucx_refuses,
              signals_stay_ours, address_space_is_short, settings_of_other_programs, results_stand_alone, standard_output_by_name,
              a_reader_that_takes_its_time):
    check()
    print(check.__name__, "fine")
