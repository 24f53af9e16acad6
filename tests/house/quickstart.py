"""The README's first command, as it stands."""

from house import BUILD, SOURCE, expect, run_well, skip

if BUILD != SOURCE / "build":
    skip(f"the quickstart builds into build/, this build is {BUILD.name}/")
output = run_well(SOURCE / "packaging/quickstart.sh")
for word in ("step 4", "sent", "proved", "against float64", ": ok"):
    expect(word in output, f"the quickstart does not show '{word}':\n{output}")
expect("<svg" in (BUILD / "timeline.svg").read_text(), "the quickstart draws no timeline")
