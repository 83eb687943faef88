// State stored in this browser, separately for each graph: the query and every decision.

const EMPTY = {
  references: [], relation: "", mode: "heads", heads: [], type: null, candidates: "open", candidatesType: null, k: 10,
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
