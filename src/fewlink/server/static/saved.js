// What this browser remembers, separately for each graph: the fields, which project is open, and the last ranking.
// Decisions are never here: the server keeps them.

const EMPTY = {
  references: [], relation: "", mode: "heads", heads: [], many: "open", type: null, candidates: "open", candidatesType: null, k: 10,
  withKnown: false, constraints: [], project: null, view: "list", order: "best", withReasons: true,
};
const CURATOR = "fewlink:who";

let state = {...EMPTY};
let place = null; // the key in localStorage, once the graph is known

function remember(graph) {
  place = `fewlink:${graph}`;
  try {
    const stored = JSON.parse(localStorage.getItem(place) || "{}");
    for (const [name, usual] of Object.entries(EMPTY)) {
      const value = stored[name];
      if (value !== undefined && Array.isArray(value) === Array.isArray(usual)) state[name] = value;
    }
    $("who").value = localStorage.getItem(CURATOR) || "";
  } catch {
    state = {...EMPTY}; // not readable: start empty
  }
}

function keep() {
  if (!place) return;
  try {
    localStorage.setItem(place, JSON.stringify(state));
  } catch {
    // storage may be unavailable or full; the page works without it
  }
}

function keepWho() {
  try {
    localStorage.setItem(CURATOR, $("who").value.trim());
  } catch {
    // the name is asked for again
  }
}

function keepRanking(ranking) {
  // Rows of the last query, which may have taken long; null removes them.
  if (!place) return;
  try {
    localStorage.removeItem(`${place}:ranking`); // should the new one be too large, no old one stays
    if (ranking) localStorage.setItem(`${place}:ranking`, JSON.stringify({...ranking, of: rankedBy()}));
  } catch {
    // storage may be unavailable or full; the page works without it
  }
}

function keptRanking() {
  // The last ranking, if this server with this model made it for the open project.
  try {
    const stored = JSON.parse(localStorage.getItem(`${place}:ranking`) || "null");
    return stored && stored.of === rankedBy() && Array.isArray(stored.answer.predictions) ? stored : null;
  } catch {
    return null;
  }
}

const rankedBy = () => JSON.stringify([about.version, about.model, about.graph, state.project]);
