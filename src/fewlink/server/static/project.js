// The open project and its decisions. The server stores them; this module keeps a copy and notices other curators.

import { call } from "./api.js";
import { announce } from "./dom.js";
import { emit } from "./events.js";
import { curator, saveState, state } from "./state.js";
import { pairText, plural } from "./text.js";

const MAX_REJECTED = 1000; // pairs of one request

export const VERBS = {
  reference: "added the reference",
  accepted: "accepted",
  rejected: "rejected",
  undo: "undid",
};

export let projects = []; // all projects of the server
export let project = null; // the open one
export let projectNotes = []; // the server's notes on it
let decisions = new Map(); // its decision in force on each pair
let ownActs = []; // event numbers of each act of this curator on this page, newest last
let queue = Promise.resolve();

export const keyOf = (pair) => JSON.stringify([pair.head, pair.tail]);

// The decision in force on a pair, or undefined: `kind`, `who`, `number` and, if curators disagree, `conflict`.
export const decisionOn = (pair) => decisions.get(keyOf(pair));

export const kindOf = (pair) => decisionOn(pair)?.kind ?? "";

export const decisionsOf = (kind) => [...decisions.values()].filter((one) => one.kind === kind);

export const conflicts = () => [...decisions.values()].filter((one) => one.conflict);

export function curatorName(name) {
  if (!name) return "someone without a name";
  return name === curator() ? "you" : name;
}

// What a curator did, such as "bob rejected".
export const whoDid = (decision) => `${curatorName(decision.who)} ${VERBS[decision.kind]}`;

// The pairs of the project that a ranking reads: references and accepted pairs, and rejected pairs. Pairs with
// entities that are not in the graph are left out.
export function projectPairs() {
  const pairs = (kind) =>
    decisionsOf(kind)
      .filter((one) => one.known)
      .map((one) => [one.head, one.tail]);
  const references = [...pairs("reference"), ...pairs("accepted")];
  const rejected = pairs("rejected").slice(-MAX_REJECTED);
  return {
    ...(references.length ? { references } : {}),
    ...(rejected.length ? { rejected } : {}),
  };
}

export async function loadProjects() {
  projects = (await call("projects")).projects;
}

function take(answer) {
  project = answer ? answer.project : null;
  projectNotes = answer ? answer.notes : [];
  decisions = new Map(answer ? answer.decisions.map((one) => [keyOf(one), one]) : []);
}

// Opens a project; null closes the open one. `keepList`: the listed suggestions belong to the new project.
export async function openProject(number, { keepList = false } = {}) {
  take(number === null ? null : await call(`projects/${number}/decisions`));
  ownActs = [];
  if (state.project !== number) state.relation = "";
  state.project = number;
  saveState();
  if (project && !projects.some((one) => one.number === number)) await loadProjects();
  emit("project", { keepList });
}

// Runs actions that change the project one after another.
export function enqueue(action) {
  const done = queue.then(action);
  queue = done.catch(() => {});
  return done;
}

// Reads all decisions and returns those that other curators have made since the last reading.
export async function readDecisions() {
  const { number } = project;
  const before = decisions;
  const answer = await call(`projects/${number}/decisions`);
  if (project?.number !== number) return [];
  take(answer);
  emit("decisions");
  return answer.decisions.filter(
    (one) => one.who !== curator() && before.get(keyOf(one))?.number !== one.number,
  );
}

// Reads all decisions after some were stored. If that fails, `checkForNews` reads them later.
async function tryToRead() {
  try {
    await readDecisions();
  } catch {
    // the banner says that the server is not responding
  }
}

// Stores decisions, all or none, and returns them as stored; null if another project was opened meanwhile.
export async function storeDecisions(wanted) {
  const { number, events } = project;
  const answer = await call(`projects/${number}/decisions`, { who: curator(), decisions: wanted });
  if (project?.number !== number) return null;
  const stored = answer.decisions.filter((one) => one.number !== decisionOn(one)?.number);
  if (stored.length) ownActs.push(stored.map((one) => one.number));
  for (const one of answer.decisions) decisions.set(keyOf(one), one);
  if (answer.project.events === events + answer.decisions.length) project = answer.project;
  else await tryToRead(); // others have decided meanwhile
  emit("decisions", answer.decisions);
  return answer.decisions;
}

// Undoes events by their numbers, or this curator's last decision; returns the undone decision.
export async function undoEvents(numbers) {
  const body = { who: curator(), ...(numbers ? { events: numbers } : {}) };
  const answer = await call(`projects/${project.number}/undo`, body);
  const undone = numbers || [answer.undone.number];
  ownActs = ownActs
    .map((act) => act.filter((number) => !undone.includes(number)))
    .filter((act) => act.length);
  await tryToRead();
  announce(
    answer.count > 1
      ? `Undid ${plural(answer.count, "decision")}.`
      : `Undone: ${pairText(answer.undone)}.`,
  );
  return answer.undone;
}

export const lastAct = () => ownActs.at(-1);

export function forgetAct(act) {
  ownActs = ownActs.filter((one) => one !== act);
}

// Looks for decisions of other curators; one small request unless there are any.
export async function checkForNews() {
  const { number, events } = project;
  const facts = await call(`projects/${number}`);
  const unchanged = project?.number === number && events === project.events;
  if (!unchanged || facts.events === events) return;
  const news = await enqueue(readDecisions);
  if (news.length === 1) announce(`${whoDid(news[0])} ${pairText(news[0])}.`);
  else if (news.length) {
    const names = [...new Set(news.map((one) => curatorName(one.who)))];
    announce(`${plural(news.length, "new decision")} by ${names.join(", ")}.`);
  }
}
