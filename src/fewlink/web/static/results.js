// Ranked tails: rows with keyboard navigation, reasons on demand, and decisions with undo.

let shown = null; // the query whose predictions are shown
let decisions = []; // that can be undone, newest last

const rows = () => [...$("found").querySelectorAll(".row")];

function showPredictions(answer, query) {
  shown = query;
  const predictions = answer.predictions, calibrated = predictions.some(row => row.probability !== null);
  const scores = predictions.map(row => row.score), low = Math.min(...scores), high = Math.max(...scores);
  const share = row => calibrated ? row.probability : high > low ? 0.04 + 0.96 * (row.score - low) / (high - low) : 1;
  const groups = new Map();
  for (const row of predictions) {
    const key = query.heads_of_type ? "" : row.head;
    groups.set(key, [...(groups.get(key) || []), row]);
  }
  $("found").replaceChildren(...[...groups].map(([key, own]) => make("section", {class: "group"},
    make("h3", {}, key ? own[0].head_name : "Best pairs"),
    make("ol", {class: "rows", "aria-label": key ? `Tails of ${own[0].head_name}` : "Best pairs"},
      ...own.map((row, place) => rowOf(row, key ? row.rank : place + 1, share(row), !key))))));
  if (!predictions.length) $("found").replaceChildren(make("div", {class: "empty"}, make("p", {}, "No candidates to rank: all of them are known answers.")));
  $("notes").replaceChildren(...answer.notes.map(note => make("li", {}, note)));
  const best = predictions[0], what = query.heads_of_type ? "pair" : "tail";
  say(best ? `${plural(predictions.length, what)}, by ${calibrated ? "probability" : "score"}. Best: ${best.head_name} → ${best.tail_name}${calibrated ? `, ${percent(best.probability)}` : ""}.` : "No tails.");
  if (best) focusRow(rows()[0]);
}

function rowOf(row, rank, share, both) {
  const pair = {topic: shown.topic, head: row.head, head_name: row.head_name, tail: row.tail, tail_name: row.tail_name};
  const button = (kind, sign, label, act) => make("button", {type: "button", class: kind, tabindex: "-1", "aria-label": `${label} ${row.tail_name}`, title: label, onclick: act}, sign);
  const yes = button("yes", "✓", "Accept", () => choose(item, "yes")), no = button("no", "✕", "Reject", () => choose(item, "no"));
  const why = button("why", "i", "Reasons for", () => explain(item));
  const amount = row.probability === null ? figure(row.score) : percent(row.probability);
  const item = make("li", {class: "row", tabindex: "-1", "aria-keyshortcuts": "a x e u j k",
    onfocusin: () => only(item)},
  make("div", {class: "top"},
    make("span", {class: "rank"}, String(rank)),
    make("span", {class: "name"}, both ? make("span", {class: "of"}, `${row.head_name} → `) : null, make("b", {}, row.tail_name),
      row.known ? make("span", {class: "known"}, "known") : null),
    make("span", {class: "chance"}, make("span", {class: "bar", "aria-hidden": "true"}, make("i", {"--share": `${(100 * share).toFixed(1)}%`})),
      make("span", {class: "amount"}, amount)),
    make("span", {class: "decide"}, why, no, yes)));
  Object.assign(item, {pair, yes, no, why});
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

function focusRow(item) {
  if (!item) return;
  only(item);
  item.focus();
  item.scrollIntoView({block: "nearest"});
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
