// One suggestion at a time, with its reasons; after each decision comes the next.

const POOL = 50; // heads that are looked through, and by how many more

let card = null; // the suggestion shown
let read = []; // references that the model read for it
let skipped = new Set(), poolSize = POOL, seeking = null;

const deciding = () => state.view === "decide";

function forgetCards() {
  if (seeking) seeking.abort();
  card = null;
  skipped = new Set();
  poolSize = POOL;
  $("card").replaceChildren();
}

function readPool() {
  // The heads and tails that suggestions are taken from, by the fields of the form.
  const body = state.mode === "heads" && state.heads.length ? {heads: state.heads.map(head => head.id)}
    : {heads_of_type: state.mode === "many" && state.many === "type" ? (state.type || reject("Name the type of the heads.", $("type"))).id : state.mode === "many" ? state.many : "open", count: poolSize};
  if (state.candidates === "all") body.candidates = "all";
  if (state.candidates === "type") body.candidates = (state.candidatesType || reject("Name the type of the tails.", $("candidates-type"))).id;
  const relation = knownRelation();
  return {...body, ...(relation ? {relation} : {}), ...(state.constraints.length ? {constraints: state.constraints} : {}), mode: state.order, k: Math.min(100, 10 + skipped.size)};
}

async function nextPair(focus = true) {
  // Asks for the next suggestion and shows it.
  if (seeking) seeking.abort();
  const own = seeking = new AbortController();
  problem(null);
  if (!project) return showNoCard("Choose or make a project: suggestions learn from its decisions.", "New project", () => newProject("A project keeps references and decisions.").then(made => made && nextPair()));
  try {
    await storeReferences();
    if (!asReferences().references.length) return showNoCard("This project has no references yet. Add a pair that the relation holds for, in the form.");
    const body = readPool();
    $("decide-part").setAttribute("aria-busy", "true");
    if (!card) say(`Looking through ${body.heads ? plural(body.heads.length, "head") : `up to ${body.count} heads`}…`);
    const answer = await call(`projects/${project.number}/next`, body, own.signal);
    if (seeking !== own) return;
    read = answer.read;
    countLeft(answer.left, "Heads left");
    const notes = [...(answer.calibration ? [sentenceOf(answer.calibration.sentence)] : []), ...answer.notes.filter(note => !projectNotes.includes(note))];
    $("decide-notes").replaceChildren(...notes.map(note => make("li", {}, note)));
    const found = answer.suggestions.find(one => !skipped.has(keyOf(one)));
    if (found) showCard(found, answer, focus);
    else showEnd(answer);
  } catch (error) {
    if (error.name !== "AbortError" && seeking === own) problem(error);
  } finally {
    if (seeking === own) {
      seeking = null;
      $("decide-part").removeAttribute("aria-busy");
    }
  }
}

function showNoCard(text, label, act) {
  card = null;
  say("");
  $("card").replaceChildren(make("div", {class: "empty"}, make("p", {}, text), label ? make("button", {type: "button", class: "primary", onclick: act}, label) : null));
}

function showEnd(answer) {
  const more = answer.heads < answer.heads_in_all, again = skipped.size > 0;
  showNoCard(again ? "You have decided or skipped every suggestion." : `No pair is left among the ${plural(answer.heads, "head")} that were looked through.`,
    more ? `Look through ${Math.min(POOL, answer.heads_in_all - answer.heads)} more heads` : again ? "Show the skipped ones again" : null,
    () => { if (more) poolSize += POOL; else skipped = new Set(); nextPair(); });
  say("No suggestion is left.");
}

function showCard(row, answer, focus) {
  const same = card && keyOf(card) === keyOf(row);
  card = row;
  if (same) return;
  const verdict = (kind, label, key, act) => make("button", {type: "button", class: `verdict ${kind}`, "aria-keyshortcuts": key, onclick: act}, label, " ", make("kbd", {"aria-hidden": "true"}, key));
  const learnt = answer.learnt ? `, learnt from ${plural(answer.learnt, "pair")}` : "", chance = hasChance(row) ? `${percent(row.probability)} likely. ` : "";
  $("card").replaceChildren(
    make("p", {class: "hint"}, "Is this right?"),
    make("h3", {id: "card-title"}, entityButton(row.head, row.head_name), make("em", {}, ` ${relationName().replaceAll("_", " ")} `), entityButton(row.tail, row.tail_name)),
    make("p", {class: "hint"}, `${chance}Place ${row.rank.toLocaleString("en")} among the tails of ${row.head_name}${learnt}.`),
    make("div", {class: "verdicts"}, verdict("no", "Reject", "R", () => judge("rejected")), verdict("later", "Skip", "S", skipCard),
      verdict("yes", "Accept", "A", () => judge("accepted"))),
    make("button", {type: "button", class: "quiet", id: "card-why", "aria-expanded": String(state.withReasons), onclick: toggleReasons}, "Reasons ", make("kbd", {"aria-hidden": "true"}, "E")));
  say(`${row.head_name} → ${row.tail_name}?`);
  if (state.withReasons) cardReasons();
  if (focus) focusCard();
}

function focusCard() {
  $("card").focus({preventScroll: true});
  $("card").scrollIntoView({block: "nearest"});
}

async function cardReasons() {
  const row = card, part = make("div", {class: "reasons"}, make("p", {class: "hint"}, "Loading reasons…"));
  $("card").append(part);
  await loadReasons(part, {...asReferences(), references: read, ...(knownRelation() ? {relation: knownRelation()} : {})}, row);
}

function toggleReasons() {
  const open = $("card").querySelector(".reasons");
  state.withReasons = !open;
  keep();
  $("card").querySelector("#card-why").setAttribute("aria-expanded", String(!open));
  if (open) open.remove();
  else cardReasons();
}

let judging = false; // one decision at a time: a key that is held does not decide what was not read

async function judge(kind) {
  const row = card;
  if (!row || judging) return;
  judging = true;
  try {
    if (await decide([row], kind)) await nextPair();
  } finally {
    judging = false;
  }
}

function skipCard() {
  if (!card || judging) return;
  skipped.add(keyOf(card));
  nextPair();
}

function cardDecidedElsewhere() {
  if (deciding() && card && decisionOn(card) && !judging) nextPair(false);
}

const CARD_KEYS = {a: () => judge("accepted"), r: () => judge("rejected"), s: skipCard, e: () => card && toggleReasons(), u: undo};

for (const input of document.querySelectorAll("input[name=order]")) input.addEventListener("change", () => { state.order = input.value; keep(); nextPair(false); });
