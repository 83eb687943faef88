// The dialog about one entity: its types and its edges, with a search and pages of edges.

import { call } from "./api.js";
import { $, element } from "./dom.js";
import { showNeighbourhood } from "./neighbourhood.js";
import { formatCount, plural, shortRelation, withSpaces } from "./text.js";

const EDGES_PER_PAGE = 20;

let trail = []; // ids of the entities that led to the shown one, newest last
let shown = null; // {id, first}: the shown entity and its first listed edge
let requests = 0;

// A button with the name of an entity that opens its dialog.
export const entityButton = (id, name) =>
  element(
    "button",
    {
      type: "button",
      class: "entity",
      title: `Show the edges of ${name}`,
      onclick: (event) => {
        event.stopPropagation();
        openEntity(id);
      },
    },
    name,
  );

function openEntity(id) {
  if ($("entity").open && shown) trail.push(shown.id);
  else trail = [];
  $("entity-search").value = "";
  showEntity(id, 0);
  if (!$("entity").open) $("entity").showModal();
}

async function showEntity(id, first) {
  const number = ++requests;
  shown = { id, first };
  const query = { id, q: $("entity-search").value.trim(), first, count: EDGES_PER_PAGE };
  try {
    const facts = await call(`entity?${new URLSearchParams(query)}`);
    if (number === requests) showFacts(facts, first);
  } catch (error) {
    if (number === requests) $("entity-count").textContent = error.message;
  }
}

function showFacts(facts, first) {
  const last = first + facts.edges.length;
  const id = facts.id === facts.name ? "" : facts.id;
  const types = facts.types.map(withSpaces).join(", ");
  $("entity-title").textContent = facts.name;
  $("entity-facts").textContent = [id, types, plural(facts.edges_in_all, "edge")]
    .filter(Boolean)
    .join(" · ");
  $("entity-edges").replaceChildren(...facts.edges.map((edge) => edgeItem(facts.name, edge)));
  $("entity-count").textContent = facts.matching
    ? `${formatCount(first + 1)} to ${formatCount(last)} of ${formatCount(facts.matching)}`
    : "No edge contains this text.";
  $("entity-previous").disabled = first === 0;
  $("entity-next").disabled = last >= facts.matching;
  $("entity-back").hidden = !trail.length;
}

function edgeItem(name, { relation, inverse, other }) {
  const arrow = element("em", {}, ` —${shortRelation(relation)}→ `);
  const end = entityButton(other.id, other.name);
  if (inverse) return element("li", {}, end, arrow, name);
  return element("li", {}, name, arrow, end);
}

let typing = 0;
$("entity-search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => showEntity(shown.id, 0), 150);
});
$("entity-previous").addEventListener("click", () =>
  showEntity(shown.id, Math.max(0, shown.first - EDGES_PER_PAGE)),
);
$("entity-next").addEventListener("click", () =>
  showEntity(shown.id, shown.first + EDGES_PER_PAGE),
);
$("entity-graph").addEventListener("click", () => showNeighbourhood(shown.id));
$("entity-back").addEventListener("click", () => {
  $("entity-search").value = "";
  showEntity(trail.pop(), 0);
});
$("entity").addEventListener("close", () => {
  shown = null;
});
