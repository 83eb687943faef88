// One suggestion at a time, with its reasons; after each decision comes the next.

import { call } from "./api.js";
import { decide } from "./decisions.js";
import { $, button, element, setStatus } from "./dom.js";
import { endParts } from "./entity.js";
import { on } from "./events.js";
import { loadReasons } from "./explanation.js";
import { hasProbability } from "./filters.js";
import { placeOf, readHeads, readOptions, relationInGraph, relationName } from "./form.js";
import { rankedHeads } from "./list.js";
import { newProject } from "./new-project.js";
import { clearProblem, showProblem } from "./problem.js";
import { keyOf, kindOf, project, projectNotes, projectPairs } from "./project.js";
import { showRemaining } from "./project-panel.js";
import { storeReferences } from "./references.js";
import { deciding, saveState, state } from "./state.js";
import { asSentence, formatCount, formatPercent, pairText, plural, withSpaces } from "./text.js";

const IN_STEPS =
  "Accepted pairs become references five at a time, so that the next suggestion comes at once. " +
  "The list and fewlink ask read all of them: their percentages differ a little.";
const POOL = 50; // heads that are searched for suggestions, and how many more each time

const NOT_RANKED = { heads: [], all: 0 };

let card = null; // the suggestion shown
let read = []; // references that the model read for it
let skipped = new Set();
let poolSize = POOL;
let ranked = null; // what the list knows about the heads when suggestions begin: {heads, all}
let searching = null; // the AbortController of the request under way
let judging = false; // one decision at a time: a held key must not decide on what was not read

// The heads and tails that suggestions are taken from. Of many heads, those that the list ranks first come first.
function readPool() {
  const open = state.mode === "tails" || (state.mode === "heads" && !state.heads.length);
  const heads = open ? { heads_of_type: "open" } : readHeads();
  const options = readOptions();
  ranked ??= state.order === "best" ? rankedHeads({ ...heads, ...options }) : NOT_RANKED;
  const fromList = ranked.all && ranked.heads.length >= Math.min(poolSize, ranked.all);
  return {
    ...(fromList ? { heads: ranked.heads.slice(0, poolSize) } : heads),
    ...(fromList || heads.heads ? {} : { count: poolSize }),
    ...options,
    mode: state.order,
    k: Math.min(100, 10 + skipped.size),
  };
}

// Begins with the heads that the list ranks first.
export function beginSuggestions(options) {
  ranked = null;
  return nextSuggestion(options);
}

// Requests the next suggestion and shows it.
async function nextSuggestion({ focus = true } = {}) {
  searching?.abort();
  clearProblem();
  if (!project) {
    showNoProject();
    return;
  }
  const own = (searching = new AbortController());
  try {
    await storeReferences();
    if (!projectPairs().references && !relationInGraph()) {
      showNoCard("This project has no references yet. Enter a pair for which the relation holds.");
      return;
    }
    const body = readPool();
    $("decide-view").setAttribute("aria-busy", "true");
    const count = body.heads ? plural(body.heads.length, "head") : `up to ${body.count} heads`;
    if (!card) setStatus(`Searching ${count}…`);
    const answer = await call(`projects/${project.number}/next`, body, own.signal);
    if (searching === own) showAnswer({ ...answer, ...poolFacts(body, answer) }, focus);
  } catch (error) {
    if (error.name !== "AbortError" && searching === own) {
      showProblem(error, error.field && placeOf(error));
    }
  } finally {
    if (searching === own) {
      searching = null;
      $("decide-view").removeAttribute("aria-busy");
    }
  }
}

// How many heads there are in all, and whether those that were searched are the first ones of the list.
function poolFacts({ heads }, { heads_in_all: all }) {
  const fromList = Boolean(heads && ranked?.all);
  return { fromList, heads_in_all: fromList ? ranked.all : all };
}

function showAnswer(answer, focus) {
  read = answer.read;
  showRemaining(`of ${plural(answer.heads, "head")} left`, answer.left);
  showPool(answer);
  const notes = answer.notes.filter((note) => !projectNotes.includes(note));
  if (answer.calibration) notes.unshift(answer.calibration.sentence);
  $("decide-notes").replaceChildren(...notes.map((note) => element("li", {}, asSentence(note))));
  const suggestion = answer.suggestions.find((one) => !skipped.has(keyOf(one)));
  if (suggestion) showCard(suggestion, answer, focus);
  else showEnd(answer);
}

// Unless all heads were searched, says which were, and offers to search more.
function showPool({ heads, heads_in_all: all, fromList }) {
  const which = fromList ? ", those with the best pairs of the list" : "";
  $("pool").hidden = heads >= all;
  $("pool-text").textContent = `From ${formatCount(heads)} of ${plural(all, "head")}${which}.`;
  $("pool-more").textContent = moreText(all - heads);
}

const moreText = (left) => `Search ${formatCount(Math.min(POOL, left))} more`;

function searchMore() {
  poolSize += POOL;
  card = null;
  nextSuggestion();
}

function showNoCard(text, label, onclick) {
  card = null;
  $("pool").hidden = true;
  setStatus("");
  $("card").replaceChildren(
    element(
      "div",
      { class: "empty" },
      element("p", {}, text),
      label ? button(label, { class: "primary", onclick }) : null,
    ),
  );
}

function showNoProject() {
  showNoCard(
    "Choose or create a project: suggestions learn from its decisions.",
    "New project",
    () => newProject("A project stores references and decisions."),
  );
}

function showEnd({ heads, heads_in_all: total }) {
  const text = skipped.size
    ? "You have decided on or skipped every suggestion."
    : `No pair is left among the ${plural(heads, "head")} that were searched.`;
  if (heads < total) showNoCard(text, moreText(total - heads), searchMore);
  else if (skipped.size) showNoCard(text, "Show skipped suggestions", showSkipped);
  else showNoCard(text);
  setStatus("No suggestion is left.");
}

function showSkipped() {
  skipped = new Set();
  nextSuggestion();
}

function showCard(suggestion, { learnt, references }, focus) {
  const isShown = card && keyOf(card) === keyOf(suggestion);
  card = suggestion;
  if (isShown) return;
  const { head_name, rank, probability } = suggestion;
  const likely = hasProbability(suggestion) ? `${formatPercent(probability)} likely. ` : "";
  const corrected = learnt ? `, corrected by ${plural(learnt, "pair")} of the project` : "";
  const basis = `From ${plural(references, "reference")}${corrected}.`;
  const keyed = (label, key, attributes) => {
    const made = button(`${label} `, { ...attributes, "aria-keyshortcuts": key });
    made.append(element("kbd", { "aria-hidden": "true" }, key));
    return made;
  };
  const verdict = (name, label, key, onclick) =>
    keyed(label, key, { class: `verdict ${name}`, onclick });
  const expanded = { "aria-expanded": String(state.withReasons), onclick: toggleCardReasons };
  $("card").replaceChildren(
    element("p", { class: "hint" }, "Is this right?"),
    element(
      "h3",
      {},
      ...endParts(suggestion, "head"),
      element("em", {}, ` ${withSpaces(relationName())} `),
      ...endParts(suggestion, "tail"),
    ),
    element(
      "p",
      { class: "hint" },
      `${likely}Rank ${formatCount(rank)} among the tails of ${head_name}. `,
      element("span", { title: IN_STEPS }, basis),
    ),
    element(
      "div",
      { class: "verdicts" },
      verdict("no", "Reject", "R", () => judge("rejected")),
      verdict("later", "Skip", "S", skip),
      verdict("yes", "Accept", "A", () => judge("accepted")),
    ),
    keyed("Reasons", "E", { class: "quiet", id: "card-why", ...expanded }),
  );
  setStatus(`${pairText(suggestion)}?`);
  if (state.withReasons) showCardReasons();
  if (!focus) return;
  $("card").focus({ preventScroll: true });
  $("card").scrollIntoView({ block: "nearest" });
}

function showCardReasons() {
  const container = element("div", { class: "reasons" });
  $("card").append(container);
  const relation = relationInGraph();
  const { rejected } = projectPairs();
  const references = read.length ? { references: read } : {};
  const query = { ...references, rejected, ...(relation ? { relation } : {}) };
  return loadReasons(container, query, card);
}

export function toggleCardReasons() {
  if (!card) return;
  const open = $("card").querySelector(".reasons");
  state.withReasons = !open;
  saveState();
  $("card-why").setAttribute("aria-expanded", String(!open));
  if (open) open.remove();
  else showCardReasons();
}

export async function judge(kind) {
  if (!card || judging) return;
  judging = true;
  try {
    if (await decide([card], kind)) await nextSuggestion();
  } finally {
    judging = false;
  }
}

export function skip() {
  if (!card || judging) return;
  skipped.add(keyOf(card));
  nextSuggestion();
}

on("project", () => {
  searching?.abort();
  card = null;
  skipped = new Set();
  poolSize = POOL;
  $("card").replaceChildren();
  $("pool").hidden = true;
  ranked = null;
  if (deciding()) beginSuggestions({ focus: false });
});
on("references", () => {
  if (deciding() && !card) nextSuggestion({ focus: false });
});
on("decisions", () => {
  // Another curator has decided on the pair shown.
  if (deciding() && card && kindOf(card) && !judging) nextSuggestion({ focus: false });
});
on("undone", (pair) => {
  if (!deciding()) return;
  skipped.delete(keyOf(pair));
  nextSuggestion();
});
for (const input of document.querySelectorAll("input[name=order]")) {
  input.addEventListener("change", () => {
    state.order = input.value;
    saveState();
    beginSuggestions({ focus: false });
  });
}
$("pool-more").addEventListener("click", searchMore);
