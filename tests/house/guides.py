"""The guides under docs say what the source says: error texts, environment variables, and where the pages are."""

import re

from house import SOURCE, expect

CODE = [path for room in ("core", "backends", "kernels", "cli") for path in sorted((SOURCE / room).rglob("*.[ch]pp"))]
# One text as the program prints it: adjacent literals joined, quotes as they are.
TEXTS = {path: re.sub(r'"\s*\n\s*"', "", path.read_text()).replace('\\"', '"') for path in CODE}
PLACES = r"\{[^{}]*\}|\"\s*\+.*?\+\s*\""  # where a text has a value


def is_printed(quoted, text):
    """Whether a literal of `text` reads as `quoted`, in which … stands for values."""
    pattern = re.escape(quoted).replace("…", rf"(?:{PLACES}|[\w ,;:'-])*?")
    return re.search(pattern, text) is not None


def check_troubleshooting():
    document = (SOURCE / "docs/troubleshooting.md").read_text()
    quotes = re.findall(r"^### `(.*)`$", document, re.M)
    expect(len(quotes) > 20, "docs/troubleshooting.md quotes no errors")
    for quoted in quotes:
        expect(any(is_printed(quoted, text) for text in TEXTS.values()),
               f"docs/troubleshooting.md explains an error that nothing prints: {quoted}")
    return len(quotes)


def check_variables():
    """Every variable of our own that code reads, or that it names in an error, is on the page; and no other of ours is."""
    read = {name for text in TEXTS.values() for name in re.findall(r'"(DISTATTN_[A-Z]+)"', text)}
    named = {name for text in TEXTS.values() for name in re.findall(r'"((?:UCX|NCCL|XDG)_[A-Z_]+)"', text)}
    told = set(re.findall(r"^\| `([A-Z]+_[A-Z_]+)", (SOURCE / "docs/tuning.md").read_text(), re.M))
    expect(read == {name for name in told if name.startswith("DISTATTN_")},
           f"docs/tuning.md has {sorted(told)}, the program reads {sorted(read)}")
    expect(named <= told, f"docs/tuning.md lacks {sorted(named - told)}, which the program sets or reads")
    return len(told)


def check_pages():
    """The README stays a page that leads to the others, and CONTRIBUTING has an example of all that is added often."""
    readme, contributing = (SOURCE / "README.md").read_text(), (SOURCE / "CONTRIBUTING.md").read_text()
    lines = readme.count("\n")
    expect(lines <= 130, f"README.md has {lines} lines (at most 130): move what is not needed at first sight to docs")
    for page in sorted((SOURCE / "docs").glob("*.md")):
        expect(f"(docs/{page.name}" in readme, f"README.md leads nobody to docs/{page.name}")
    for what in ("schedule", "mask", "kernel", "feature", "option", "device", "backend"):
        expect(re.search(rf"^## Adding an? {what}\b", contributing, re.M), f"CONTRIBUTING.md does not add a {what}")


quotes = check_troubleshooting()
check_pages()
variables = check_variables()
expect(not is_printed("rank … is late", 'fmt::format("rank {} is gone", rank)'), "any error would do")
expect(is_printed("rank … is gone (", 'fmt::format("rank {} is gone ({})", rank)'), "no error would do")
print(f"{quotes} errors, {variables} variables")
