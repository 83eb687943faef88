// The start of the page, and what connects its parts.

import "./bulk.js";
import "./keyboard.js";
import { about, call, offline, setAbout } from "./api.js";
import { beginSuggestions } from "./decide.js";
import { $, checkedValue, element } from "./dom.js";
import { arrange, readForm, showForm } from "./form.js";
import { isLink, openLink } from "./link.js";
import { markQuestionChanged, returnToList, showHint } from "./list.js";
import { clearProblem, showProblem } from "./problem.js";
import { checkForNews, loadProjects, openProject, project, projects } from "./project.js";
import { showProjectChoice } from "./project-panel.js";
import { rank, restoreRanking } from "./ranking.js";
import { referenceInputs } from "./references.js";
import { showProjects, showRelations } from "./start.js";
import { deciding, restoreState, saveState, state } from "./state.js";
import { capitalized, plural } from "./text.js";
import { goTo, inWork, showView } from "./views.js";

const POLL = 3000; // milliseconds between two checks for decisions of others
const MODELS = {
  trail: "TRAIL",
  fsrl: "FSRL",
  metar: "MetaR",
  ultra: "ULTRA",
  trix: "TRIX",
};

let examples = 0;
let starting = null;

function showAbout() {
  const { graph, calibration, model, limits, constraints, version } = about;
  const facts = [
    plural(graph.entities, "entity", "entities"),
    plural(graph.relations, "relation"),
    plural(graph.triples, "triple"),
  ];
  if (!calibration || calibration.rough) {
    facts.push("ranks without percentages");
  }
  $("graph-name").textContent = graph.name;
  $("about").textContent = [...facts, `answers by ${MODELS[model] || model}`].join(" · ");
  $("constraints").append(
    ...Object.entries(constraints).map(([kind, meaning]) =>
      element(
        "label",
        { class: "check" },
        element("input", { type: "checkbox", value: kind }),
        element("span", {}, capitalized(meaning)),
      ),
    ),
  );
  $("k").max = limits.k;
  $("version").textContent = `fewlink ${version}`;
  document.title = `${graph.name} · fewlink`;
}

function start() {
  starting ??= load().finally(() => {
    starting = null;
  });
  return starting;
}

async function load() {
  const facts = await call("about");
  await loadProjects();
  setAbout(facts);
  restoreState();
  showAbout();
  showProjectChoice();
  showProjects();
  showRelations();
  if (!projects.some((one) => one.number === state.project)) state.project = null;
  if (isLink()) {
    await openLink();
    return;
  }
  if (state.project !== null) await openProject(state.project);
  restoreRanking();
  showForm();
  showHint();
  if (deciding() && inWork()) beginSuggestions({ focus: false });
}

async function poll() {
  if (document.hidden) return;
  try {
    if (!about) await start();
    else if (project) await checkForNews();
    else if (offline) await call("health");
  } catch {
    // the banner says that the server is not responding
  }
}

async function showExample() {
  try {
    const { relation, references, heads } = await call(`example?number=${examples++}`);
    if (project) await openProject(null);
    goTo("work");
    const question = { references, heads, relation, mode: "heads", view: "list" };
    Object.assign(state, { ...question, example: true });
    showForm();
    saveState();
    $("query").requestSubmit();
  } catch (error) {
    showProblem(error);
  }
}

function clearForm() {
  Object.assign(state, { references: [], heads: [], relation: "", type: null, constraints: [] });
  showForm();
  clearProblem();
  saveState();
  referenceInputs()[0][0].focus();
}

// Keeps the end of a form in view that is taller than the window.
function placeSidebar() {
  const top = Math.min(16, innerHeight - $("side").offsetHeight - 16);
  $("side").style.setProperty("--top", `${top}px`);
}

// Moves to suggestions when their page is opened.
function enterWork() {
  if (inWork() && deciding()) beginSuggestions({ focus: false });
}

$("query").addEventListener("input", () => {
  state.example = false;
  arrange();
  readForm();
  markQuestionChanged();
});
$("query").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!deciding()) rank();
  else {
    readForm();
    beginSuggestions();
  }
});
$("example").addEventListener("click", showExample);
$("clear").addEventListener("click", clearForm);
$("shortcuts-open").addEventListener("click", () => $("shortcuts").showModal());
for (const input of document.querySelectorAll("input[name=view]")) {
  input.addEventListener("change", () => {
    state.view = checkedValue("view");
    saveState();
    arrange();
    if (deciding()) beginSuggestions({ focus: false });
    else returnToList();
  });
}
for (const button of document.querySelectorAll("dialog .close")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}
new ResizeObserver(placeSidebar).observe($("side"));
addEventListener("resize", placeSidebar);
document.addEventListener("visibilitychange", poll);
setInterval(poll, POLL);

$("to-work").addEventListener("click", (event) => {
  event.preventDefault();
  goTo("work");
  enterWork();
});

showView();
showForm();
start().catch(showProblem);
