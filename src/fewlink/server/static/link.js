// Links to a query: the project or the references, and the heads, in the fragment of the address after #ask.

import { about, call, Problem } from "./api.js";
import { entityNamed } from "./completion.js";
import { $, announce } from "./dom.js";
import { readForm, showForm } from "./form.js";
import { showProblem } from "./problem.js";
import { openProject, project } from "./project.js";
import { completeReferences } from "./references.js";
import { deciding, state } from "./state.js";

const PREFIX = "#ask&";
const MAX_ENTITIES = 200;

export const isLink = () => location.hash.startsWith(PREFIX);

const withoutFragment = () => location.href.split("#")[0];
const withoutQuery = () => `${withoutFragment()}#ask`;

function linkToQuery() {
  readForm();
  const fields = new URLSearchParams();
  const ids = (entities) => entities.map((entity) => entity.id);
  if (project) fields.set("project", project.number);
  else fields.set("references", JSON.stringify(completeReferences().map(ids)));
  if (state.mode !== "many") fields.set(state.mode, JSON.stringify(ids(state[state.mode])));
  else fields.set("many", state.many === "type" ? `type:${state.type?.id ?? ""}` : state.many);
  if (!project && state.relation.trim()) fields.set("relation", state.relation.trim());
  if (deciding()) fields.set("view", "decide");
  return `${withoutFragment()}${PREFIX}${fields}`;
}

async function copyLink() {
  const link = linkToQuery();
  history.replaceState(null, "", link);
  try {
    await navigator.clipboard.writeText(link);
    announce("Link copied.");
  } catch {
    announce("The link is in the address bar: copy it from there.");
  }
}

// Removes the link from the address once the form says something else.
function dropLink() {
  if (isLink()) history.replaceState(null, "", withoutQuery());
}

// An entity with its name; of an unknown id, the id, which the server then reports.
async function entityById(id) {
  try {
    const { name } = await call(`entity?${new URLSearchParams({ id, count: 1 })}`);
    return { id, name };
  } catch {
    return entityNamed(id);
  }
}

const entitiesById = (ids) => Promise.all(ids.slice(0, MAX_ENTITIES).map(entityById));

// Runs the query of the link in the address.
export async function openLink() {
  const fields = new URLSearchParams(location.hash.slice(PREFIX.length));
  const listOf = (name) => JSON.parse(fields.get(name) || "[]");
  const [many, type] = (fields.get("many") || "").split(/:(.*)/s);
  try {
    await openProject(Number(fields.get("project")) || null);
    Object.assign(state, {
      references: await Promise.all(listOf("references").slice(0, MAX_ENTITIES).map(entitiesById)),
      heads: await entitiesById(listOf("heads")),
      relation: fields.get("relation") || "",
      tails: await entitiesById(listOf("tails")),
      mode: many ? "many" : fields.has("tails") ? "tails" : "heads",
      many: many || "open",
      type: type ? entityNamed(type) : null,
      view: fields.get("view") === "decide" ? "decide" : "list",
    });
  } catch (error) {
    showForm();
    const damaged = new Problem({ message: "This link is incomplete. Ask for it again." });
    showProblem(error instanceof Problem ? error : damaged);
    return;
  }
  showForm();
  $("query").requestSubmit();
}

$("copy-link").addEventListener("click", copyLink);
$("query").addEventListener("input", dropLink);
$("project-choice").addEventListener("change", dropLink);
addEventListener("hashchange", () => {
  if (about && isLink()) openLink();
});
