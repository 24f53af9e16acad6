"""The programs that the documents quote run."""

import pathlib
import subprocess
import sys
import unittest

EXAMPLES = pathlib.Path(__file__).with_name("examples")


def lines_of(program):
    done = subprocess.run([sys.executable, EXAMPLES / program], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0 or done.stderr:
        raise AssertionError(f"exit {done.returncode}: {done.stderr}")
    return done.stdout.splitlines()


class Programs(unittest.TestCase):
    def test_one_call(self):
        self.assertEqual(lines_of("one_call.py"), ["(1, 4096, 8, 64)"])

    def test_arrays(self):
        lines = lines_of("arrays.py")
        self.assertRegex(lines[0], r"^largest difference between 1 rank and 4: \de-0[67]$")
        self.assertEqual(len(lines), 1 + 4 + 4)
        self.assertEqual(lines[-1], "rank 3: dq (1, 1024, 8, 64), dk (1, 1024, 2, 64), dv (1, 1024, 2, 64)")


if __name__ == "__main__":
    unittest.main()
