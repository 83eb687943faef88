// Ranking what the form says: in one request, or many heads in several requests that can be stopped and continued.

import { about, call } from "./api.js";
import { $, setStatus } from "./dom.js";
import { on } from "./events.js";
import { placeOf, questionText, readQuery } from "./form.js";
import { byMerit, markQuestionChanged, removeHint, showList } from "./list.js";
import { clearProblem, showProblem } from "./problem.js";
import { project } from "./project.js";
import { storeReferences } from "./references.js";
import { savedRanking, saveRanking, state } from "./state.js";
import { formatCount, formatDuration, formatPace, plural } from "./text.js";
import { setFolded } from "./views.js";

const FIRST_HEADS = 16; // of many heads; then as many at a time as take a few seconds
const MAX_PAIRS = 50_000; // that are kept of many heads
const MAX_SAVED = 1000; // pairs that this browser remembers

let running = null; // the AbortController of the ranking under way
let task = null; // a ranking of many heads that is not finished: {query, next, answer, pace}

// Ranks what the form says.
export async function rank() {
  await run(async (signal) => {
    await storeReferences();
    const { body, rows } = readQuery();
    task = null;
    removeHint();
    saveRanking(null);
    const query = {
      ...body,
      topic: JSON.stringify([body.relation, ...[...(body.references ?? [])].sort()]),
      events: project?.events,
    };
    try {
      if (body.heads_of_type) {
        task = { query, body, next: 0, answer: null, pace: 0 };
        await rankMany(signal);
      } else {
        setStatus("Ranking…");
        show(await call("predict", body, signal), query);
      }
    } catch (error) {
      if (error.name !== "AbortError") error.place = placeOf(error, rows);
      throw error;
    }
  });
}

async function run(action) {
  clearProblem();
  running?.abort();
  const own = (running = new AbortController());
  $("rank").setAttribute("aria-busy", "true");
  try {
    await action(own.signal);
  } catch (error) {
    if (error.name !== "AbortError") showProblem(error, error.place);
    else if (running === own) showStopped();
  } finally {
    if (running === own) {
      running = null;
      $("rank").removeAttribute("aria-busy");
      showProgress();
    }
  }
}

function showStopped() {
  if (task?.answer) showList(task.answer, task.query, false);
  else setStatus("Stopped.");
}

function show(answer, query, focus = true) {
  setFolded(true);
  showList(answer, query, focus);
  const saved = { ...answer, predictions: answer.predictions.slice(0, MAX_SAVED) };
  saveRanking({ answer: saved, query, form: questionText(), next: task ? task.next : null });
}

// Ranks some heads at a time and shows the pairs so far after each request, the best first.
async function rankMany(signal) {
  const own = task;
  const { query, body, next: start } = own;
  const { heads, k, rows } = about.limits;
  const began = performance.now();
  // Constraints hold between the pairs of all heads: one request finds the best pairs.
  const wanted = body.constraints ? { k } : { per_head: state.perHead };
  const limit = body.constraints ? heads : Math.min(heads, Math.floor(rows / state.perHead));
  let count = body.constraints ? limit : FIRST_HEADS;
  let finished = false;
  showProgress();
  while (!finished) {
    setStatus("Ranking…");
    const sent = performance.now();
    const chunk = { ...body, ...wanted, first: own.next, count: Math.min(count, limit) };
    const answer = withAnswered(await call("predict", chunk, signal));
    const seconds = (performance.now() - sent) / 1000;
    if (seconds < 1) count *= 2;
    else if (seconds > 4) count = Math.max(1, Math.round((2 * count) / seconds));
    own.answer = merge(own.answer, answer);
    own.next += answer.heads;
    own.pace = (1000 * (own.next - start)) / (performance.now() - began);
    finished = !answer.heads || own.next >= answer.heads_in_all;
    show(own.answer, query, own.next === answer.heads);
    showProgress();
  }
  task = null;
}

// Marks the pairs of heads that have a known tail: the others come first.
function withAnswered(answer) {
  const answered = new Set(answer.answered);
  const predictions = answer.predictions.map((one) => ({
    ...one,
    answered: answered.has(one.head),
  }));
  return { ...answer, predictions };
}

// The pairs of both answers, the best first; there may be none before.
function merge(before, answer) {
  if (!before) return { ...answer, predictions: answer.predictions.toSorted(byMerit) };
  const pairs = [...before.predictions, ...answer.predictions];
  return {
    ...answer,
    predictions: pairs.sort(byMerit).slice(0, MAX_PAIRS),
    notes: [...new Set([...before.notes, ...answer.notes])],
    tail_types: { ...before.tail_types, ...answer.tail_types },
    heads: before.heads + answer.heads,
  };
}

function showProgress() {
  $("progress").hidden = !task || (!running && !task.answer);
  if (!task) return;
  const total = task.answer ? task.answer.heads_in_all : 0;
  $("progress-bar").hidden = !running;
  $("progress-bar").value = total ? task.next / total : 0;
  $("stop").textContent = running ? "Stop" : "Continue";
  if (!total) {
    $("progress-text").textContent = "Ranking the first heads, to estimate the time…";
    return;
  }
  const done = `${formatCount(task.next)} of ${plural(total, "head")}`;
  $("progress-text").textContent =
    running && task.pace
      ? `${done}, ${formatPace(task.pace)}, about ${formatDuration((total - task.next) / task.pace)} left`
      : `${done} ranked`;
}

// Shows the last ranking as it was when the page was left.
export function restoreRanking() {
  const saved = savedRanking();
  if (!saved) return;
  const { answer, query, next } = saved;
  const { topic, events, ...body } = query;
  if (next !== null && next < answer.heads_in_all) {
    task = { query, body, next, answer, pace: 0 };
  }
  showList(answer, query, false);
  if (saved.form !== questionText()) markQuestionChanged();
  showProgress();
}

on("project", ({ keepList }) => {
  if (keepList) return;
  task = null;
  running?.abort();
  showProgress();
});
$("stop").addEventListener("click", () => {
  if (running) running.abort();
  else run(rankMany);
});
