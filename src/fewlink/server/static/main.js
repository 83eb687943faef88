// The question: read from the fields, remembered and sent; keys; and the start of the page.

let about = null, examples = 0, answering = null;
let pending = null; // a ranking of many heads that can go on

const checked = name => document.querySelector(`input[name=${name}]:checked`).value;
const mode = () => checked("mode");

function changed() {
  state.references = pairs().map(inputs => inputs.map(chosen)).filter(pair => pair.some(Boolean));
  Object.assign(state, {
    relation: $("relation").value, mode: mode(), many: $("many").value, type: chosen($("type")), candidates: $("candidates").value,
    candidatesType: chosen($("candidates-type")), k: Number($("k").value) || 10, withKnown: $("with-known").checked,
    constraints: [...document.querySelectorAll("#constraints input:checked")].map(input => input.value),
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
  $("many").value = state.many;
  document.querySelector(`input[name=mode][value=${state.mode === "many" ? "many" : "heads"}]`).checked = true;
  for (const input of document.querySelectorAll("#constraints input")) input.checked = state.constraints.includes(input.value);
  for (const name of ["view", "order"]) for (const input of document.querySelectorAll(`input[name=${name}]`)) input.checked = input.value === state[name];
  arrange();
  showProject();
  showDecided();
}

const MANY = {
  open: "Entities of the same types or with the same relations, most similar first.", type: "All heads of this type.",
  all: "Those like the references’ heads come first.",
};

function arrange() {
  const typed = Boolean(about && about.graph.types > 0);
  for (const id of ["many", "candidates"]) {
    $(id).querySelector("[value=type]").disabled = !typed;
    if (about && !typed && $(id).value === "type") $(id).value = "open";
  }
  $("mode-heads-part").hidden = mode() !== "heads";
  $("mode-many-part").hidden = mode() !== "many";
  $("type-part").hidden = $("many").value !== "type";
  $("many-hint").textContent = `${MANY[$("many").value]} The best pairs so far are shown while the rest is ranked.`;
  $("candidates-part").hidden = $("candidates").value !== "type";
  $("list-part").hidden = deciding();
  $("decide-part").hidden = !deciding();
  $("rank").textContent = deciding() ? "Suggest pairs" : "Rank tails";
  $("k-part").hidden = deciding();
  $("k-label").textContent = mode() === "many" ? "Pairs in all" : "Tails of each head";
  const known = knownRelation();
  $("relation-hint").hidden = !known;
  $("relation-hint").textContent = known ? "A relation of this graph: pairs it already holds are left out." : "";
}

function knownRelation() {
  // The relation of the graph that has the name in the field, written with spaces or as its id.
  const name = $("relation").value.trim() || (project ? project.name : ""), plain = text => text.replace(/^concept:(?:.*:)?/, "").replaceAll("_", " ").trim().toLowerCase();
  if (!about || !name) return null;
  const names = Object.values(about.relations).flat();
  if (names.includes(name)) return name;
  const same = [...new Set(names.filter(known => plain(known) === plain(name)))];
  return same.length === 1 ? same[0] : null;
}

function reject(message, ...inputs) {
  for (const input of inputs) input.setAttribute("aria-invalid", "true");
  throw Object.assign(new Problem({message}), {input: inputs[0]});
}

function readQuery() {
  // The body of the request, and the rows (`sent`) of its references, to mark errors in.
  const sent = pairs().filter(inputs => inputs.some(chosen));
  for (const inputs of sent) for (const input of inputs) if (!chosen(input)) reject("A reference needs a head and a tail.", input);
  if (!sent.length && !(project && asReferences().references.length)) reject("Give at least one reference.", pairs()[0][0]);
  if (chosen($("head"))) {
    addHead(chosen($("head")));
    fill($("head"), null);
  }
  changed();
  const given = project ? {...asReferences(), project: project.number} : {references: sent.map(inputs => inputs.map(input => chosen(input).id))};
  const body = {...given, k: state.k, exclude_known: !state.withKnown, ...(state.constraints.length ? {constraints: state.constraints} : {})};
  if (state.mode === "heads") {
    if (!state.heads.length) reject("Name a head to find tails for.", $("head"));
    body.heads = state.heads.map(head => head.id);
  } else if (state.many !== "type") body.heads_of_type = state.many;
  else if (state.type) body.heads_of_type = state.type.id;
  else reject("Name the type of the heads.", $("type"));
  if (state.candidates === "all") body.candidates = "all";
  if (state.candidates === "type") body.candidates = (state.candidatesType || reject("Name the type of the tails.", $("candidates-type"))).id;
  const relation = knownRelation();
  if (relation) body.relation = relation;
  return {body, sent};
}

async function rank(task) {
  // Rank what the fields say, or go on with a task of many heads.
  if (deciding()) {
    changed();
    return nextPair();
  }
  problem(null);
  if (answering) answering.abort();
  const request = answering = new AbortController();
  let query = null;
  try {
    if (!task) await storeReferences();
    query = task || readQuery();
    if (!task) pending = null;
    $("rank").setAttribute("aria-busy", "true");
    say("Ranking…");
    const topic = JSON.stringify([...query.body.references].sort()), events = project ? project.events : undefined;
    if (query.body.heads_of_type) await rankMany(pending = task || {...query, topic, events, next: 0, answer: null}, request.signal);
    else showRanking(await call("predict", query.body, request.signal), {...query.body, topic, events});
  } catch (error) {
    if (error.name !== "AbortError") problem(error, query);
    else if (answering === request) pending && pending.answer ? showRanking(pending.answer, shown, false) : say("Stopped.");
  } finally {
    if (answering === request) {
      answering = null;
      $("rank").removeAttribute("aria-busy");
      showProgress();
    }
  }
}

function showRanking(answer, query, focus = true) {
  showPredictions(answer, query, focus);
  keepRanking({answer, query, next: query.heads_of_type && pending ? pending.next : null});
}

async function rankMany(task, signal) {
  // Some heads at a time, as many as take a few seconds; the best pairs so far are shown after each.
  const {body, topic, events} = task, began = performance.now(), from = task.next;
  let count = body.constraints ? about.limits.heads : 16, part = null; // constraints hold between the pairs of all heads
  showProgress();
  do {
    const asked = performance.now();
    part = await call("predict", {...body, first: task.next, count: Math.min(count, about.limits.heads)}, signal);
    task.answer = together(task.answer, part, body.k);
    task.next += part.heads;
    const seconds = (performance.now() - asked) / 1000, rest = part.heads_in_all - task.next;
    count = seconds < 1 ? 2 * count : seconds > 4 ? Math.max(1, Math.round(2 * count / seconds)) : count;
    task.left = rest * (performance.now() - began) / 1000 / Math.max(1, task.next - from);
    showRanking(task.answer, {...body, topic, events}, from === 0 && task.next === part.heads);
    say(rest > 0 ? "Ranking…" : $("status").textContent);
    showProgress();
  } while (part.heads && task.next < part.heads_in_all);
  pending = null;
}

function together(before, part, k) {
  // The best pairs of both answers; there may be none before.
  const predictions = [...(before ? before.predictions : []), ...part.predictions].sort(byMerit).slice(0, k);
  const notes = [...new Set([...(before ? before.notes : []), ...part.notes])];
  return {...part, predictions, notes, tail_types: {...(before ? before.tail_types : {}), ...part.tail_types}, heads: (before ? before.heads : 0) + part.heads};
}

const lasting = seconds => seconds < 90 ? plural(Math.max(1, Math.round(seconds)), "second") : seconds < 5400 ? plural(Math.round(seconds / 60), "minute") : plural(Math.round(seconds / 3600), "hour");

function showProgress() {
  const running = Boolean(answering && pending), answer = pending && pending.answer;
  $("progress").hidden = !running && !answer;
  if (!pending) return;
  const all = answer ? answer.heads_in_all : 0;
  $("progress-bar").hidden = !running;
  $("progress-bar").value = all ? pending.next / all : 0;
  $("progress-text").textContent = !all ? "Ranking the first heads…" : `${pending.next.toLocaleString("en")} of ${plural(all, "head")}${running ? `, about ${lasting(pending.left)} left` : " ranked"}`;
  $("stop").textContent = running ? "Stop" : "Go on";
}

function placeOf(field, sent) {
  // The field or chip that an error of the server is about.
  const [part, first, second] = field.split(".");
  if (part === "references" && sent[first]) return sent[first][second || 0];
  if (part === "heads") return $("heads").children[first] || $("head");
  return {heads_of_type: $("type"), candidates: $("candidates-type"), k: $("k"), relation: $("relation")}[part] || null;
}

function problem(error, query) {
  for (const chip of $("heads").children) chip.classList.remove("wrong");
  $("problem").hidden = !error;
  if (!error) return;
  say("");
  $("problem").replaceChildren(error.message);
  const where = error.input || (query && error.field ? placeOf(error.field, query.sent) : null);
  const part = (where && where.closest("#ask section, #ask .options")) || $("ask"); // beside the field it is about
  part.append($("problem"));
  if (part.closest("details")) part.closest("details").open = true;
  if (!where) return;
  const chip = where.tagName === "LI";
  if (chip) where.classList.add("wrong");
  else where.setAttribute("aria-invalid", "true");
  const offers = error.suggestions || [], twice = name => offers.filter(offer => offer.name === name).length > 1;
  for (const offer of offers) $("problem").append(" ", make("button", {type: "button", class: "quiet", onclick: () => {
    if (chip) state.heads.splice([...$("heads").children].indexOf(where), 1, offer);
    else fill(where, offer);
    showHeads();
    changed();
    rank();
  }}, `Use ${offer.name}${twice(offer.name) ? ` (${offer.hint || offer.id})` : ""}`));
  if (!chip) where.focus();
}

function begin() {
  const {graph, calibration, model} = about;
  const facts = [plural(graph.entities, "entity", "entities"), plural(graph.relations, "relation"), !calibration || calibration.rough ? "ranks without percentages" : `percentages off by ${Math.round(100 * calibration.error)} points on average`];
  $("about").replaceChildren(make("b", {}, model), " on ", make("b", {}, graph.name), ` · ${facts.join(" · ")}`);
  evidence = about.evidence;
  $("k").max = about.limits.k;
  $("footer").append(` fewlink ${about.version}`);
  document.title = `${graph.name} · fewlink`;
}

function showKept() {
  // The last ranking, as it was when the page was left.
  const kept = keptRanking();
  if (!kept) return;
  const {answer, query, next} = kept, {topic, events, ...body} = query;
  if (next !== null && next < answer.heads_in_all) pending = {body, topic, events, next, answer, sent: []};
  showPredictions(answer, query, false);
  showProgress();
}

completing($("head"), entitiesLike, entity => { addHead(entity); fill($("head"), null); changed(); });
$("head").addEventListener("paste", event => pasted(event, lines => {
  for (const line of lines) addHead(named(line.trim()));
  changed();
  say(`${plural(lines.length, "head")} pasted`);
}));
for (const id of ["type", "candidates-type"]) completing($(id), typesLike, () => { arrange(); changed(); });
$("ask").addEventListener("input", () => { forgetLink(); arrange(); changed(); });
$("ask").addEventListener("submit", event => { event.preventDefault(); rank(); });
$("stop").addEventListener("click", () => answering ? answering.abort() : rank(pending));
$("clear").addEventListener("click", () => {
  Object.assign(state, {references: [], heads: [], relation: "", type: null, constraints: []});
  show();
  problem(null);
  keep();
  pairs()[0][0].focus();
});
$("example").addEventListener("click", async () => {
  try {
    const {relation, references, heads} = await call(`example?number=${examples++}`);
    if (project) await chooseProject(null);
    Object.assign(state, {references, heads, relation, mode: "heads", view: "list"});
    show();
    keep();
    await rank();
  } catch (error) {
    problem(error);
  }
});
$("help-open").addEventListener("click", () => $("help").showModal());
const FIELDS = "input:not([type=radio], [type=checkbox]), select, textarea";

addEventListener("keydown", event => {
  const {target} = event, control = event.ctrlKey || event.metaKey, key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (target.closest("dialog")) return;
  let act;
  if (control && key === "Enter") act = () => rank();
  else if (target.closest(FIELDS) || event.altKey) return;
  else if (control) act = key === "z" && !event.shiftKey ? undo : undefined;
  else if (key === "?") act = () => $("help").showModal();
  else act = deciding() ? CARD_KEYS[key] : listKey(key, target);
  if (!act) return;
  event.preventDefault();
  if (!event.repeat || key.startsWith("Arrow") || key === "j" || key === "k") act();
});

for (const input of document.querySelectorAll("input[name=view]")) input.addEventListener("change", () => {
  state.view = input.value;
  keep();
  arrange();
  if (deciding()) nextPair(false);
  else applyFilters();
});
for (const button of document.querySelectorAll("dialog .close")) button.addEventListener("click", () => button.closest("dialog").close());

function stick() {
  // A form taller than the window keeps its end in view.
  $("side").style.setProperty("--top", `${Math.min(16, innerHeight - $("side").offsetHeight - 16)}px`);
}
new ResizeObserver(stick).observe($("side"));
addEventListener("resize", stick);

async function start() {
  // Reads what the server is, opens the project that was open, and asks the question of a shared link.
  const facts = await call("about");
  await loadProjects();
  about = facts;
  remember(`${about.graph.name}:${about.graph.entities}`);
  $("constraints").append(...Object.entries(about.constraints).map(([kind, meaning]) => make("label", {class: "check"}, make("input", {type: "checkbox", value: kind}), make("span", {}, meaning))));
  showChoice();
  if (!projects.some(one => one.number === state.project)) state.project = null;
  begin();
  if (!isLink()) {
    if (state.project !== null) await chooseProject(state.project);
    showKept();
  }
  show();
  if (!await openLink() && deciding()) nextPair(false);
}

show();
start().catch(problem);
