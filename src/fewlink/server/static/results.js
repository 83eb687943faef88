// The list of ranked tails: rows with keyboard navigation, reasons on demand, and decisions.

let shown = null; // the query whose predictions are shown
let current = null; // the row that Tab reaches

const allRows = () => [...$("found").querySelectorAll(".row")];
const rows = () => allRows().filter(item => !item.hidden); // those that pass the filters

const byMerit = (one, other) => (other.probability ?? -1) - (one.probability ?? -1) || other.score - one.score;
const bestOf = predictions => predictions.reduce((best, row) => best && byMerit(best, row) <= 0 ? best : row, null);
const hasChance = row => (row.probability ?? null) !== null;

function placesOf(predictions) {
  // A function from a row and the best of its group to the length of its bar and its amount: a percentage, or words.
  const scores = predictions.map(row => row.score), low = Math.min(...scores), spread = Math.max(...scores) - low;
  return (row, best) => {
    const behind = spread > 0 ? (best.score - row.score) / spread : 0;
    if (hasChance(row)) return {share: row.probability, amount: percent(row.probability)};
    const amount = behind <= 0 ? "first" : behind < 0.15 ? "close behind" : behind < 0.5 ? "behind" : "far behind";
    return {share: spread > 0 ? 0.04 + 0.96 * (row.score - low) / spread : 1, amount};
  };
}

function homonyms(predictions) {
  // Names that several entities have: rows show their ids too.
  const ids = new Map();
  for (const row of predictions) for (const end of ["head", "tail"]) ids.set(row[`${end}_name`], (ids.get(row[`${end}_name`]) || new Set()).add(row[end]));
  return name => ids.get(name).size > 1;
}

function showPredictions(answer, query, focus = true) {
  const before = new Map(shown && shown.topic === query.topic ? allRows().map(item => [keyOf(item.pair), item]) : []);
  const focused = document.activeElement.closest(".row");
  shown = query;
  const predictions = answer.predictions, groups = new Map(), many = Boolean(query.heads_of_type), placeOf = placesOf(predictions);
  for (const row of predictions) {
    const key = many ? "" : row.head;
    groups.set(key, [...(groups.get(key) || []), row]);
  }
  const best = bestOf(predictions), alike = homonyms(predictions);
  const itemOf = (row, rank, first, both) => {
    const made = rowOf(row, {rank, both, alike, ...placeOf(row, first), best: groups.size > 1 && row === best});
    const old = before.get(keyOf(row));
    if (!old || !many) return made;
    old.querySelector(".top").replaceWith(made.querySelector(".top")); // its reasons stay open
    Object.assign(old, {row, pair: made.pair, yes: made.yes, no: made.no, why: made.why, act: made.act});
    made.act.item = old;
    mark(old);
    return old;
  };
  $("found").replaceChildren(...[...groups].map(([key, own]) => make("section", {class: "group"},
    make("h3", {}, key ? entityButton(key, own[0].head_name) : "Best pairs", key && alike(own[0].head_name) ? make("small", {}, ` ${key}`) : null),
    setOf(answer, key),
    make("ol", {class: "rows", "aria-label": key ? `Tails of ${own[0].head_name}` : "Best pairs"},
      ...own.map((row, place) => itemOf(row, key ? row.rank : place + 1, bestOf(own), !key))))));
  if (!best) $("found").replaceChildren(make("div", {class: "empty"}, make("p", {}, "No tail is left to rank: all candidates are known or rejected."),
    make("p", {}, "Choose other candidate tails under Options, or show known pairs.")));
  const trust = answer.trust || {}, sentence = trust.sentence || "";
  $("notes").replaceChildren(...answer.notes.filter(note => note !== sentence).map(note => make("li", {}, note)));
  $("trust").hidden = !sentence;
  $("trust").className = trust.low ? "trust low" : predictions.some(hasChance) ? "trust" : "trust plain";
  $("trust").textContent = sentence.charAt(0).toUpperCase() + sentence.slice(1);
  $("adjusted").hidden = !(answer.calibration && predictions.some(hasChance));
  $("adjusted").textContent = answer.calibration ? sentenceOf(answer.calibration.sentence) : "";
  offerFilters(answer);
  applyFilters();
  showStale();
  say(best ? summaryOf(answer, best, groups.size) : "No tails.");
  if (focused && focused.isConnected) focusRow(focused, false);
  else if (best && focus) focusRow(rows()[0]);
}

function forgetList() {
  // Another project: its suggestions are asked for anew.
  pending = shown = current = null;
  if (answering) answering.abort();
  if (!allRows().length) return;
  $("found").replaceChildren(make("div", {class: "empty"}, make("p", {}, "Press Rank tails to see suggestions for this project.")));
  $("notes").replaceChildren();
  for (const id of ["filters", "filter-none", "trust", "adjusted", "stale"]) $(id).hidden = true;
  showProgress();
  say("");
}

// How many of a head's first tails it takes to have a right one, as a sentence.
function setOf(answer, head) {
  const found = (answer.sets || []).find(each => each.asked === head);
  return found ? make("p", {class: "set"}, sentenceOf(found.sentence)) : null;
}

function summaryOf(answer, best, groups) {
  const {predictions} = answer, calibrated = hasChance(best);
  const what = shown.heads_of_type ? `${plural(predictions.length, "pair")} of ${plural(answer.heads ?? 0, "head")}`
    : groups > 1 ? `${plural(predictions.length, "tail")} of ${plural(groups, "head")}` : plural(predictions.length, "tail");
  return `${what}, by ${calibrated ? "probability" : "score"}. Best: ${best.head_name} → ${best.tail_name}${calibrated ? `, ${percent(best.probability)}` : ""}.`;
}

function rowOf(row, {rank, both, alike, share, amount, best}) {
  const pair = {head: row.head, head_name: row.head_name, tail: row.tail, tail_name: row.tail_name, base_probability: row.base_probability};
  const act = {item: null}; // the item that the buttons are in
  const button = (kind, sign, label, does) => make("button", {type: "button", class: kind, tabindex: "-1", "aria-label": `${label} ${row.tail_name}`, title: label, onclick: does}, sign);
  const yes = button("yes", "✓", "Accept", () => choose(act.item, "accepted")), no = button("no", "✕", "Reject", () => choose(act.item, "rejected"));
  const why = button("why", "i", "Reasons for", () => explain(act.item));
  const badge = text => make("span", {class: "badge"}, text), id = (name, text) => alike(name) ? make("small", {}, ` ${text} `) : null;
  const item = make("li", {class: "row", tabindex: "-1", "aria-keyshortcuts": "A R E U J K",  "aria-label": `${row.head_name} → ${row.tail_name}, ${amount}`,
    onfocusin: () => only(item)},
  make("div", {class: "top"},
    make("span", {class: "rank"}, String(rank)),
    make("span", {class: "name"}, both ? make("span", {class: "of"}, entityButton(row.head, row.head_name), id(row.head_name, row.head), " → ") : null, make("b", {}, entityButton(row.tail, row.tail_name)),
      id(row.tail_name, row.tail), best ? badge("best of all") : null, row.known ? badge("known") : null, make("span", {class: "other", hidden: true})),
    make("span", {class: "chance", title: `score ${figure(row.score)}`}, make("span", {class: "bar", "aria-hidden": "true"}, make("i", {"--share": `${(100 * share).toFixed(1)}%`})),
      make("span", {class: "amount"}, amount)),
    make("span", {class: "decide"}, why, no, yes)));
  act.item = item;
  Object.assign(item, {pair, row, yes, no, why, act});
  reachable(item, false);
  mark(item);
  return item;
}

function reachable(item, yes) {
  item.tabIndex = yes ? 0 : -1;
  for (const button of item.querySelectorAll("button")) button.tabIndex = yes ? 0 : -1;
}

function only(item) {
  // Tab reaches one row and its buttons; j and k reach the others.
  if (current && current !== item) reachable(current, false);
  current = item;
  reachable(item, true);
}

function focusRow(item, scroll = true) {
  if (!item) return;
  only(item);
  item.focus({preventScroll: !scroll});
  if (scroll) item.scrollIntoView({block: "nearest"});
}

function mark(item) {
  const decision = decisionOn(item.pair), known = project && decided.get(keyOf(item.pair)), yes = decision === "accepted" || decision === "reference";
  item.classList.toggle("yes", yes);
  item.classList.toggle("no", decision === "rejected");
  item.yes.setAttribute("aria-pressed", String(yes));
  item.no.setAttribute("aria-pressed", String(decision === "rejected"));
  item.why.setAttribute("aria-expanded", String(Boolean(item.querySelector(".reasons"))));
  const by = item.querySelector(".other"), texts = known ? [known, known.conflict].filter(one => one && one.who !== who()).map(one => `${nameOfCurator(one.who)} ${VERBS[one.kind]}`) : [];
  by.hidden = !texts.length;
  by.textContent = texts.join(", ");
}

function markRows(states) {
  // After decisions: shows those of these states, or of all rows, and leaves out what is rejected.
  const keys = states && new Set(states.map(keyOf)), focused = document.activeElement.closest(".row"), before = rows();
  for (const item of allRows()) if (!keys || keys.has(keyOf(item.pair))) mark(item);
  applyFilters();
  showStale();
  if (focused && focused.hidden) focusRow(before.slice(before.indexOf(focused)).find(item => !item.hidden) || rows().at(-1));
}

async function choose(item, kind) {
  // Accepts or rejects; the same again takes one's own decision back.
  const known = project && decided.get(keyOf(item.pair));
  if (known && known.kind === kind && known.who === who()) await takeBack([known.number]);
  else if (await decide([item.pair], kind) && !(decided.get(keyOf(item.pair)) || {}).conflict) say(`${kind === "accepted" ? "Accepted" : "Rejected"}: ${pairText(item.pair)}.`);
}

function backTo(pair) {
  // After an undo: the pair is shown again.
  if (deciding()) {
    skipped.delete(keyOf(pair));
    return nextPair();
  }
  focusRow(rows().find(row => keyOf(row.pair) === keyOf(pair)));
}

function showStale() {
  // Whether decisions were made that the ranking shown has not read.
  const since = project && shown ? project.events - (shown.events ?? project.events) : 0;
  $("stale").hidden = since <= 0;
  $("stale-text").textContent = since > 0 ? `${plural(since, "decision")} since this ranking.` : "";
}

async function explain(item) {
  const open = item.querySelector(".reasons");
  if (open) {
    open.remove();
    return mark(item);
  }
  const part = make("div", {class: "reasons"}, make("p", {class: "hint"}, "Loading reasons…"));
  item.append(part);
  mark(item);
  const {references, relation, rejected} = shown;
  if (await loadReasons(part, {references, relation, rejected}, item.pair)) item.scrollIntoView({block: "nearest"});
}

async function loadReasons(part, query, {head, tail}) {
  // Fills a part with the reasons of a pair; gives whether there are any.
  try {
    part.reasons = await call("explain", {...query, head, tail});
    if (!part.isConnected) return false;
    showReasons(part);
    return true;
  } catch (error) {
    part.replaceChildren(make("p", {class: "problem"}, error.message));
    return false;
  }
}

function showReasons(part) {
  const style = getComputedStyle(part), width = part.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  part.replaceChildren(...reasonElements(part.reasons, Math.max(240, Math.min(760, width))));
}

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  for (const part of document.querySelectorAll(".reasons")) if (part.reasons) showReasons(part);
});

function move(item, by) {
  const all = rows();
  focusRow(all[Math.max(0, Math.min(all.length - 1, all.indexOf(item) + by))]);
}

function decideByKey(item, kind) {
  if (decisionOn(item.pair) !== kind) choose(item, kind);
  move(item, 1);
}

const ROW_KEYS = {
  j: item => move(item, 1), ArrowDown: item => move(item, 1), k: item => move(item, -1), ArrowUp: item => move(item, -1), s: item => move(item, 1),
  a: item => decideByKey(item, "accepted"), r: item => decideByKey(item, "rejected"), e: explain,
};

function listKey(key, target) {
  // The act of a key in the list, or undefined.
  if (key === "u") return undo;
  const item = target.closest(".row");
  if (!item) return key === "j" || key === "k" ? () => focusRow(current && current.isConnected && !current.hidden ? current : rows()[0]) : undefined;
  if (key === "Enter") return target === item ? () => explain(item) : undefined;
  return ROW_KEYS[key] && (() => ROW_KEYS[key](item));
}

$("rank-again").addEventListener("click", () => rank());
