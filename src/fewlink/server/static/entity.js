// The panel of one entity: its types, and its facts by relation, each group with more on demand.

import { call } from "./api.js";
import { $, button, element } from "./dom.js";
import { emit } from "./events.js";
import { showNeighbourhood } from "./neighbourhood.js";
import { asSentence, formatCount, plural, shortRelation, withSpaces } from "./text.js";

const FACTS_PER_GROUP = 6; // shown at first
const FACTS_PER_PAGE = 50; // that a group shows more of
const GROUPS_PER_PAGE = 100;

let trail = []; // ids of the entities that led to the shown one, newest last
let shown = null; // the shown entity: {id, name}
let requests = 0;

// A button with the name of an entity that opens its panel.
export const entityButton = (id, name) =>
  button(name, {
    class: "entity",
    title: `Show the facts about ${name}`,
    onclick: (event) => {
      event.stopPropagation();
      openEntity(id);
    },
  });

// An end of a pair, "head" or "tail": a button, then its id if another entity of the graph has the same name.
export const endParts = (pair, end) => [
  entityButton(pair[end], pair[`${end}_name`]),
  pair[`${end}_name_shared`] ? element("small", {}, ` ${pair[end]} `) : null,
];

// Opens the panel, or shows another entity in it, with a way back.
export function openEntity(id) {
  if ($("entity").open && shown) trail.push(shown.id);
  else trail = [];
  $("entity-search").value = "";
  if (!$("entity").open) {
    clearPanel("");
    $("entity").showModal();
  }
  showEntity(id);
}

const facts = (query) => call(`entity?${new URLSearchParams(query)}`);

// The facts about an entity by relation, with as many requests as it takes.
async function allGroups(query) {
  const answer = await facts(query);
  const { relations, relations_in_all: all } = answer;
  for (let added = relations.length; added && relations.length < all;) {
    const page = await facts({ ...query, first_relation: relations.length });
    added = page.relations.length;
    relations.push(...page.relations);
  }
  return answer;
}

async function showEntity(id) {
  const number = ++requests;
  const q = $("entity-search").value.trim();
  try {
    const answer = await allGroups({ id, q, relations: GROUPS_PER_PAGE, count: FACTS_PER_GROUP });
    if (number === requests) showFacts(answer, q);
  } catch (error) {
    if (number === requests) showUnknown(id, error.message);
  }
}

function showUnknown(id, message) {
  clearPanel(id);
  $("entity-facts").textContent = asSentence(message);
}

function clearPanel(title) {
  setShown(null);
  $("entity-title").textContent = title;
  for (const part of ["entity-facts", "entity-edges", "entity-count"]) $(part).replaceChildren();
}

// Sets the shown entity; without one, nothing can be done with it.
function setShown(entity) {
  shown = entity;
  for (const part of ["entity-graph", "entity-ask", "entity-search"]) $(part).hidden = !entity;
  $("entity-back").hidden = !trail.length;
}

function showFacts(answer, q) {
  const { id, name, types, relations, edges_in_all: all, matching } = answer;
  const other = shown?.id !== id;
  setShown({ id, name });
  $("entity-title").textContent = name;
  $("entity-facts").textContent = [
    id === name ? "" : id,
    types.map(withSpaces).join(", "),
    plural(all, "fact"),
  ]
    .filter(Boolean)
    .join(" · ");
  $("entity-edges").replaceChildren(...relations.map((group) => groupSection(id, group, q)));
  $("entity-count").textContent = matching
    ? q && `${formatCount(matching)} of ${plural(all, "fact")}.`
    : "No fact has this text.";
  if (other) $("entity-edges").scrollTop = 0;
}

// The facts with one relation in one direction: the first ones, and a button for more.
function groupSection(id, group, q) {
  const title = withSpaces(shortRelation(group.relation_name));
  const list = element("ul", { class: "ends" });
  const more = button("", { class: "quiet" });
  let count = 0;
  const add = (others) => {
    list.append(...others.map((other) => element("li", {}, entityButton(other.id, other.name))));
    count += others.length;
    more.hidden = count >= group.count;
    more.textContent = `and ${formatCount(group.count - count)} more`;
  };
  more.addEventListener("click", async () => {
    const { relation, inverse } = group;
    const page = { id, q, relation, inverse, first: count, count: FACTS_PER_PAGE };
    try {
      const [before, answer] = [count, await facts(page)];
      add(answer.relations[0].neighbours);
      list.children[before]?.querySelector("button").focus();
    } catch (error) {
      $("entity-count").textContent = error.message;
    }
  });
  add(group.neighbours);
  const words = group.inverse ? `← ${title}` : `${title} →`;
  return element(
    "section",
    {},
    element("h3", {}, words, element("span", { class: "count" }, ` ${formatCount(group.count)}`)),
    list,
    more,
  );
}

let typing = 0;
$("entity-search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => shown && showEntity(shown.id), 150);
});
$("entity-back").addEventListener("click", () => {
  $("entity-search").value = "";
  showEntity(trail.pop());
});
$("entity-graph").addEventListener("click", () => showNeighbourhood(shown.id));
$("entity-ask").addEventListener("click", () => {
  const head = shown;
  $("entity").close();
  emit("head", head);
});
$("entity").addEventListener("close", () => {
  shown = null;
});
