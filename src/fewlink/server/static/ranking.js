// Ranking what the form says: in one request, or many heads in several requests that can be stopped and continued.

import { about, call } from "./api.js";
import { $, setStatus } from "./dom.js";
import { setFolded } from "./fold.js";
import { on } from "./events.js";
import { placeOf, readQuery } from "./form.js";
import { byMerit, showList } from "./list.js";
import { clearProblem, showProblem } from "./problem.js";
import { project } from "./project.js";
import { storeReferences } from "./references.js";
import { savedRanking, saveRanking } from "./state.js";
import { formatCount, formatDuration, plural } from "./text.js";

const FIRST_HEADS = 16; // of many heads; then as many at a time as take a few seconds

let running = null; // the AbortController of the ranking under way
let task = null; // a ranking of many heads that is not finished: {query, next, answer, secondsLeft}

// Ranks what the form says.
export async function rank() {
  await run(async (signal) => {
    await storeReferences();
    const { body, rows } = readQuery();
    task = null;
    const query = {
      ...body,
      topic: JSON.stringify([body.relation, ...[...(body.references ?? [])].sort()]),
      events: project?.events,
    };
    try {
      if (body.heads_of_type) {
        task = { query, body, next: 0, answer: null, secondsLeft: 0 };
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
  saveRanking({ answer, query, next: task ? task.next : null });
}

// Ranks some heads at a time and shows the best pairs so far after each request.
async function rankMany(signal) {
  const own = task;
  const { query, body, next: start } = own;
  const limit = about.limits.heads;
  const began = performance.now();
  let count = body.constraints ? limit : FIRST_HEADS; // constraints hold between the pairs of all heads
  let finished = false;
  showProgress();
  while (!finished) {
    setStatus("Ranking…");
    const sent = performance.now();
    const chunk = { ...body, first: own.next, count: Math.min(count, limit) };
    const answer = await call("predict", chunk, signal);
    const seconds = (performance.now() - sent) / 1000;
    if (seconds < 1) count *= 2;
    else if (seconds > 4) count = Math.max(1, Math.round((2 * count) / seconds));
    own.answer = merge(own.answer, answer, body.k);
    own.next += answer.heads;
    const pace = (performance.now() - began) / 1000 / Math.max(1, own.next - start);
    own.secondsLeft = pace * (answer.heads_in_all - own.next);
    finished = !answer.heads || own.next >= answer.heads_in_all;
    show(own.answer, query, own.next === answer.heads);
    showProgress();
  }
  task = null;
}

// The best k pairs of both answers; there may be none before.
function merge(before, answer, k) {
  if (!before) return answer;
  return {
    ...answer,
    predictions: [...before.predictions, ...answer.predictions].sort(byMerit).slice(0, k),
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
    $("progress-text").textContent = "Ranking the first heads…";
    return;
  }
  const done = `${formatCount(task.next)} of ${plural(total, "head")}`;
  $("progress-text").textContent = running
    ? `${done}, about ${formatDuration(task.secondsLeft)} left`
    : `${done} ranked`;
}

// Shows the last ranking as it was when the page was left.
export function restoreRanking() {
  const saved = savedRanking();
  if (!saved) return;
  const { answer, query, next } = saved;
  const { topic, events, ...body } = query;
  if (next !== null && next < answer.heads_in_all) {
    task = { query, body, next, answer, secondsLeft: 0 };
  }
  showList(answer, query, false);
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
