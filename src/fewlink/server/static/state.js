// What this browser remembers for each graph: the form, the open project and the last ranking.
// Decisions are stored by the server only.

import { about } from "./api.js";
import { $ } from "./dom.js";

const EMPTY = {
  references: [],
  relation: "",
  example: false, // whether the question is an example, as it was offered
  mode: "heads",
  heads: [],
  tails: [],
  perHead: 3,
  many: "open",
  type: null,
  candidates: "open",
  candidatesType: null,
  k: 10,
  withKnown: false,
  constraints: [],
  project: null,
  view: "list",
  order: "best",
  withReasons: true,
};
const CURATOR = "fewlink:who";

export const state = { ...EMPTY };

export const deciding = () => state.view === "decide";

export const curator = () => $("who").value.trim();

let storageKey = null; // known once the server has named its graph

export function restoreState() {
  storageKey = `fewlink:${about.graph.name}:${about.graph.entities}`;
  try {
    const stored = JSON.parse(localStorage.getItem(storageKey) || "{}");
    for (const [name, initial] of Object.entries(EMPTY)) {
      const value = stored[name];
      if (value !== undefined && Array.isArray(value) === Array.isArray(initial)) {
        state[name] = value;
      }
    }
    $("who").value = localStorage.getItem(CURATOR) || "";
  } catch {
    Object.assign(state, EMPTY);
  }
}

// Storage may be unavailable or full: the page works without it.
function store(key, value) {
  try {
    localStorage.removeItem(key); // should the new value not fit, no stale one stays
    localStorage.setItem(key, value);
  } catch {
    // nothing is remembered
  }
}

export function saveState() {
  if (storageKey) store(storageKey, JSON.stringify(state));
}

export function saveCurator() {
  store(CURATOR, curator());
}

const rankingSource = () =>
  JSON.stringify([about.version, about.model, about.graph, state.project]);

// Remembers a ranking; null forgets the last one.
export function saveRanking(ranking) {
  if (!storageKey) return;
  const saved = ranking && { ...ranking, of: rankingSource() };
  store(`${storageKey}:ranking`, JSON.stringify(saved));
}

// The last ranking, if this server with this model made it for the open project; else null.
export function savedRanking() {
  try {
    const stored = JSON.parse(localStorage.getItem(`${storageKey}:ranking`));
    return stored.of === rankingSource() && Array.isArray(stored.answer.predictions)
      ? stored
      : null;
  } catch {
    return null;
  }
}
