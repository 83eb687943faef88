// The list of suggestions: rows with reasons on demand, decisions, and one row at a time that Tab reaches.

import { decide, takeBack } from "./decisions.js";
import { $, button, checkedValue, element, setStatus, showText } from "./dom.js";
import { endParts } from "./entity.js";
import { on } from "./events.js";
import { loadReasons } from "./explanation.js";
import { hasProbability, passesFilters, prepareFilters } from "./filters.js";
import { endsOf, relationInGraph } from "./form.js";
import { decisionOn, keyOf, kindOf, project, projectPairs, whoDid } from "./project.js";
import { showRemaining } from "./project-panel.js";
import { curator, deciding } from "./state.js";
import {
  asSentence,
  capitalized,
  endText,
  formatCount,
  formatPercent,
  formatScore,
  pairText,
  plural,
} from "./text.js";

const PAGE = 50; // pairs of many heads

const welcome = $("found").firstElementChild; // advice for a new question
let query = null; // the query whose predictions are listed
let answer = null; // the answer to it
let pool = []; // the predictions of all pages: those that passed the filters when they were last changed
let page = 0;
let rows = []; // of the shown page: {prediction, item, accept, reject, why}
let current = null; // the row that Tab reaches
let summary = ""; // what is listed, in words
let questionChanged = false; // whether the form says something else

const visibleRows = () => rows.filter((row) => !row.item.hidden);

export const rowAt = (target) => {
  const item = target.closest(".row");
  return item && rows.find((row) => row.item === item);
};

// Heads without a known tail first, then by probability or score.
export const byMerit = (one, other) =>
  Boolean(one.answered) - Boolean(other.answered) ||
  (other.probability ?? -1) - (one.probability ?? -1) ||
  other.score - one.score;

const bestOf = (predictions) => [...predictions].sort(byMerit)[0];

const ofManyHeads = () => Boolean(query.heads_of_type);

const ends = () => endsOf(query.tails ? "tails" : "heads");

// Lists an answer of the server. `focus`: whether the first row gets the focus.
export function showList(newAnswer, newQuery, focus = true) {
  const before = newQuery.heads_of_type && query?.topic === newQuery.topic ? rows : [];
  if (!before.length) page = 0;
  const focused = before.find((row) => row.item.contains(document.activeElement));
  query = newQuery;
  answer = newAnswer;
  questionChanged = false;
  const best = bestOf(answer.predictions);
  showNotes(answer);
  prepareFilters(answer, ends()[1]);
  showRows(before);
  summary = best ? summaryOf(answer, best) : `No ${ends()[1]}s.`;
  setStatus(summary);
  const again = focused && rows.find((row) => keyOf(row.prediction) === keyOf(focused.prediction));
  if (again) focusRow(again, { scroll: false });
  else if (best && focus) focusRow(visibleRows()[0]);
}

// Makes the rows of the shown page; reasons that are open in the rows `before` stay open.
function showRows(before = []) {
  const many = ofManyHeads();
  const [end] = ends();
  pool = many ? answer.predictions.filter(passesFilters) : answer.predictions;
  page = Math.max(0, Math.min(page, Math.ceil(pool.length / PAGE) - 1));
  const first = many ? page * PAGE : 0;
  const listed = many ? pool.slice(first, first + PAGE) : pool;
  const parts = (one) => (one.answered ? "Heads that have a tail" : "Heads without a tail");
  const groups = Map.groupBy(listed, (one) => (many ? parts(one) : one[end]));
  const best = bestOf(answer.predictions);
  const meritOf = describerOf(answer.predictions);
  rows = [];
  const places = new Map(listed.map((one, i) => [one, first + i + 1]));
  const sections = [...groups].map(([title, group]) => {
    const leader = many ? best : bestOf(group);
    const added = group.map((prediction) =>
      makeRow(prediction, {
        rank: many ? places.get(prediction) : prediction.rank,
        withHead: many,
        isBest: !many && groups.size > 1 && prediction === best,
        ...meritOf(prediction, leader),
      }),
    );
    rows.push(...added);
    return groupSection(many ? null : title, many ? title : null, group, added);
  });
  keepReasonsOpen(before);
  $("found").replaceChildren(...(answer.predictions.length ? sections : [nothingLeft()]));
  showPager(first, listed.length);
  hideFiltered();
  showStale();
}

function showPager(first, count) {
  $("pager").hidden = !ofManyHeads() || pool.length <= PAGE;
  $("page-text").textContent =
    `${formatCount(first + 1)} to ${formatCount(first + count)} of ${plural(pool.length, "pair")}`;
  $("page-previous").disabled = first === 0;
  $("page-next").disabled = first + count >= pool.length;
}

function turnPage(by) {
  page += by;
  showRows();
  focusRow(visibleRows()[0]);
  $("results").scrollIntoView({ block: "start" });
}

// Removes the advice that stands in place of a list.
export function removeHint() {
  $("found").querySelector(":scope > .empty")?.remove();
}

// The undecided predictions on all pages that pass the filters.
export const undecidedPredictions = () =>
  pool.filter((prediction) => !kindOf(prediction) && passesFilters(prediction));

// The heads of the listed pairs, those of the best undecided pairs first, and the number of `all` heads; none if the list
// is about other heads, tails or constraints than a request for suggestions.
export function rankedHeads(asked) {
  const about = (one) =>
    JSON.stringify([one.heads_of_type, one.candidates, one.relation, one.constraints]);
  if (!answer || !ofManyHeads() || about(asked) !== about(query)) return { heads: [], all: 0 };
  const undecided = answer.predictions.filter((prediction) => !kindOf(prediction));
  const heads = [...undecided, ...answer.predictions].map((prediction) => prediction.head);
  return { heads: [...new Set(heads)], all: answer.heads_in_all };
}

// Says that the form differs from the question whose answer is listed.
export function markQuestionChanged() {
  questionChanged = Boolean(query);
  showStale();
  showHint();
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

// The rows of an entity, or with `words` those of many heads.
function groupSection(id, words, group, added) {
  const [end, found] = ends();
  const items = added.map((row) => row.item);
  const title = id ? endParts(group[0], end) : [words];
  const set = id && (answer.sets || []).find((one) => one.asked === id);
  return element(
    "section",
    { class: "group" },
    element("h3", {}, ...title),
    set ? element("p", { class: "set" }, asSentence(set.sentence)) : null,
    element(
      "ol",
      {
        class: "rows",
        "aria-label": id ? `${capitalized(found)}s of ${endText(group[0], end)}` : words,
      },
      ...items,
    ),
  );
}

function nothingLeft() {
  return element(
    "div",
    { class: "empty" },
    element("p", {}, "Nothing is left to rank: all candidates are known or rejected."),
    element("p", {}, "Choose other candidates under Options, or include known pairs."),
  );
}

// A function from a prediction and the best of its group to the length of its bar and its amount: a percentage,
// or words.
function describerOf(predictions) {
  const scores = predictions.map((prediction) => prediction.score);
  const low = Math.min(...scores);
  const spread = Math.max(...scores) - low;
  return (prediction, best) => {
    if (hasProbability(prediction)) {
      const { probability } = prediction;
      return { share: probability, amount: formatPercent(probability) };
    }
    const behind = spread > 0 ? (best.score - prediction.score) / spread : 0;
    let amount = "far behind";
    if (behind <= 0) amount = "first";
    else if (behind < 0.15) amount = "close behind";
    else if (behind < 0.5) amount = "behind";
    const share = spread > 0 ? 0.04 + (0.96 * (prediction.score - low)) / spread : 1;
    return { share, amount };
  };
}

function showNotes(answer) {
  const { trust, calibration, notes, predictions } = answer;
  const sentence = trust?.sentence || "";
  const withProbabilities = predictions.some(hasProbability);
  $("notes").replaceChildren(
    ...notes.filter((note) => note !== sentence).map((note) => element("li", {}, asSentence(note))),
  );
  showText("trust", sentence && asSentence(sentence));
  $("trust").className = "trust";
  if (trust?.low) $("trust").classList.add("low");
  else if (!withProbabilities) $("trust").classList.add("plain");
  showText("adjusted", calibration && withProbabilities ? asSentence(calibration.sentence) : "");
}

function summaryOf({ predictions, heads = 0 }, best) {
  const [end, found] = ends();
  const groups = new Set(predictions.map((one) => one[end])).size;
  const listed = plural(predictions.length, found);
  let what = groups > 1 ? `${listed} of ${plural(groups, end)}` : listed;
  if (ofManyHeads()) what = `${plural(predictions.length, "pair")} of ${plural(heads, "head")}`;
  const probable = hasProbability(best);
  const merit = probable ? `, ${formatPercent(best.probability)}` : "";
  return `${what}, by ${probable ? "probability" : "score"}. Best: ${pairText(best)}${merit}.`;
}

function makeRow(prediction, { rank, withHead, isBest, share, amount }) {
  const { head, tail, known, score } = prediction;
  const [, found] = ends();
  const [foundButton, foundId] = endParts(prediction, found);
  const action = (name, sign, title, onclick) => {
    const label = `${title} ${endText(prediction, found)}`;
    return button(sign, { class: name, "aria-label": label, title, onclick });
  };
  const badge = (text) => element("span", { class: "badge" }, text);
  const row = {
    prediction,
    accept: action("yes", "✓", "Accept", () => toggleDecision(row, "accepted")),
    reject: action("no", "✕", "Reject", () => toggleDecision(row, "rejected")),
    why: action("why", "i", "Reasons for", () => toggleReasons(row)),
  };
  const name = element(
    "span",
    { class: "name" },
    withHead ? element("span", { class: "of" }, ...endParts(prediction, "head"), " → ") : null,
    element("b", {}, foundButton),
    foundId,
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

function focusRow(row, { scroll = true } = {}) {
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
  hideFiltered();
  showStale();
  if (!focused?.item.hidden) return;
  const next = before.slice(before.indexOf(focused)).find((row) => !row.item.hidden);
  focusRow(next || visibleRows().at(-1));
}

// Shows the listed suggestions again after another view.
export function returnToList() {
  setStatus(summary);
  showHint();
  hideFiltered();
}

// Shows what passes the filters, from the first page on.
function applyFilters() {
  page = 0;
  if (query) showRows();
}

// Hides the listed rows that do not pass the filters, such as those that were just rejected.
function hideFiltered() {
  for (const row of rows) row.item.hidden = !passesFilters(row.prediction);
  for (const group of $("found").querySelectorAll(".group")) {
    group.hidden = !group.querySelector(".row:not([hidden])");
  }
  const all = answer?.predictions ?? [];
  const shown = all.filter(passesFilters).length;
  const undecided = all.filter((prediction) => !kindOf(prediction)).length;
  $("filter-count").textContent =
    shown < all.length ? `${formatCount(shown)} of ${formatCount(all.length)} shown.` : "";
  $("filter-none").hidden = shown > 0 || !all.length;
  $("bulk-open").disabled = !undecided;
  if (all.length && !deciding()) showRemaining("Undecided", undecided);
}

// Says how many decisions were made after the listed ranking.
function showStale() {
  const since = project && query ? project.events - (query.events ?? project.events) : 0;
  $("stale").hidden = since <= 0 && !questionChanged;
  $("stale-text").textContent = questionChanged
    ? "The question has changed since this ranking."
    : `${plural(since, "decision")} since this ranking.`;
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
  const asked = { references, relation, rejected, inverse: Boolean(query.tails) };
  if (await loadReasons(container, asked, row.prediction)) {
    container.parentElement.scrollIntoView({ block: "nearest" });
  }
}

// Says in place of a list how to get one.
export function showHint() {
  if (query) return;
  const goesOn = project && (projectPairs().references || relationInGraph());
  $("found").replaceChildren(
    goesOn ? element("div", { class: "empty" }, element("p", {}, nextStep())) : welcome,
  );
}

function nextStep() {
  const go = $("rank").textContent;
  const mode = checkedValue("mode");
  if (mode === "many" || $("heads").children.length) return `Press ${go} to see suggestions.`;
  const [end, found] = endsOf(mode);
  return `Enter a ${end} to find ${found}s for and press ${go}.`;
}

function clearList() {
  query = answer = current = null;
  questionChanged = false;
  pool = [];
  rows = [];
  showHint();
  $("notes").replaceChildren();
  for (const id of ["filters", "filter-none", "trust", "adjusted", "stale", "pager"]) {
    $(id).hidden = true;
  }
  summary = "";
  setStatus("");
}

on("project", ({ keepList }) => {
  if (!keepList) clearList();
  else if (query) query.events = project.events;
  markRows();
});
on("decisions", (changed) => {
  markRows(changed);
  showHint();
});
on("undone", (pair) => {
  if (!deciding()) focusRow(visibleRows().find((row) => keyOf(row.prediction) === keyOf(pair)));
});
$("filters").addEventListener("input", applyFilters);
$("page-previous").addEventListener("click", () => turnPage(-1));
$("page-next").addEventListener("click", () => turnPage(1));
$("rank-again").addEventListener("click", () => $("query").requestSubmit());
