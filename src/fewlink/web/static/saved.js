// What is kept in this browser: the question, and every decision, apart for each graph.

const EMPTY = {
  references: [], relation: "", mode: "heads", heads: [], type: null, candidates: "open", candidatesType: null, k: 10,
  withKnown: false, base: "http://example.org/", accepted: [], rejected: [],
};
const KEPT = 5000; // decisions of a kind

let state = {...EMPTY};
let place = null; // the key in localStorage, once the graph is known

function remember(graph) {
  place = `fewlink:${graph}`;
  try {
    const kept = JSON.parse(localStorage.getItem(place) || "{}");
    for (const [name, usual] of Object.entries(EMPTY)) {
      const value = kept[name];
      if (value !== undefined && Array.isArray(value) === Array.isArray(usual)) state[name] = value;
    }
  } catch {
    state = {...EMPTY}; // not readable: begin anew
  }
}

function keep() {
  if (!place) return;
  for (const kind of ["accepted", "rejected"]) state[kind] = state[kind].slice(-KEPT);
  try {
    localStorage.setItem(place, JSON.stringify(state));
  } catch {
    // private windows and full disks keep nothing; the page works all the same
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
