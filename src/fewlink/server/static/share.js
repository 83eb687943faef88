// A link to a question: the project, or the references, and the heads, in the part of the address after #ask.

function linkOf() {
  changed();
  const ids = entities => entities.map(entity => entity.id), parts = new URLSearchParams();
  if (project) parts.set("project", project.number);
  else parts.set("references", JSON.stringify(typedReferences().map(ids)));
  if (state.mode === "heads") parts.set("heads", JSON.stringify(ids(state.heads)));
  else parts.set("many", state.many === "type" && state.type ? `type:${state.type.id}` : state.many);
  if (!project && state.relation.trim()) parts.set("relation", state.relation.trim());
  if (deciding()) parts.set("view", "decide");
  return `${location.href.split("#")[0]}#ask&${parts}`;
}

async function share() {
  const link = linkOf();
  history.replaceState(null, "", link);
  try {
    await navigator.clipboard.writeText(link);
    say("The link to this question was copied.");
  } catch {
    say("The link to this question is now in the address bar: copy it from there.");
  }
}

async function entityById(id) {
  // An entity with its name; the id alone if it is unknown, which the server then says.
  try {
    const {name} = await call(`entity?${new URLSearchParams({id, count: 1})}`);
    return {id, name};
  } catch {
    return named(id);
  }
}

const forgetLink = () => { if (isLink()) history.replaceState(null, "", location.href.split("#")[0]); }; // the question is another one now
const isLink = () => location.hash.startsWith("#ask&");

async function openLink() {
  // Asks the question of the address, if it has one; gives whether it has.
  if (!isLink()) return false;
  const parts = new URLSearchParams(location.hash.slice(5));
  try {
    await chooseProject(Number(parts.get("project")) || null);
    const [references, heads] = ["references", "heads"].map(name => JSON.parse(parts.get(name) || "[]"));
    const many = parts.get("many") || "";
    Object.assign(state, {
      references: await Promise.all(references.slice(0, 200).map(pair => Promise.all(pair.slice(0, 2).map(entityById)))),
      heads: await Promise.all(heads.slice(0, 200).map(entityById)), relation: parts.get("relation") || "", mode: many ? "many" : "heads",
      many: many.startsWith("type:") ? "type" : many || "open", type: many.startsWith("type:") ? named(many.slice(5)) : null, view: parts.get("view") === "decide" ? "decide" : "list",
    });
  } catch (error) {
    show();
    problem(error instanceof Problem ? error : new Problem({message: "This link is damaged: ask for it again."}));
    return true;
  }
  show();
  await rank();
  return true;
}

$("share").addEventListener("click", share);
addEventListener("hashchange", () => { if (about) openLink(); });
