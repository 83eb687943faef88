"""MITRE ATT&CK with one kind of fact hidden: what fewlink makes of three examples of it, without any training."""

from pathlib import Path

import numpy as np

from fewlink.linker import Linker
from fewlink.linker.predictions import percent
from fewlink.tasks import SPLITS, Benchmark
from fewlink.tasks.catalogue import attack_graph

RELATION = "tool_runs_on_platform"
REFERENCES = [("Mimikatz", "Windows"), ("FlexiSpy", "Android"), ("ROADTools", "Identity Provider")]
TOOLS = ["Pacu", "MimiPenguin", "Peirates", "Ruler", "PsExec"]
EXPLAINED = ("Pacu", "IaaS")

whole = attack_graph()
relation = whole.relations.find(RELATION)
pairs = whole.triples()[whole.triples()[:, 1] == relation][:, [0, 2]]
truth: dict[str, set[str]] = {}
for tool, platform in pairs.tolist():
    truth.setdefault(whole.name(tool), set()).add(whole.name(platform))
graph = whole.without(np.array([relation]))
linker = Linker.shipped(Benchmark("attack", graph, {split: [] for split in SPLITS}))

facts, things = f"{whole.triple_count:,}", f"{len(whole.entities):,}"
print(f"""
MITRE ATT&CK and CAPEC come with fewlink: {facts} facts about {things} threat groups, tools, techniques, platforms, …

Suppose ATT&CK did not say which platforms a tool runs on. Those {len(pairs)} facts are hidden here, and fewlink was
never trained on them. It sees the rest of ATT&CK, and three examples of what is missing:
""")
for tool, platform in REFERENCES:
    print(f"    {tool} runs on {platform}")
others = [tool for tool in truth if tool not in dict(REFERENCES)]
answers = linker.predict(REFERENCES, others, k=3, candidates="platform")
platforms = len(linker.names.members("platform"))
print(f"\nWhere do other tools run? The first three answers, out of {platforms} platforms:\n")
rows = [["tool", "  first answer", "  second", "  third"]]
for tool in TOOLS:
    cells = [tool]
    for row in (row for row in answers if row.head_name == tool):
        chance = "" if row.probability is None else f" {percent(row.probability)}"
        cells.append(f"{'✓' if row.tail_name in truth[tool] else '✗'} {row.tail_name}{chance}")
    rows.append(cells)
widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
for cells in rows:
    print("    " + "   ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
print("\n    ✓ ATT&CK says so   ✗ ATT&CK does not say so   %: how likely fewlink thinks it is")

first = {row.head_name: row.tail_name for row in answers if row.rank < 2}
right = sum(first[tool] in truth[tool] for tool in others)
windows = sum("Windows" in truth[tool] for tool in others)
print(f"\nThe first answer is right for {right} of the {len(others)} other tools.")
print(f"Saying Windows each time would be right for {windows}.")

print(f"\nWhy does it say that {EXPLAINED[0]} runs on {EXPLAINED[1]}? Because of these facts in ATT&CK:\n")
paths = linker.explain(REFERENCES, *EXPLAINED).paths
examples = max(path.alike or 0 for path in paths)
for path in [path for path in paths if path.alike == examples][:3]:
    print(f"    {path}")
print(f"\n    Chains like these also lead from {examples} of the {len(REFERENCES)} examples to their platforms.")

clone = Path(".venv/bin/fewlink").exists()
command = ".venv/bin/fewlink" if clone else "fewlink"
install = ".venv/bin/pip install -c constraints.txt -e '.[serve]'" if clone else "pip install 'fewlink[serve]'"
print(f"""
What next?

    Which tools may APT38 use that ATT&CK does not list?
        {command} ask attack --relation group_uses_tool --head APT38 --explain
    Ask in your browser, and accept or reject each answer:
        {install}
        {command} serve attack              # then open http://127.0.0.1:8000
    The same for facts of your own: a file with lines such as APT38, uses, PsExec, with tabs in place of commas
        {command} serve my-facts.tsv
""")
