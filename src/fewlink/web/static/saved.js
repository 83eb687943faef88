// State stored in this browser, separately for each graph: the query, every decision, and the last ranking.

const EMPTY = {
  references: [], relation: "", mode: "heads", heads: [], many: "open", type: null, candidates: "open", candidatesType: null, k: 10,
  withKnown: false, base: "http://example.org/", accepted: [], rejected: [],
};
const MOST_DECISIONS = 5000; // accepted, and rejected

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
  } catch {
    state = {...EMPTY}; // not readable: start empty
  }
}

function keep() {
  if (!place) return;
  for (const kind of ["accepted", "rejected"]) state[kind] = state[kind].slice(-MOST_DECISIONS);
  try {
    localStorage.setItem(place, JSON.stringify(state));
  } catch {
    // storage may be unavailable or full; the page works without it
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
  // The last ranking, if this server with this model made it.
  try {
    const stored = JSON.parse(localStorage.getItem(`${place}:ranking`) || "null");
    return stored && stored.of === rankedBy() && Array.isArray(stored.answer.predictions) ? stored : null;
  } catch {
    return null;
  }
}

const rankedBy = () => JSON.stringify([about.version, about.model, about.graph]);

const samePair = (one, other) => one.topic === other.topic && one.head === other.head && one.tail === other.tail;

function decisionOn(pair) {
  if (state.accepted.some(one => samePair(one, pair))) return "yes";
  return state.rejected.some(one => samePair(one, pair)) ? "no" : "";
}

function decide(pair, decision) {
  state.accepted = state.accepted.filter(one => !samePair(one, pair));
  state.rejected = state.rejected.filter(one => !samePair(one, pair));
  if (decision === "yes") state.accepted.push({...pair, relation: state.relation.trim()});
  if (decision === "no") state.rejected.push({topic: pair.topic, head: pair.head, tail: pair.tail});
  keep();
}
