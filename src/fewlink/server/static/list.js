// The list of suggestions: rows with reasons on demand, decisions, and one row at a time that Tab reaches.

import { decide, takeBack } from "./decisions.js";
import { $, element, setStatus } from "./dom.js";
import { entityButton } from "./entity.js";
import { on } from "./events.js";
import { loadReasons } from "./explanation.js";
import { hasProbability, passesFilters, prepareFilters } from "./filters.js";
import { decisionOn, keyOf, kindOf, project, whoDid } from "./project.js";
import { showRemaining } from "./project-panel.js";
import { curator, deciding } from "./state.js";
import { asSentence, formatCount, formatPercent, formatScore, pairText, plural } from "./text.js";

let query = null; // the query whose predictions are listed
let rows = []; // {prediction, item, accept, reject, why}
let current = null; // the row that Tab reaches
let summary = ""; // what is listed, in words

export const visibleRows = () => rows.filter((row) => !row.item.hidden);

export const rowAt = (target) => {
  const item = target.closest(".row");
  return item && rows.find((row) => row.item === item);
};

export const byMerit = (one, other) =>
  (other.probability ?? -1) - (one.probability ?? -1) || other.score - one.score;

const bestOf = (predictions) => [...predictions].sort(byMerit)[0];

// Lists an answer of the server. `focus`: whether the first row gets the focus.
export function showList(answer, newQuery, focus = true) {
  const { predictions } = answer;
  const many = Boolean(newQuery.heads_of_type);
  const sameTopic = query?.topic === newQuery.topic;
  const before = many && sameTopic ? rows : [];
  const focused = before.find((row) => row.item.contains(document.activeElement));
  query = newQuery;
  rows = [];
  const best = bestOf(predictions);
  const groups = Map.groupBy(predictions, (one) => (many ? "" : one.head));
  const meritOf = describerOf(predictions);
  const sections = [...groups].map(([head, group]) => {
    const first = bestOf(group);
    const added = group.map((prediction, i) =>
      makeRow(prediction, {
        rank: many ? i + 1 : prediction.rank,
        withHead: many,
        isBest: groups.size > 1 && prediction === best,
        ...meritOf(prediction, first),
      }),
    );
    rows.push(...added);
    return groupSection(answer, head, group, added);
  });
  keepReasonsOpen(before);
  $("found").replaceChildren(...(best ? sections : [nothingLeft()]));
  showNotes(answer);
  prepareFilters(answer);
  applyFilters();
  showStale();
  summary = best ? summaryOf(answer, best, groups.size) : "No tails.";
  setStatus(summary);
  const again = focused && rows.find((row) => keyOf(row.prediction) === keyOf(focused.prediction));
  if (again) focusRow(again, { scroll: false });
  else if (best && focus) focusRow(visibleRows()[0]);
}

function keepReasonsOpen(before) {
  for (const old of before) {
    const reasons = old.item.querySelector(".reasons");
    const row = reasons && rows.find((one) => keyOf(one.prediction) === keyOf(old.prediction));
    if (!row) continue;
    row.item.append(reasons);
    markRow(row);
  }
}

function groupSection(answer, head, group, added) {
  const name = group[0].head_name;
  const items = added.map((row) => row.item);
  const title = head
    ? [entityButton(head, name), idIfShared(name, head, answer.predictions)]
    : ["Best pairs"];
  const set = (answer.sets || []).find((one) => one.asked === head);
  return element(
    "section",
    { class: "group" },
    element("h3", {}, ...title),
    set ? element("p", { class: "set" }, asSentence(set.sentence)) : null,
    element(
      "ol",
      { class: "rows", "aria-label": head ? `Tails of ${name}` : "Best pairs" },
      ...items,
    ),
  );
}

function nothingLeft() {
  return element(
    "div",
    { class: "empty" },
    element("p", {}, "No tail is left to rank: all candidates are known or rejected."),
    element("p", {}, "Choose other candidate tails under Options, or include known pairs."),
  );
}

// A function from a prediction and the best of its group to the length of its bar and its amount: a percentage,
// or words.
function describerOf(predictions) {
  const scores = predictions.map((prediction) => prediction.score);
  const low = Math.min(...scores);
  const spread = Math.max(...scores) - low;
  const sharedId = (name, id) => idIfShared(name, id, predictions);
  return (prediction, best) => {
    if (hasProbability(prediction)) {
      const { probability } = prediction;
      return { share: probability, amount: formatPercent(probability), sharedId };
    }
    const behind = spread > 0 ? (best.score - prediction.score) / spread : 0;
    let amount = "far behind";
    if (behind <= 0) amount = "first";
    else if (behind < 0.15) amount = "close behind";
    else if (behind < 0.5) amount = "behind";
    const share = spread > 0 ? 0.04 + (0.96 * (prediction.score - low)) / spread : 1;
    return { share, amount, sharedId };
  };
}

// The id of an entity if another listed one has the same name, else null.
function idIfShared(name, id, predictions) {
  const isOther = (one, end) => one[`${end}_name`] === name && one[end] !== id;
  const shared = predictions.some((one) => isOther(one, "head") || isOther(one, "tail"));
  return shared ? element("small", {}, ` ${id} `) : null;
}

function showNotes(answer) {
  const { trust, calibration, notes, predictions } = answer;
  const sentence = trust?.sentence || "";
  const withProbabilities = predictions.some(hasProbability);
  $("notes").replaceChildren(
    ...notes.filter((note) => note !== sentence).map((note) => element("li", {}, asSentence(note))),
  );
  $("trust").hidden = !sentence;
  $("trust").textContent = sentence && asSentence(sentence);
  $("trust").className = "trust";
  if (trust?.low) $("trust").classList.add("low");
  else if (!withProbabilities) $("trust").classList.add("plain");
  $("adjusted").hidden = !(calibration && withProbabilities);
  $("adjusted").textContent = calibration ? asSentence(calibration.sentence) : "";
}

function summaryOf({ predictions, heads = 0 }, best, groups) {
  const tails = plural(predictions.length, "tail");
  let what = groups > 1 ? `${tails} of ${plural(groups, "head")}` : tails;
  if (query.heads_of_type)
    what = `${plural(predictions.length, "pair")} of ${plural(heads, "head")}`;
  const probable = hasProbability(best);
  const merit = probable ? `, ${formatPercent(best.probability)}` : "";
  return `${what}, by ${probable ? "probability" : "score"}. Best: ${pairText(best)}${merit}.`;
}

function makeRow(prediction, { rank, withHead, isBest, share, amount, sharedId }) {
  const { head, head_name, tail, tail_name, known, score } = prediction;
  const button = (name, sign, label, onclick) =>
    element(
      "button",
      { type: "button", class: name, "aria-label": `${label} ${tail_name}`, title: label, onclick },
      sign,
    );
  const badge = (text) => element("span", { class: "badge" }, text);
  const row = {
    prediction,
    accept: button("yes", "✓", "Accept", () => toggleDecision(row, "accepted")),
    reject: button("no", "✕", "Reject", () => toggleDecision(row, "rejected")),
    why: button("why", "i", "Reasons for", () => toggleReasons(row)),
  };
  const name = element(
    "span",
    { class: "name" },
    withHead
      ? element(
          "span",
          { class: "of" },
          entityButton(head, head_name),
          sharedId(head_name, head),
          " → ",
        )
      : null,
    element("b", {}, entityButton(tail, tail_name)),
    sharedId(tail_name, tail),
    isBest ? badge("best overall") : null,
    known ? badge("known") : null,
    element("span", { class: "others", hidden: true }),
  );
  const bar = element("i", { "--share": `${(100 * share).toFixed(1)}%` });
  const merit = element(
    "span",
    { class: "chance", title: `Score ${formatScore(score)}` },
    element("span", { class: "bar", "aria-hidden": "true" }, bar),
    element("span", { class: "amount" }, amount),
  );
  row.item = element(
    "li",
    {
      class: "row",
      "data-head": head,
      "data-tail": tail,
      "aria-keyshortcuts": "A R E U J K",
      "aria-label": `${pairText(prediction)}, ${amount}`,
      onfocusin: () => makeCurrent(row),
    },
    element(
      "div",
      { class: "top" },
      element("span", { class: "rank" }, String(rank)),
      name,
      merit,
      element("span", { class: "decide" }, row.why, row.reject, row.accept),
    ),
  );
  setReachable(row, false);
  markRow(row);
  return row;
}

function setReachable({ item }, reachable) {
  for (const node of [item, ...item.querySelectorAll("button")]) node.tabIndex = reachable ? 0 : -1;
}

// Tab reaches the current row and its buttons; J and K reach the others.
function makeCurrent(row) {
  if (current && current !== row) setReachable(current, false);
  current = row;
  setReachable(row, true);
}

export function focusRow(row, { scroll = true } = {}) {
  if (!row) return;
  makeCurrent(row);
  row.item.focus({ preventScroll: !scroll });
  if (scroll) row.item.scrollIntoView({ block: "nearest" });
}

export function focusCurrentRow() {
  const visible = visibleRows();
  focusRow(visible.includes(current) ? current : visible[0]);
}

export function moveFocus(row, by) {
  const visible = visibleRows();
  const index = visible.indexOf(row) + by;
  focusRow(visible[Math.max(0, Math.min(visible.length - 1, index))]);
}

function markRow({ prediction, item, accept, reject, why }) {
  const kind = kindOf(prediction);
  const accepted = kind === "accepted" || kind === "reference";
  item.classList.toggle("yes", accepted);
  item.classList.toggle("no", kind === "rejected");
  accept.setAttribute("aria-pressed", String(accepted));
  reject.setAttribute("aria-pressed", String(kind === "rejected"));
  why.setAttribute("aria-expanded", String(Boolean(item.querySelector(".reasons"))));
  const decision = decisionOn(prediction);
  const byOthers = [decision, decision?.conflict].filter((one) => one && one.who !== curator());
  const others = item.querySelector(".others");
  others.hidden = !byOthers.length;
  others.textContent = byOthers.map(whoDid).join(", ");
}

// Shows decisions that changed, or all, and moves the focus on from a row that is hidden now.
function markRows(changed) {
  const keys = changed && new Set(changed.map(keyOf));
  const before = visibleRows();
  const focused = rowAt(document.activeElement);
  for (const row of rows) if (!keys || keys.has(keyOf(row.prediction))) markRow(row);
  applyFilters();
  showStale();
  if (!focused?.item.hidden) return;
  const next = before.slice(before.indexOf(focused)).find((row) => !row.item.hidden);
  focusRow(next || visibleRows().at(-1));
}

// Shows the listed suggestions again after another view.
export function returnToList() {
  setStatus(summary);
  applyFilters();
}

export function applyFilters() {
  for (const row of rows) row.item.hidden = !passesFilters(row.prediction);
  for (const group of $("found").querySelectorAll(".group")) {
    group.hidden = !group.querySelector(".row:not([hidden])");
  }
  const shown = visibleRows().length;
  const undecided = rows.filter((row) => !kindOf(row.prediction)).length;
  $("filter-count").textContent =
    shown < rows.length ? `${formatCount(shown)} of ${formatCount(rows.length)} shown.` : "";
  $("filter-none").hidden = shown > 0 || !rows.length;
  $("bulk-open").disabled = !undecided;
  if (rows.length && !deciding()) showRemaining("Undecided", undecided);
}

// Says how many decisions were made after the listed ranking.
function showStale() {
  const since = project && query ? project.events - (query.events ?? project.events) : 0;
  $("stale").hidden = since <= 0;
  $("stale-text").textContent = since > 0 ? `${plural(since, "decision")} since this ranking.` : "";
}

// Accepts or rejects; the same decision again undoes one's own.
async function toggleDecision({ prediction }, kind) {
  const decision = decisionOn(prediction);
  if (decision?.kind === kind && decision.who === curator()) await takeBack([decision.number]);
  else await decide([prediction], kind);
}

export function decideAndMove(row, kind) {
  if (kindOf(row.prediction) !== kind) toggleDecision(row, kind);
  moveFocus(row, 1);
}

export async function toggleReasons(row) {
  const open = row.item.querySelector(".reasons");
  if (open) {
    open.remove();
    markRow(row);
    return;
  }
  const container = element("div", { class: "reasons" });
  row.item.append(container);
  markRow(row);
  const { references, relation, rejected } = query;
  if (await loadReasons(container, { references, relation, rejected }, row.prediction)) {
    container.parentElement.scrollIntoView({ block: "nearest" });
  }
}

function clearList() {
  query = current = null;
  if (!rows.length) return;
  rows = [];
  const hint = "Press Rank tails to see suggestions for this project.";
  $("found").replaceChildren(element("div", { class: "empty" }, element("p", {}, hint)));
  $("notes").replaceChildren();
  for (const id of ["filters", "filter-none", "trust", "adjusted", "stale"]) $(id).hidden = true;
  summary = "";
  setStatus("");
}

on("project", ({ keepList }) => {
  if (!keepList) clearList();
  else if (query) query.events = project.events;
  markRows();
});
on("decisions", markRows);
on("undone", (pair) => {
  if (!deciding()) focusRow(visibleRows().find((row) => keyOf(row.prediction) === keyOf(pair)));
});
$("filters").addEventListener("input", applyFilters);
$("rank-again").addEventListener("click", () => $("query").requestSubmit());
