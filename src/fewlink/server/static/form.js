// The form: references, heads and options of a query, remembered while they are typed and read as a request.

import { about, searchEntities, searchTypes } from "./api.js";
import {
  addCompletion,
  chosen,
  distinctName,
  entityNamed,
  fill,
  fullName,
  onPasteLines,
} from "./completion.js";
import { $, announce, button, checkedValue, element } from "./dom.js";
import { on } from "./events.js";
import { requireValue } from "./problem.js";
import { openProject, project, projectPairs } from "./project.js";
import { enteredReferences, referenceInputs, showReferences } from "./references.js";
import { deciding, saveState, state } from "./state.js";
import { capitalized, plural, withSpaces } from "./text.js";
import { goTo } from "./views.js";

const GO = { heads: "Rank tails", tails: "Rank heads", many: "Find pairs" };

const MANY_HINTS = {
  open: "Entities of the same kind.",
  type: "All entities of this type.",
  all: "Entities similar to the references’ heads come first.",
};

const EMPTY_COUNTS = { k: 10, perHead: 3 };

// What the field for a number counts: tails or heads of each entity, or tails of each of many heads.
const countField = () => (state.mode === "many" ? "perHead" : "k");

// The ends of a pair that a question asks about and that answers it.
export const endsOf = (mode) => (mode === "tails" ? ["tail", "head"] : ["head", "tail"]);

// The entities that are asked about: heads to find tails for, or tails to find heads for.
const asked = () => (state.mode === "tails" ? state.tails : state.heads);

// Stores what the fields say.
export function readForm() {
  Object.assign(state, {
    references: enteredReferences(),
    relation: $("relation").value,
    mode: checkedValue("mode"),
    many: $("many").value,
    type: chosen($("type")),
    candidates: $("candidates").value,
    candidatesType: chosen($("candidates-type")),
    [countField()]: Number($("k").value) || EMPTY_COUNTS[countField()],
    withKnown: $("with-known").checked,
    constraints: [...document.querySelectorAll("#constraints input:checked")].map(
      (input) => input.value,
    ),
  });
  saveState();
}

// What the fields ask, to compare one question with another.
export function questionText() {
  const { references, relation, mode, heads, tails, many, type, candidates, candidatesType } =
    state;
  const ids = [references, heads, tails, type, candidatesType].map((value) =>
    JSON.stringify(value, (key, inner) => (key === "name" || key === "hint" ? undefined : inner)),
  );
  return JSON.stringify([ids, relation.trim(), mode, many, candidates, state.constraints]);
}

// Fills the fields with what is stored.
export function showForm() {
  showReferences(state.references);
  showRelation();
  fill($("type"), state.type);
  fill($("candidates-type"), state.candidatesType);
  $("candidates").value = state.candidates;
  $("with-known").checked = state.withKnown;
  $("many").value = state.many;
  for (const input of document.querySelectorAll("#constraints input")) {
    input.checked = state.constraints.includes(input.value);
  }
  for (const name of ["mode", "view", "order"]) {
    const input = document.querySelector(`input[name=${name}][value=${state[name]}]`);
    if (input) input.checked = true;
  }
  arrange();
  showAsked();
}

// Fills the field of the relation: in a project without another one, with its own if the graph has it.
function showRelation() {
  $("relation").value = state.relation;
  if (project && !state.relation) $("relation").value = relationInGraph() ?? "";
}

// Fills the fields whose meaning depends on what is to be found.
function showAsked() {
  $("k").value = state[countField()];
  showHeads();
}

// Shows the fields that belong to the choices made.
export function arrange() {
  const mode = checkedValue("mode");
  const [end, found] = endsOf(mode);
  const withoutTypes = about !== null && !about.graph.types;
  for (const select of [$("many"), $("candidates")]) {
    select.querySelector("[value=type]").disabled = !about?.graph.types;
    if (withoutTypes && select.value === "type") select.value = "open";
  }
  $("chosen-heads").hidden = mode === "many";
  $("heads").ariaLabel = capitalized(`${end}s`);
  $("head").ariaLabel = $("head").placeholder = `Add a ${end} to find ${found}s for`;
  $("candidates-label").textContent = `Candidate ${found}s`;
  $("candidates").options[0].textContent = `similar to the references’ ${found}s`;
  $("many-heads").hidden = mode !== "many";
  $("type-field").hidden = $("many").value !== "type";
  $("many-hint").textContent =
    `${MANY_HINTS[$("many").value]} The best pairs so far are listed while the rest are ranked.`;
  $("candidates-type-field").hidden = $("candidates").value !== "type";
  $("list-view").hidden = deciding();
  $("decide-view").hidden = !deciding();
  $("rank").textContent = deciding() ? "Suggest pairs" : GO[mode];
  $("list-options").hidden = deciding();
  $("k-label").textContent = `${capitalized(found)}s per ${end}`;
  $("relation-label").textContent = project
    ? "Relation in the graph (optional)"
    : "Name of the relation";
  const [first] = about ? Object.values(about.relations).flat() : [];
  $("relation").placeholder = first ? `for example, ${withSpaces(first)}` : "";
  $("relation-hint").hidden = !relationInGraph();
  $("references-hint").textContent = project
    ? "Pairs for which the relation holds. Accepted pairs count as well. Add a pair:"
    : "Pairs for which the relation holds. You can paste two columns.";
}

// Opens a project from a list, without the example that the form may show. If no entity is asked about, the question is
// which pairs are missing.
export async function chooseProject(number) {
  if (state.example) Object.assign(state, { references: [], heads: [], example: false });
  if (number !== null && !asked().length) state.mode = "many";
  showForm();
  await openProject(number);
  showForm();
}

// The name of the relation as the user wrote it.
export const relationName = () =>
  project ? project.name : $("relation").value.trim() || "related to";

// The relation of the graph with the name in the field, or with the name of the project; null if there is none.
export function relationInGraph() {
  const name = $("relation").value.trim() || project?.name;
  if (!about || !name) return null;
  const names = Object.values(about.relations).flat();
  if (names.includes(name)) return name;
  const simple = (text) =>
    withSpaces(text.replace(/^concept:(?:.*:)?/, ""))
      .trim()
      .toLowerCase();
  const same = [...new Set(names.filter((known) => simple(known) === simple(name)))];
  return same.length === 1 ? same[0] : null;
}

// Adds an entity to those that are asked about.
function addHead(entity) {
  if (asked().some((one) => one.id === entity.id)) return;
  asked().push(entity);
  headsChanged();
}

// Shows the entities that are asked about, and tells the form that they are others now.
function headsChanged() {
  showHeads();
  $("heads").dispatchEvent(new Event("input", { bubbles: true }));
}

function showHeads() {
  $("heads").replaceChildren(
    ...asked().map((head, i) => {
      const onclick = () => {
        asked().splice(i, 1);
        headsChanged();
        $("head").focus();
      };
      const removal = { class: "remove", "aria-label": `Remove ${head.name}`, onclick };
      const name = distinctName(head, asked());
      return element("li", { title: fullName(head) }, name, button("×", removal));
    }),
  );
}

// The references and rejected pairs that a ranking reads, and the rows of the form that they come from.
function readReferences() {
  const rows = referenceInputs().filter((inputs) => inputs.some(chosen));
  for (const input of rows.flat()) {
    if (!chosen(input)) requireValue("A reference needs a head and a tail.", input);
  }
  const pairs = project ? projectPairs() : {};
  if (!rows.length && !pairs.references && !relationInGraph()) {
    requireValue("Enter at least one reference.", referenceInputs()[0][0]);
  }
  if (project) return { rows, pairs: { ...pairs, project: project.number } };
  const references = rows.map((inputs) => inputs.map((input) => chosen(input).id));
  return { rows, pairs: references.length ? { references } : {} };
}

const headType = () => (state.type || requireValue("Enter the type of the heads.", $("type"))).id;

const tailType = () =>
  (state.candidatesType || requireValue("Enter the type of the tails.", $("candidates-type"))).id;

// Fields of a request that do not depend on the view: candidates, relation and constraints.
export function readOptions() {
  const relation = relationInGraph();
  return {
    ...(state.candidates === "all" ? { candidates: "all" } : {}),
    ...(state.candidates === "type" ? { candidates: tailType() } : {}),
    ...(relation ? { relation } : {}),
    ...(state.constraints.length ? { constraints: state.constraints } : {}),
  };
}

// What a request asks about: the heads or tails in the form, or all heads of a kind.
export function readHeads() {
  if (state.mode !== "many") return { [state.mode]: asked().map((one) => one.id) };
  return { heads_of_type: state.many === "type" ? headType() : state.many };
}

// The body of a request for a ranking, and the rows of its references, to show errors in.
export function readQuery() {
  const { rows, pairs } = readReferences();
  const typed = chosen($("head"));
  if (typed) {
    addHead(typed);
    fill($("head"), null);
  }
  readForm();
  if (state.mode !== "many" && !asked().length) {
    const [end, found] = endsOf(state.mode);
    requireValue(`Enter a ${end} to find ${found}s for.`, $("head"));
  }
  const body = {
    ...pairs,
    ...(state.mode === "many" ? {} : { k: state.k }),
    exclude_known: !state.withKnown,
    ...readHeads(),
    ...readOptions(),
  };
  return { body, rows };
}

// Where to show an error of the server about a field of the request; undefined if no field is its own.
export function placeOf(error, rows = []) {
  const [name, first, second] = (error.field || "").split(".");
  if (["heads", "tails"].includes(name) && $("heads").children[first]) {
    const replace = (entity) => {
      asked()[first] = entity;
      headsChanged();
    };
    return { field: $("heads").children[first], replace };
  }
  const fields = {
    references: rows[first]?.[second || 0],
    heads: $("head"),
    tails: $("head"),
    per_head: $("k"),
    heads_of_type: $("type"),
    candidates: $("candidates-type"),
    k: $("k"),
    relation: $("relation"),
  };
  const field = fields[name];
  return field && { field, replace: (entity) => fill(field, entity) };
}

addCompletion($("head"), searchEntities, (entity) => {
  fill($("head"), null);
  addHead(entity);
});
onPasteLines($("head"), (lines) => {
  for (const line of lines) addHead(entityNamed(line.trim()));
  announce(`${plural(lines.length, state.mode === "tails" ? "tail" : "head")} pasted.`);
});
for (const input of document.querySelectorAll("input[name=mode]")) {
  input.addEventListener("input", () => {
    state.mode = input.value;
    showAsked();
  });
}
for (const id of ["type", "candidates-type"]) {
  addCompletion($(id), searchTypes, () => {
    arrange();
    readForm();
  });
}
on("head", (entity) => {
  state.mode = "heads";
  showForm();
  addHead(entity);
  goTo("work");
});
on("project", () => {
  showRelation();
  arrange();
});
