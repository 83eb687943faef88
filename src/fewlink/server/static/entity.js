// The panel of one entity: its types and its edges, searched and some at a time.

const EDGES = 20; // of one page

let looked = []; // entities that led to the one shown, newest last
let panel = null; // the entity shown: its id and the first edge
let lookTurn = 0;

const entityButton = (id, name) => make("button", {type: "button", class: "entity", title: `Edges of ${name}`, onclick: event => { event.stopPropagation(); openEntity(id); }}, name);

function openEntity(id) {
  if ($("entity").open && panel) looked.push(panel.id);
  else looked = [];
  $("entity-q").value = "";
  showEntity(id, 0);
  if (!$("entity").open) $("entity").showModal();
}

async function showEntity(id, first) {
  const turn = ++lookTurn;
  panel = {id, first};
  try {
    const facts = await call(`entity?${new URLSearchParams({id, q: $("entity-q").value.trim(), first, count: EDGES})}`);
    if (turn !== lookTurn) return;
    $("entity-title").textContent = facts.name;
    $("entity-facts").textContent = [facts.id === facts.name ? "" : facts.id, facts.types.map(kind => kind.replaceAll("_", " ")).join(", "), plural(facts.edges_in_all, "edge")].filter(Boolean).join(" · ");
    $("entity-edges").replaceChildren(...facts.edges.map(edge => edgeItem(facts.name, edge)));
    const last = first + facts.edges.length;
    $("entity-count").textContent = facts.matching ? `${(first + 1).toLocaleString("en")} to ${last.toLocaleString("en")} of ${facts.matching.toLocaleString("en")}` : "No edge has this text.";
    $("entity-before").disabled = first === 0;
    $("entity-after").disabled = last >= facts.matching;
    $("entity-back").hidden = !looked.length;
  } catch (error) {
    if (turn === lookTurn) $("entity-count").textContent = error.message;
  }
}

function edgeItem(name, {relation, inverse, other}) {
  const words = brief(relation), end = entityButton(other.id, other.name), self = make("span", {class: "sr"}, `${name} `);
  return make("li", {}, ...(inverse ? [end, make("em", {}, ` —${words}→ `), "this"] : [self, make("em", {}, `—${words}→ `), end]));
}

let typing = 0;
$("entity-q").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => showEntity(panel.id, 0), 150);
});
$("entity-before").addEventListener("click", () => showEntity(panel.id, Math.max(0, panel.first - EDGES)));
$("entity-after").addEventListener("click", () => showEntity(panel.id, panel.first + EDGES));
$("entity-back").addEventListener("click", () => { $("entity-q").value = ""; showEntity(looked.pop(), 0); });
$("entity").addEventListener("close", () => { panel = null; });
