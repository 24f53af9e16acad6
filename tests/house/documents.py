"""The documents say what is true: commands in them run, excerpts are the source, links lead somewhere.

A fence marked `sh` holds commands, one a line. A fence after <!-- from PATH --> quotes that file, one after
<!-- printed by COMMAND --> its output; a line with nothing but … stands for lines left out.
"""

import re
import shlex
import tempfile

from house import BUILD, SOURCE, expect, run_well

# The two commands of the README's first screen are what CI and the test house_quickstart run.
RUN_ELSEWHERE = ("packaging/quickstart.sh", "packaging/test.sh")

FENCE = re.compile(r"^(?:<!-- (?:from (?P<source>\S+)|printed by (?P<command>.*?)) -->\n)?```(?P<language>\w*)\n(?P<body>.*?)^```$", re.M | re.S)

FOLDERS = ("docs", "packaging", "core", "kernels", "backends", "cli")  # tests/data has a text of somebody else's
documents = sorted(SOURCE.glob("*.md")) + [path for folder in FOLDERS for path in sorted((SOURCE / folder).glob("**/*.md"))]
commands = excerpts = links = 0


def check_excerpt(document, source, text, body):
    position = 0
    for part in re.split(r"^\s*…\s*\n", body, flags=re.M):
        found = text.find(part, position)
        expect(found >= 0, f"{document.name} quotes {source} wrongly:\n{part}")
        position = found + len(part)


def output_of(line, folder):
    if shlex.split(line)[0] in RUN_ELSEWHERE:
        return ""
    # Outputs of examples belong in a scratch folder, inputs and the program where they are.
    line = re.sub(r"\bbuild/bin/distattn\b", str(BUILD / "bin/distattn"), line)
    line = re.sub(r"\b(tests/data|docs)/", rf"{SOURCE}/\1/", line)
    return run_well("bash", "-euo", "pipefail", "-c", line, cwd=folder)


for document in documents:
    text = document.read_text()
    for fence in FENCE.finditer(text):
        if fence["source"]:
            check_excerpt(document, fence["source"], (SOURCE / fence["source"]).read_text(), fence["body"])
            excerpts += 1
        if fence["command"]:
            check_excerpt(document, fence["command"], output_of(fence["command"], SOURCE), fence["body"])
            excerpts += 1
        if fence["language"] == "sh":
            with tempfile.TemporaryDirectory() as folder:
                for line in fence["body"].replace("\\\n", "").splitlines():
                    output_of(line, folder)
                    commands += 1
    prose = FENCE.sub("", text)
    named = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", prose, re.M))
    expect(set(re.findall(r"\[(\w+\.hpp)\](?![(:])", prose)) <= set(named), f"{document.name} names a header without its link")
    for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", prose) + list(named.values()):
        expect((document.parent / link).exists(), f"{document.name} links to {link}, which is not there")
        links += 1

first_screen = [fence["body"].split() for fence in FENCE.finditer((SOURCE / "README.md").read_text())][:2]
expect(first_screen == [["packaging/quickstart.sh"], ["packaging/test.sh"]],
       f"the README begins with the commands {first_screen}")
expect(excerpts > 0 and links > 0, "the documents were not read")
print(f"{len(documents)} documents: {commands} commands, {excerpts} excerpts, {links} links")
