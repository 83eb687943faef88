"""MITRE ATT&CK with one relation hidden: what fewlink makes of three examples of it, with the weights it comes with."""

from pathlib import Path

import numpy as np

from fewlink.data import SPLITS, Benchmark
from fewlink.data.catalogue import attack_graph
from fewlink.prediction import Linker

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

print(f"""
MITRE ATT&CK and CAPEC: {whole.triple_count:,} links between {len(whole.entities):,} groups, tools, techniques, …
Hidden from the model in this demo: which platform a tool runs on ({len(pairs)} links). It was trained on other links
of ATT&CK, never on these. It gets three examples:
""")
for tool, platform in REFERENCES:
    print(f"    {tool} runs on {platform}")
others = [tool for tool in truth if tool not in dict(REFERENCES)]
answers = linker.predict(REFERENCES, others, k=3, candidates="platform")
platforms = len(linker.names.members("platform"))
print(f"\nWhere do other tools run? Its first three answers among {platforms} platforms, best first:\n")
for tool in TOOLS:
    best = []
    for row in (row for row in answers if row.head_name == tool):
        chance = "" if row.probability is None else f" {row.probability:.0%}"
        best.append(f"{row.tail_name}{chance} {'✓' if row.tail_name in truth[tool] else '✗'}")
    print(f"    {tool:12} {' · '.join(best)}")
print("\n    ✓ ATT&CK says so   ✗ ATT&CK does not say so   %: how likely it is, in the model's own estimate")

first = {row.head_name: row.tail_name for row in answers if row.rank < 2}
right = sum(first[tool] in truth[tool] for tool in others)
windows = sum("Windows" in truth[tool] for tool in others)
print(f"\nIts first answer is right for {right} of the {len(others)} other tools. (Always saying Windows: {windows}.)")

print(f"\nWhy {EXPLAINED[0]} on {EXPLAINED[1]}? In the graph:\n")
for path in linker.explain(REFERENCES, *EXPLAINED).paths[:3]:
    steps = [" ".join(step.relation.split()[1:-1]) for step in path.steps]  # "tool uses technique": uses
    hops = (
        f"←{step}— {entity.name}" if hop.inverse else f"—{step}→ {entity.name}"
        for hop, step, entity in zip(path.steps, steps, path.entities[1:], strict=True)
    )
    print(f"    {path.entities[0].name} {' '.join(hops)}")
    print(f"        {path.like} of the {len(REFERENCES)} examples are joined in the same way")

clone = Path(".venv/bin/fewlink").exists()
command = ".venv/bin/fewlink" if clone else "fewlink"
install = ".venv/bin/pip install -c constraints.txt -e '.[serve]'" if clone else "pip install 'fewlink[serve]'"
print(f"""
Ask it yourself, here or on a file of your own links (docs/attack.md):

    {command} ask attack --relation group_uses_tool --head APT38 --explain
    {install}
    {command} serve attack    # then open http://127.0.0.1:8000
""")
