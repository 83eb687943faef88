// The query: read from the fields, stored and sent.

let about = null, examples = 0, answering = null;

const mode = () => document.querySelector("input[name=mode]:checked").value;

function changed() {
  state.references = pairs().map(inputs => inputs.map(chosen)).filter(pair => pair.some(Boolean));
  Object.assign(state, {
    relation: $("relation").value, mode: mode(), type: chosen($("type")), candidates: $("candidates").value,
    candidatesType: chosen($("candidates-type")), k: Number($("k").value) || 10, withKnown: $("with-known").checked,
  });
  keep();
}

function show() {
  showPairs(state.references);
  showHeads();
  $("relation").value = state.relation;
  fill($("type"), state.type);
  fill($("candidates-type"), state.candidatesType);
  $("candidates").value = state.candidates;
  $("k").value = state.k;
  $("with-known").checked = state.withKnown;
  $("base").value = state.base;
  document.querySelector(`input[name=mode][value=${state.mode === "type" ? "type" : "heads"}]`).checked = true;
  arrange();
  showAccepted();
}

function arrange() {
  const typed = about && about.graph.types > 0;
  $("mode-heads-part").hidden = mode() !== "heads";
  $("mode-type-part").hidden = mode() !== "type";
  $("type").parentElement.hidden = !typed;
  $("mode-type").textContent = typed ? "All of a type" : "All entities";
  $("type-hint").textContent = `The best pairs of all ${typed ? "its heads" : "heads"}, best first.`;
  $("candidates-part").hidden = $("candidates").value !== "type";
  $("candidates").querySelector("[value=type]").disabled = !typed;
  $("k-label").textContent = mode() === "type" ? "Pairs in all" : "Tails of each head";
}

function reject(message, ...inputs) {
  for (const input of inputs) input.setAttribute("aria-invalid", "true");
  if (inputs.length) inputs[0].focus();
  throw new Problem({message});
}

function readQuery() {
  // The body of the request, and the rows (`sent`) of its references, to mark errors in.
  const sent = pairs().filter(inputs => inputs.some(chosen));
  for (const inputs of sent) for (const input of inputs) if (!chosen(input)) reject("A reference needs a head and a tail.", input);
  if (!sent.length) reject("Give at least one reference.", pairs()[0][0]);
  if (chosen($("head"))) {
    addHead(chosen($("head")));
    fill($("head"), null);
  }
  changed();
  const body = {references: sent.map(inputs => inputs.map(input => chosen(input).id)), k: state.k, exclude_known: !state.withKnown};
  if (state.mode === "heads") {
    if (!state.heads.length) reject("Name a head to find tails for.", $("head"));
    body.heads = state.heads.map(head => head.id);
  } else if (about && !about.graph.types) body.heads_of_type = "all";
  else if (state.type) body.heads_of_type = state.type.id;
  else reject("Name the type of the heads.", $("type"));
  if (state.candidates === "all") body.candidates = "all";
  if (state.candidates === "type") body.candidates = (state.candidatesType || reject("Name the type of the tails.", $("candidates-type"))).id;
  const name = state.relation.trim();
  if (about && Object.values(about.relations).flat().filter(known => known === name).length === 1) body.relation = name;
  return {body, sent};
}

async function rank() {
  problem(null);
  if (answering) answering.abort();
  const request = answering = new AbortController();
  let query = null;
  try {
    query = readQuery();
    $("rank").setAttribute("aria-busy", "true");
    say("Ranking…");
    const answer = await call("predict", query.body, request.signal);
    const topic = JSON.stringify([...query.body.references].sort());
    showPredictions(answer, {...query.body, topic});
  } catch (error) {
    if (error.name !== "AbortError") problem(error, query);
  } finally {
    if (answering === request) $("rank").removeAttribute("aria-busy");
  }
}

function placeOf(field, sent) {
  // The field or chip that an error of the server is about.
  const [part, first, second] = field.split(".");
  if (part === "references" && sent[first]) return sent[first][second || 0];
  if (part === "heads") return $("heads").children[first] || $("head");
  return {heads_of_type: $("type"), candidates: $("candidates-type"), k: $("k")}[part] || null;
}

function problem(error, query) {
  for (const chip of $("heads").children) chip.classList.remove("wrong");
  $("problem").hidden = !error;
  if (!error) return;
  say("");
  $("problem").replaceChildren(error.message);
  const where = query && error.field ? placeOf(error.field, query.sent) : null;
  if (!where) return;
  const chip = where.tagName === "LI";
  if (chip) where.classList.add("wrong");
  else where.setAttribute("aria-invalid", "true");
  for (const offer of error.suggestions || []) $("problem").append(" ", make("button", {type: "button", class: "quiet", onclick: () => {
    if (chip) state.heads.splice([...$("heads").children].indexOf(where), 1, offer);
    else fill(where, offer);
    showHeads();
    changed();
    rank();
  }}, `Use ${offer.name}`));
  if (!chip) where.focus();
}

function begin() {
  const {graph, calibration, model} = about;
  const facts = [plural(graph.entities, "entity", "entities"), plural(graph.relations, "relation"), !calibration ? "scores without probabilities" : calibration.rough ? "rough probabilities" : "calibrated"];
  $("about").replaceChildren(make("b", {}, model), " on ", make("b", {}, graph.name), ` · ${facts.join(" · ")}`);
  evidence = about.evidence;
  $("k").max = about.limits.k;
  $("footer").append(` fewlink ${about.version}`);
  document.title = `${graph.name} · fewlink`;
}

completing($("head"), entitiesLike, entity => { addHead(entity); fill($("head"), null); changed(); });
$("head").addEventListener("paste", event => pasted(event, lines => {
  for (const line of lines) addHead(named(line.trim()));
  changed();
  say(`${plural(lines.length, "head")} pasted`);
}));
for (const id of ["type", "candidates-type"]) completing($(id), typesLike, () => { arrange(); changed(); });
$("ask").addEventListener("input", () => { arrange(); changed(); });
$("ask").addEventListener("submit", event => { event.preventDefault(); rank(); });
$("relation").addEventListener("input", () => { $("relation").removeAttribute("aria-invalid"); showAccepted(); });
$("clear").addEventListener("click", () => {
  Object.assign(state, {references: [], heads: [], relation: "", type: null});
  show();
  problem(null);
  keep();
  pairs()[0][0].focus();
});
$("example").addEventListener("click", async () => {
  try {
    const {relation, references, heads} = await call(`example?number=${examples++}`);
    Object.assign(state, {references, heads, relation, mode: "heads"});
    show();
    keep();
    await rank();
  } catch (error) {
    problem(error);
  }
});
$("help-open").addEventListener("click", () => $("help").showModal());
addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    rank();
  } else if (event.key === "?" && !event.target.closest("input, select, dialog")) {
    event.preventDefault();
    $("help").showModal();
  }
});

function stick() {
  // A form taller than the window keeps its end in view.
  $("ask").style.setProperty("--top", `${Math.min(16, innerHeight - $("ask").offsetHeight - 16)}px`);
}
new ResizeObserver(stick).observe($("ask"));
addEventListener("resize", stick);

show();
(async () => {
  try {
    about = await call("about");
    remember(`${about.graph.name}:${about.graph.entities}`);
    begin();
    show();
  } catch (error) {
    problem(error);
  }
})();
