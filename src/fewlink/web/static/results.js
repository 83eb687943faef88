// Ranked tails: rows with keyboard navigation, reasons on demand, and decisions with undo.

let shown = null; // the query whose predictions are shown
let decisions = []; // that can be undone, newest last

const rows = () => [...$("found").querySelectorAll(".row")];

const byMerit = (one, other) => (other.probability ?? -1) - (one.probability ?? -1) || other.score - one.score;
const bestOf = predictions => predictions.reduce((best, row) => best && byMerit(best, row) <= 0 ? best : row, null);
const hasChance = row => (row.probability ?? null) !== null;
const sameRow = row => JSON.stringify([row.head, row.tail]);

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
  const before = new Map(shown && shown.topic === query.topic ? rows().map(item => [sameRow(item.pair), item]) : []);
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
    const old = before.get(sameRow(row));
    if (!old || !many) return made;
    old.querySelector(".top").replaceWith(made.querySelector(".top")); // its reasons stay open
    Object.assign(old, {yes: made.yes, no: made.no, why: made.why, act: made.act});
    made.act.item = old;
    mark(old);
    return old;
  };
  $("found").replaceChildren(...[...groups].map(([key, own]) => make("section", {class: "group"},
    make("h3", {}, key ? own[0].head_name : "Best pairs", key && alike(own[0].head_name) ? make("small", {}, ` ${key}`) : null),
    make("ol", {class: "rows", "aria-label": key ? `Tails of ${own[0].head_name}` : "Best pairs"},
      ...own.map((row, place) => itemOf(row, key ? row.rank : place + 1, bestOf(own), !key))))));
  if (!best) $("found").replaceChildren(make("div", {class: "empty"}, make("p", {}, "No candidates to rank: all of them are known answers.")));
  const trust = answer.trust || {}, sentence = trust.sentence || "";
  $("notes").replaceChildren(...answer.notes.filter(note => note !== sentence).map(note => make("li", {}, note)));
  $("trust").hidden = !sentence;
  $("trust").className = trust.low ? "trust low" : predictions.some(hasChance) ? "trust" : "trust plain";
  $("trust").textContent = sentence.charAt(0).toUpperCase() + sentence.slice(1);
  say(best ? summaryOf(answer, best, groups.size) : "No tails.");
  if (focused && focused.isConnected) focusRow(focused, false);
  else if (best && focus) focusRow(rows()[0]);
}

function summaryOf(answer, best, groups) {
  const {predictions} = answer, calibrated = hasChance(best);
  const what = shown.heads_of_type ? `${plural(predictions.length, "pair")} of ${plural(answer.heads ?? 0, "head")}`
    : groups > 1 ? `${plural(predictions.length, "tail")} of ${plural(groups, "head")}` : plural(predictions.length, "tail");
  return `${what}, by ${calibrated ? "probability" : "score"}. Best: ${best.head_name} → ${best.tail_name}${calibrated ? `, ${percent(best.probability)}` : ""}.`;
}

function rowOf(row, {rank, both, alike, share, amount, best}) {
  const pair = {topic: shown.topic, head: row.head, head_name: row.head_name, tail: row.tail, tail_name: row.tail_name};
  const act = {item: null}; // the item that the buttons are in
  const button = (kind, sign, label, does) => make("button", {type: "button", class: kind, tabindex: "-1", "aria-label": `${label} ${row.tail_name}`, title: label, onclick: does}, sign);
  const yes = button("yes", "✓", "Accept", () => choose(act.item, "yes")), no = button("no", "✕", "Reject", () => choose(act.item, "no"));
  const why = button("why", "i", "Reasons for", () => explain(act.item));
  const badge = text => make("span", {class: "badge"}, text), id = (name, text) => alike(name) ? make("small", {}, ` ${text} `) : null;
  const item = make("li", {class: "row", tabindex: "-1", "aria-keyshortcuts": "a x e u j k",
    onfocusin: () => only(item)},
  make("div", {class: "top"},
    make("span", {class: "rank"}, String(rank)),
    make("span", {class: "name"}, both ? make("span", {class: "of"}, row.head_name, id(row.head_name, row.head), " → ") : null, make("b", {}, row.tail_name),
      id(row.tail_name, row.tail), best ? badge("best of all") : null, row.known ? badge("known") : null),
    make("span", {class: "chance", title: `score ${figure(row.score)}`}, make("span", {class: "bar", "aria-hidden": "true"}, make("i", {"--share": `${(100 * share).toFixed(1)}%`})),
      make("span", {class: "amount"}, amount)),
    make("span", {class: "decide"}, why, no, yes)));
  act.item = item;
  Object.assign(item, {pair, yes, no, why, act});
  mark(item);
  return item;
}

function only(item) {
  // Tab reaches one row and its buttons; j and k reach the others.
  for (const row of rows()) {
    const focused = row === item;
    row.tabIndex = focused ? 0 : -1;
    for (const button of [row.yes, row.no, row.why]) button.tabIndex = focused ? 0 : -1;
  }
}

function focusRow(item, scroll = true) {
  if (!item) return;
  only(item);
  item.focus({preventScroll: !scroll});
  if (scroll) item.scrollIntoView({block: "nearest"});
}

function mark(item) {
  const decision = decisionOn(item.pair);
  item.classList.toggle("yes", decision === "yes");
  item.classList.toggle("no", decision === "no");
  item.yes.setAttribute("aria-pressed", String(decision === "yes"));
  item.no.setAttribute("aria-pressed", String(decision === "no"));
  item.why.setAttribute("aria-expanded", String(Boolean(item.querySelector(".reasons"))));
}

function choose(item, decision) {
  const before = decisionOn(item.pair), after = before === decision ? "" : decision;
  decisions.push({pair: item.pair, before});
  decide(item.pair, after);
  mark(item);
  showAccepted();
  say(`${{yes: "Accepted", no: "Rejected", "": "Undecided:"}[after]} ${item.pair.head_name} → ${item.pair.tail_name}`);
}

function undo() {
  const last = decisions.pop();
  if (!last) return say("Nothing to undo");
  decide(last.pair, last.before);
  showAccepted();
  rows().forEach(mark);
  say(`Undone: ${last.pair.head_name} → ${last.pair.tail_name}`);
  focusRow(rows().find(row => samePair(row.pair, last.pair)));
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
  try {
    const {references, relation} = shown;
    const reasons = await call("explain", {references, relation, head: item.pair.head, tail: item.pair.tail});
    part.reasons = reasons;
    showReasons(part);
    item.scrollIntoView({block: "nearest"});
  } catch (problem) {
    part.replaceChildren(make("p", {class: "problem"}, problem.message));
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
  for (const part of $("found").querySelectorAll(".reasons")) if (part.reasons) showReasons(part);
});

function move(item, by) {
  const all = rows();
  focusRow(all[Math.max(0, Math.min(all.length - 1, all.indexOf(item) + by))]);
}

function decideByKey(item, decision) {
  if (decisionOn(item.pair) !== decision) choose(item, decision);
  move(item, 1);
}

const KEYS = {
  j: item => move(item, 1), ArrowDown: item => move(item, 1), k: item => move(item, -1), ArrowUp: item => move(item, -1),
  a: item => decideByKey(item, "yes"), x: item => decideByKey(item, "no"), e: explain, u: undo,
};

$("found").addEventListener("keydown", event => {
  const item = event.target.closest(".row");
  if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = event.key === "Enter" && event.target === item ? explain : KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act(item);
});
