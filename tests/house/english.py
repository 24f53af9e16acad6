"""Public headers, documents and help are free of the turns of phrase that readers stumble over.

Only comments and prose are looked at; a fence of code in a document is not.
"""

import os
import re
import subprocess

from house import BUILD, SOURCE, expect, fail

# (pattern, what to write instead). Each is a habit of this house that native readers have to read twice.
TICS = (
    (r"\bso many\b", "'N', or 'this many'"),
    (r"\bwhere there (?:is|are)\b", "'if', or 'if there is'"),
    (r"(?:[,;]| or| and) else\b(?! if)", "'otherwise'"),
    (r"\bbeside\b", "'next to', 'in addition to', 'concurrently with'"),
    (r"\bside by side\b", "'concurrently', 'adjacent'"),
    (r"(?:^|[.:;] )Who(?:ever)? (?!owns|has)", "name the subject: 'a program that …'"),
    (r"\bhad better\b", "'should'"),
    (r"\bfor good\b", "'permanently', or leave it out"),
    (r"\blets? go\b", "'releases'"),
    (r"\b[Nn]othing of (?:it|its|theirs|them)\b", "name the noun"),
    (r"\bwhat of (?:it|a|the|them)\b", "'which part of'"),
    (r"\bas (?:often|long) as one likes\b|\bif one likes\b", "'any number of times', 'optionally'"),
)
# A sentence or a trailing comment that begins with "of" and names nothing that could be of something.
FRAGMENT = (r"^(?:By \w+: )?[Oo]f (?:a|an|the|its|their|those|these|one|all|each|every|keys|values|queries)\b[^,]*$",
            "a noun first: 'bytes of …', 'the rank's …'")

# An error's advice stands behind a colon: "problem (why): suggestion".
ADVICE = (r"\) (?:add|choose|correct|give|install|its|leave|let|make|name|pass|raise|see|set|start|take|use|write)\b",
          "a colon before the advice")

HEADERS = sorted((SOURCE / "core/include/distattn").glob("*.h*"))
DOCUMENTS = [path for path in sorted(SOURCE.glob("*.md")) + sorted((SOURCE / "docs").glob("*.md"))
             if path.name != "CHANGELOG.md"]


def comments(text):
    """(line number, text) of every comment of a header: whole blocks joined, trailing ones by themselves."""
    block, first = [], 0
    for number, line in enumerate(text.split("\n") + [""], 1):
        whole = re.match(r"\s*(?:///?<?|/\*\*|\*)(?!/) ?(.*?)(?:\*/)?$", line)
        if whole:
            first = first or number
            block.append(whole[1].strip())
            continue
        if block:
            yield first, " ".join(block)
            block, first = [], 0
        trailing = re.search(r"\S.*?(?:///<|/\*\*<|//) (.*?)(?: \*/)?$", line)
        if trailing:
            yield number, trailing[1]


def prose(text):
    """(line number, text) of the paragraphs of a document."""
    text = re.sub(r"^```.*?^```$", lambda fence: "\n" * fence.group().count("\n"), text, flags=re.M | re.S)
    number = 1
    for paragraph in re.split(r"(\n\n+)", text):
        yield number, " ".join(re.sub(r"`[^`]*`", "", paragraph).split())
        number += paragraph.count("\n")


def literals(text):
    """(line number, text) of the texts of a source, adjacent ones joined."""
    for found in re.finditer(r'"(?:[^"\\\n]|\\.)*"(?:\s*\n\s*"(?:[^"\\\n]|\\.)*")*', text):
        yield text.count("\n", 0, found.start()) + 1, re.sub(r'"\s*\n\s*"', "", found.group())


def complaints(where, passages, patterns):
    for number, passage in passages:
        for pattern, advice in patterns:
            for found in re.finditer(pattern, passage):
                yield f"{where}:{number}: '{found.group().strip()[:60]}' (write {advice})"


def help_texts():
    command = BUILD / "bin/distattn"
    if not os.access(command, os.X_OK):
        return
    root = subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout
    for name in ["", *re.findall(r"^  (\w+) ", root, re.M)]:
        text = subprocess.run([command, *name.split(), "--help-all"], capture_output=True, text=True, check=True).stdout
        yield f"distattn {name} --help-all", text


def check_the_checks():
    """Each pattern finds what it is for, and leaves good sentences alone."""
    header = "struct A {\n  int n;  ///< of the rank\n  /// Runs beside the others. Who asks\n  /// waits, or else throws.\n};\n"
    found = list(complaints("a.hpp", comments(header), (*TICS, FRAGMENT)))
    expect(len(found) == 4, f"found {found}")
    source = 'refuse("no " + name + " (there are "\n    "two) choose one");\n'
    expect(list(complaints("a.cpp", literals(source), (ADVICE,))), "advice without a colon is not found")
    good = "/// Of 2P blocks, rank p owns two. Ranks next to each other. The thread who owns it. Everything else.\n"
    expect(not list(complaints("a.hpp", comments(good), (*TICS, FRAGMENT))), "a good sentence is refused")


check_the_checks()
passages = 0
found = []
for path in HEADERS:
    text = path.read_text()
    passages += len(list(comments(text)))
    found += complaints(path.name, comments(text), (*TICS, FRAGMENT))
for path in DOCUMENTS:
    text = path.read_text()
    passages += len(list(prose(text)))
    found += complaints(path.name, prose(text), TICS)
for room in ("core", "backends", "kernels", "cli"):
    for path in sorted((SOURCE / room).rglob("*.[ch]pp")):
        found += complaints(path.relative_to(SOURCE), literals(path.read_text()), (ADVICE,))
for where, text in help_texts():
    found += complaints(where, [(1, " ".join(text.split()))], TICS)
for complaint in found:
    print(complaint)
if found:
    fail(f"{len(found)} passages that read badly")
print(f"{passages} passages of {len(HEADERS)} headers and {len(DOCUMENTS)} documents")
