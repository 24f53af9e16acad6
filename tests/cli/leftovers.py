#!/usr/bin/env python3
"""What distattn leaves behind when a signal, a limit or another run comes in between: nothing but whole files.

usage: leftovers.py DISTATTN
"""
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DISTATTN = os.path.abspath(sys.argv[1])
SANITIZED = len(sys.argv) > 2  # sanitizers take signals and reserve memory
SHAPE = "--heads 2 --head-dim 16 --threads 1 --backend reference --schedule ring -q"
LONG = f"run --random --seq 512 -n 100000 {SHAPE} --out out --svg run.svg --html run.html --trace run.json"


def start(command, folder, before=None, **more):
    return subprocess.Popen([DISTATTN, *command.split()], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, preexec_fn=before, **more)


def files(folder):
    return sorted(os.path.relpath(os.path.join(path, name), folder)
                  for path, folders, names in os.walk(folder) for name in names + folders)


def wait_for_files(folder, process):
    deadline = time.monotonic() + 30
    while not any(name.startswith("run.json.partial") for name in files(folder)):
        assert process.poll() is None and time.monotonic() < deadline, (process.poll(), files(folder))
        time.sleep(0.005)


def ends(process, code, words):
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == code, (process.returncode, errors)
    assert words in errors and errors.count("\n") == 1, errors


def signals_end_a_run():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
                   signal.SIGALRM, signal.SIGVTALRM, signal.SIGPWR, signal.SIGRTMIN + 2):
        with tempfile.TemporaryDirectory() as folder:
            process = start(LONG, folder)
            wait_for_files(folder, process)
            process.send_signal(number)
            ends(process, 130, "distattn: interrupted (by ")
            assert files(folder) == [], (number, files(folder))


def signals_end_a_run_that_begins():
    """Whatever the moment, in the first tenths of a second too."""
    for tenth in range(12):
        with tempfile.TemporaryDirectory() as folder:
            process = start(LONG, folder)
            time.sleep(0.01 * tenth)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
            assert process.returncode in (130, -signal.SIGTERM), process.returncode  # the latter before main
            assert files(folder) == [], (tenth, files(folder))


def faults_end_as_faults():
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
        with tempfile.TemporaryDirectory() as folder:
            process = start(LONG, folder, lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
            wait_for_files(folder, process)
            time.sleep(0.1)  # a fault in the moment in which a file is made leaves it to the next run
            process.send_signal(number)
            errors = process.communicate(timeout=60)[1]
            assert process.returncode == -number, (process.returncode, errors)
            assert "(a fault of the program or of a library)" in errors, errors
            assert files(folder) == [], (number, files(folder))


def what_the_caller_ignores():
    """nohup: a library that takes SIGHUP before main changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        process = start(LONG, folder, lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        wait_for_files(folder, process)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert process.poll() is None, process.communicate()
        process.terminate()
        ends(process, 130, "SIGTERM")


def limits_end_a_run():
    def limited(kind, soft, hard):
        return lambda: resource.setrlimit(kind, (soft, hard))
    for soft, hard in ((1, 1), (1, 100), (2, 2)):
        with tempfile.TemporaryDirectory() as folder:
            ends(start(LONG, folder, limited(resource.RLIMIT_CPU, soft, hard)), 3, "the limit of CPU time is reached")
            assert files(folder) == [], files(folder)
    for size in (64, 60000):  # in the header, and in the values
        with tempfile.TemporaryDirectory() as folder:
            command = LONG.replace("-n 100000", "")
            ends(start(command, folder, limited(resource.RLIMIT_FSIZE, size, size)), 3, "limit of file sizes")
            assert files(folder) == [], files(folder)
    refused = 0
    for most in range(5, 14):  # one of the files, whichever it is, cannot be opened
        with tempfile.TemporaryDirectory() as folder:
            done = start(LONG.replace("-n 100000", "--ranks 1"), folder, limited(resource.RLIMIT_NOFILE, most, most))
            errors = done.communicate(timeout=60)[1]
            if done.returncode == 3:
                refused += 1
                assert "cannot write" in errors and "raise the limit of open files" in errors, errors
                assert files(folder) == [], files(folder)
    assert refused > 0
    with tempfile.TemporaryDirectory() as folder:
        command = LONG.replace("-n 100000", "") + " --ranks 2 --bootstrap file:meeting"
        ends(start(command, folder, limited(resource.RLIMIT_FSIZE, 0, 0)), 3, "File too large")
        assert files(folder) == [], files(folder)
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "plan")
        with open(result, "wb") as output:
            process = subprocess.Popen([DISTATTN, "manual"], stdout=output, stderr=subprocess.PIPE, text=True,
                                       preexec_fn=limited(resource.RLIMIT_FSIZE, 100, 100))
        ends(process, 3, "cannot write to standard output (File too large)")


def dead_runs_are_cleaned_up():
    with tempfile.TemporaryDirectory() as folder:
        dead = start(LONG, folder)
        wait_for_files(folder, dead)
        dead.kill()
        dead.communicate()
        assert any("partial" in name for name in files(folder))
        living = start(LONG, folder)
        deadline = time.monotonic() + 30
        while len(files(folder)) != 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(files(folder)) == 6, files(folder)  # the folder, and five files of the one that lives
        short = start(LONG.replace("-n 100000", ""), folder)
        assert short.wait(timeout=60) == 0, short.communicate()
        assert len(files(folder)) == 11, files(folder)
        living.terminate()
        living.communicate()
        assert files(folder) == ["out", "out/lse.npy", "out/o.npy", "run.html", "run.json", "run.svg"], files(folder)


def planted_links_are_not_followed():
    with tempfile.TemporaryDirectory() as folder:
        process = start(LONG, folder)
        wait_for_files(folder, process)
        victim = os.path.join(folder, "victim")
        with open(victim, "w") as file:
            file.write("mine")
        partial = next(name for name in files(folder) if name.startswith("run.json.partial"))
        os.remove(os.path.join(folder, partial))
        os.symlink(victim, os.path.join(folder, partial))
        process.terminate()
        process.communicate(timeout=60)
        with open(victim) as file:
            assert file.read() == "mine"
        assert files(folder) == ["victim"], files(folder)


def folders_that_are_renamed():
    """Unfinished files go out of the folder that they are in, whatever its name is by then."""
    for number, code in ((None, 3), (signal.SIGTERM, 130)):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "out"))
            process = start(LONG.replace("-n 100000", "-n 100000" if number else "-n 100" if SANITIZED else "-n 1000"), folder)
            wait_for_files(folder, process)
            os.rename(os.path.join(folder, "out"), os.path.join(folder, "renamed"))
            if number:
                process.send_signal(number)
            ends(process, code, "")
            assert files(folder) == ["renamed"], files(folder)


def same_process_numbers():
    """Containers: each is process 1 to itself."""
    unshare = ["unshare", "-p", "-f", "--mount-proc"]
    if os.geteuid() != 0 or shutil.which("unshare") is None or subprocess.run([*unshare, "true"]).returncode != 0:
        print("two process namespaces: skipped (they need root and unshare)")
        return
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "out"))
        command = f"run --random --seq 2048 {SHAPE} --out out"
        slow = subprocess.Popen([*unshare, DISTATTN, *command.split(), "--seed", "1", "-n", "8"], cwd=folder)
        time.sleep(0.2)
        fast = [*unshare, DISTATTN, *command.split(), "--seed", "2"]
        assert subprocess.run(fast, cwd=folder).returncode == 0
        with open(os.path.join(folder, "out/o.npy"), "rb") as file:
            finished = file.read()
            assert slow.poll() is None, "the slow run should still compute"
            assert slow.wait(timeout=120) == 0
            file.seek(0)
            assert file.read() == finished, "a finished file was written to"
        assert files(folder) == ["out", "out/lse.npy", "out/o.npy"], files(folder)


def npy(path, tokens):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({tokens}, 2, 16), }}".ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(tokens * 128))


def inputs_that_shrink():
    """While they are read: one line, and no results from what was no longer there."""
    for left in (0, 64 * 1024, 8 * 1024 * 1024 - 4096):
        with tempfile.TemporaryDirectory() as folder:
            for name in "qkv":
                npy(os.path.join(folder, name + ".npy"), 65536)
            command = "run --q q.npy --k k.npy --v v.npy --mask full --window 4,0 --ranks 2 -n 1 --check --out out -q"
            process = start(f"{command} --threads 1", folder)
            deadline = time.monotonic() + 30
            while not os.path.exists(os.path.join(folder, "out")) and process.poll() is None:
                assert time.monotonic() < deadline
            os.truncate(os.path.join(folder, "k.npy"), left)
            errors = process.communicate(timeout=120)[1]
            assert process.returncode == 3, (left, process.returncode, errors)
            assert "k.npy" in errors and errors.count("\n") == 1, errors
            assert files(folder) == ["k.npy", "q.npy", "v.npy"], files(folder)


checks = [signals_end_a_run, signals_end_a_run_that_begins, what_the_caller_ignores, dead_runs_are_cleaned_up,
          planted_links_are_not_followed, folders_that_are_renamed, same_process_numbers]
if not SANITIZED:
    checks += [faults_end_as_faults, limits_end_a_run, inputs_that_shrink]
for check in checks:
    check()
    print(check.__name__, "fine")
