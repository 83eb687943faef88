// The start page: the relations of the graph, a search for entities, and the projects.

import { about, call, searchEntities } from "./api.js";
import { addCompletion, fill } from "./completion.js";
import { $, attempt, button, element } from "./dom.js";
import { entityButton, openEntity } from "./entity.js";
import { on } from "./events.js";
import { chooseProject, showForm } from "./form.js";
import { openProject, projects } from "./project.js";
import { referenceInputs } from "./references.js";
import { saveState, state } from "./state.js";
import {
  formatCount,
  formatPercent,
  plural,
  shortened,
  shortRelation,
  withSpaces,
} from "./text.js";
import { goTo } from "./views.js";

const PAGE = 25; // relations

let listed = 0;
let requests = 0;

// Lists the first relations, or `more` after those that are listed.
async function listRelations(more) {
  const number = ++requests;
  const first = more ? listed : 0;
  const query = { q: $("relations-filter").value.trim(), order: $("relations-order").value };
  const answer = await call(`relations?${new URLSearchParams({ ...query, first, count: PAGE })}`);
  if (number !== requests) return;
  const items = answer.relations.map(relationItem);
  listed = first + items.length;
  if (more) $("relations-list").append(...items);
  else $("relations-list").replaceChildren(...items);
  $("relations-count").textContent = answer.matching
    ? `${formatCount(listed)} of ${plural(answer.matching, "relation")}`
    : "No relation has this text in its name.";
  $("relations-more").hidden = listed >= answer.matching;
  if (more) items[0]?.querySelector("button").focus();
}

export const showRelations = attempt("relations-problem", () => listRelations(false));

function relationItem(facts) {
  const { name, split, pairs, example } = facts;
  const ask = button(withSpaces(shortRelation(name)), {
    class: "entity",
    title: "Ask about this relation",
    onclick: attempted(() => askAbout(facts)),
  });
  const complete = button("Complete this", {
    class: "quiet complete",
    "aria-label": `Complete ${withSpaces(name)}`,
    onclick: attempted(() => completeRelation(facts)),
  });
  const { head, tail } = example;
  return element(
    "li",
    {},
    element(
      "div",
      { class: "relation-name" },
      element("h3", {}, ask),
      split ? element("span", { class: "badge" }, `${split} relation`) : null,
      element(
        "p",
        { class: "hint" },
        `${plural(pairs, "pair")}, such as `,
        entityButton(head.id, shortened(head.name)),
        " → ",
        entityButton(tail.id, shortened(tail.name)),
      ),
    ),
    completeness(facts),
    complete,
  );
}

// How many entities of the heads' kind have a tail.
function completeness({ heads, of_kind: all, type }) {
  const share = heads / all;
  const bar = element("i", { "--share": `${(100 * share).toFixed(1)}%` });
  return element(
    "p",
    { class: "hint share-of-heads" },
    element("span", { class: "bar", "aria-hidden": "true" }, bar),
    `${formatPercent(share)} of ${formatCount(all)} have a tail`,
    type ? element("small", {}, withSpaces(type)) : null,
  );
}

const nameForForm = ({ relation, name, split }) => (split ? relation : name);

const attempted = (action) => attempt("relations-problem", action);

// Fills the form with a relation, in its project if it has one, and shows it.
async function prepare(facts, query) {
  const name = nameForForm(facts);
  const known = Object.values(about.relations).flat();
  if (!known.includes(name)) about.relations.graph.push(name); // the server lists the first ones only
  const own = projects.find((one) => [name, facts.relation].includes(one.name));
  await openProject(own ? own.number : null);
  Object.assign(state, { references: [], heads: [], relation: name, view: "list", ...query });
  showForm();
  saveState();
  goTo("work");
}

// Starts to look for all pairs that the relation lacks.
async function completeRelation(facts) {
  await prepare(facts, { mode: "many", many: "open" });
  $("query").requestSubmit();
}

async function askAbout(facts) {
  await prepare(facts, { mode: "heads" });
  $("head").focus();
}

async function askNewQuestion() {
  await openProject(null);
  Object.assign(state, { references: [], heads: [], relation: "", mode: "heads", view: "list" });
  showForm();
  saveState();
  goTo("work");
  referenceInputs()[0][0].focus();
}

export function showProjects() {
  $("start-projects").hidden = !projects.length;
  $("start-projects-list").replaceChildren(
    ...projects.map(({ number, name, accepted, rejected }) => {
      const onclick = attempted(async () => {
        await chooseProject(number);
        goTo("work");
      });
      return element(
        "li",
        {},
        button(name, { class: "entity", onclick }),
        element(
          "small",
          {},
          ` ${formatCount(accepted)} accepted, ${formatCount(rejected)} rejected`,
        ),
      );
    }),
  );
}

let typing = 0;
addCompletion($("find"), searchEntities, (entity) => {
  fill($("find"), null);
  openEntity(entity.id);
});
$("relations-filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(showRelations, 150);
});
$("relations-order").addEventListener("change", showRelations);
$("relations-more").addEventListener(
  "click",
  attempted(() => listRelations(true)),
);
$("new-question").addEventListener("click", attempted(askNewQuestion));
$("start-example").addEventListener("click", () => $("example").click());
on("project", showProjects);
