// The project: what curators decided is kept by the server; this page shows it, adds to it, and notices others' decisions.

const LISTED = 100; // pairs of a list that are shown until more are asked for
const VERBS = {reference: "gave as a reference", accepted: "accepted", rejected: "rejected", undo: "took back"};
const POLL = 3000; // milliseconds between two looks for decisions of others

let projects = [], project = null; // all of the server, and the chosen one
let decided = new Map(); // of the chosen project: what counts for each pair
let acts = []; // events of each act of this curator on this page, newest last: what an undo takes back
let storing = Promise.resolve(); // decisions are sent one after another
let restLabel = "Left", restCount = null;

const keyOf = pair => JSON.stringify([pair.head, pair.tail]);
const decisionOn = pair => (project && decided.get(keyOf(pair)) || {kind: ""}).kind;
const statesOf = kind => [...decided.values()].filter(state => state.kind === kind);
let projectNotes = []; // what the server says of the chosen project: pairs that this graph lacks
const who = () => $("who").value.trim();
const nameOfCurator = name => name ? name === who() ? "you" : name : "someone without a name";
const pairText = pair => `${pair.head_name} → ${pair.tail_name}`;
const relationName = () => project ? project.name : $("relation").value.trim() || "?";

function inTurn(act) {
  const done = storing.then(act);
  storing = done.catch(() => {});
  return done;
}

function asReferences() {
  // What a ranking reads of the project: references, then accepted pairs, newest first, as a model may read only some; and rejected ones.
  // Pairs with entities that this graph lacks are left out.
  const ids = states => states.filter(state => state.known).map(state => [state.head, state.tail]), given = ids(statesOf("reference"));
  const accepted = ids(statesOf("accepted")).reverse();
  const rejected = ids(statesOf("rejected")).slice(-1000);
  return {references: [...given, ...accepted].slice(0, about.limits.references), ...(rejected.length ? {rejected} : {})};
}

async function loadProjects() {
  projects = (await call("projects")).projects;
  if (about) showChoice();
}

async function chooseProject(number, sameList = false) {
  // Opens a project, or none for null; suggestions of the one before are not shown on, unless they are its own.
  const facts = number === null ? null : (await call(`projects/${number}/decisions`));
  project = facts && facts.project;
  projectNotes = facts ? facts.notes : [];
  decided = new Map(facts ? facts.decisions.map(state => [keyOf(state), state]) : []);
  acts = [];
  if (state.project !== number) $("relation").value = state.relation = "";
  if (!sameList) forgetList();
  forgetCards();
  state.project = number;
  keep();
  if (project && !projects.some(one => one.number === number)) await loadProjects();
  countLeft(null);
  changedDecisions();
  showChoice();
  arrange();
  if (deciding()) nextPair(false);
}

async function readDecisions() {
  const {number} = project, before = decided, answer = await call(`projects/${number}/decisions`);
  if (!project || project.number !== number) return;
  project = answer.project;
  projectNotes = answer.notes;
  decided = new Map(answer.decisions.map(state => [keyOf(state), state]));
  changedDecisions();
  return answer.decisions.filter(state => state.who !== who() && (before.get(keyOf(state)) || {}).number !== state.number);
}

async function readNow() {
  // Reads all decisions after some were stored; if that fails, `refresh` does it later, as the number of events differs.
  try {
    await readDecisions();
  } catch {
    // the banner says that the server does not answer
  }
}

async function refresh() {
  // Looks for decisions of other curators; a question about one number unless there are any.
  if (document.hidden) return;
  try {
    if (!about) return await start();
    if (!project) return offline() ? await call("health") : undefined;
    const {number, events} = project, facts = await call(`projects/${number}`);
    if (!project || project.number !== number || facts.events === project.events || events !== project.events) return;
    const news = await inTurn(readDecisions);
    if (news && news.length === 1) say(`${nameOfCurator(news[0].who)} ${VERBS[news[0].kind]} ${pairText(news[0])}.`);
    else if (news && news.length) say(`${plural(news.length, "new decision")} by ${[...new Set(news.map(one => nameOfCurator(one.who)))].join(", ")}.`);
    cardDecidedElsewhere();
  } catch {
    // the banner says that the server does not answer
  }
}

function decide(pairs, kind) {
  // Stores decisions on some pairs, all or none; resolves to whether they are stored.
  return inTurn(async () => {
    try {
      if (!project && !await newProject("A project keeps what you decide. Make one to store this decision.")) return false;
      const {number, events} = project, decisions = pairs.map(({head, tail, base_probability: probability}) => ({head, tail, decision: kind, ...(Number.isFinite(probability) ? {probability} : {})}));
      const answer = await call(`projects/${number}/decisions`, {who: who(), decisions});
      if (!project || project.number !== number) return false;
      acts.push(answer.decisions.map(state => state.number));
      for (const state of answer.decisions) decided.set(keyOf(state), state);
      if (answer.project.events === events + answer.decisions.length) project = answer.project;
      else await readNow(); // others decided meanwhile
      changedDecisions(answer.decisions);
      tellConflicts(answer.decisions);
      return true;
    } catch (error) {
      notStored(error);
      return false;
    }
  });
}

function takeBack(events) {
  // Undoes these events, or the curator's last decision; resolves to whether it was done.
  return inTurn(async () => {
    try {
      const answer = await call(`projects/${project.number}/undo`, {who: who(), ...(events ? {events} : {})});
      acts = acts.map(act => act.filter(event => !(events || [answer.undone.number]).includes(event))).filter(act => act.length);
      await readNow();
      say(answer.count > 1 ? `Took back ${plural(answer.count, "decision")}.` : `Took back: ${pairText(answer.undone)}.`);
      return answer.undone;
    } catch (error) {
      notStored(error);
      return null;
    }
  });
}

async function undo() {
  await storing;
  if (!project) return say("Nothing to undo: no project is open.");
  const act = acts.pop(), undone = await takeBack(act);
  if (undone) backTo(undone);
  else if (act && offline()) acts.push(act); // to try again
}

function notStored(error) {
  say(`Not stored: ${error.message}`);
}

function tellConflicts(states) {
  const conflict = states.find(state => state.conflict);
  if (conflict) say(`Stored, but ${nameOfCurator(conflict.conflict.who)} ${VERBS[conflict.conflict.kind]} ${pairText(conflict)} before.`);
}

function changedDecisions(states) {
  // Shows the project again, and the rows of these states or all rows.
  showProject();
  markRows(states);
  showDecided();
}

const countLeft = (count, label = "Left") => { restCount = count; restLabel = label; showCounts(); };

function showChoice() {
  $("project-choice").replaceChildren(make("option", {value: ""}, projects.length ? "No project: only look" : "No project yet"),
    ...projects.map(one => make("option", {value: one.number}, one.name)));
  $("project-choice").value = project ? project.number : "";
}

function showProject() {
  const open = Boolean(project);
  $("project-facts").hidden = !open;
  $("project-hint").textContent = !open ? "A project keeps references and decisions of a relation on this server, for you and others." : project.description;
  $("project-hint").hidden = open && !project.description;
  $("relation-label").textContent = open ? "Its name in the graph, if it is there" : "Name of the relation";
  $("project-references").hidden = !open;
  $("references-hint").textContent = open ? "Pairs that the relation holds for. Accepted pairs count too. Add one:" : "Pairs that the relation holds for. Two columns can be pasted.";
  if (open) {
    const removable = state => pairItem(state, "Remove the reference");
    $("project-references").replaceChildren(...statesOf("reference").slice(0, LISTED).map(removable));
  }
  $("lacking").hidden = !open || !projectNotes.length;
  $("lacking").textContent = projectNotes.map(sentenceOf).join(" ");
  showCounts();
  showConflicts();
}

function showCounts() {
  if (!project) return;
  const counts = {References: project.references, Accepted: project.accepted, Rejected: project.rejected, ...(restCount === null ? {} : {[restLabel]: restCount})};
  $("counts").replaceChildren(...Object.entries(counts).map(([label, count]) =>
    make("div", {class: "number"}, make("dt", {}, label), make("dd", {}, count.toLocaleString("en")))));
}

function showConflicts() {
  const states = [...decided.values()].filter(state => state.conflict);
  $("conflicts").hidden = !project || !states.length;
  $("conflicts-title").textContent = plural(states.length, "conflict");
  $("conflicts-list").replaceChildren(...states.slice(-LISTED).reverse().map(state => make("li", {}, make("b", {}, pairText(state)),
    `: ${nameOfCurator(state.conflict.who)} ${VERBS[state.conflict.kind]} it, then ${nameOfCurator(state.who)} ${VERBS[state.kind]} it.`)));
}

function pairItem(pair, label) {
  const end = (id, name) => pair.known === false ? name : entityButton(id, name);
  return make("li", {}, make("span", {}, end(pair.head, pair.head_name), " → ", end(pair.tail, pair.tail_name), pair.known === false ? make("span", {class: "badge"}, "not in this graph") : null,
    pair.who && pair.who !== who() ? make("small", {class: "by"}, ` ${pair.who}`) : null),
  make("button", {type: "button", class: "remove", "aria-label": `${label} ${pairText(pair)}`, title: label, onclick: () => takeBack([pair.number])}, "×"));
}

let shownPairs = LISTED;

function showDecided() {
  const accepted = statesOf("accepted").reverse(), rejected = statesOf("rejected").reverse();
  $("accepted").hidden = !accepted.length && !rejected.length;
  $("accepted-count").textContent = accepted.length.toLocaleString("en");
  $("to-accepted").hidden = !accepted.length;
  $("to-accepted").textContent = `${accepted.length.toLocaleString("en")} accepted`;
  $("accepted-list").replaceChildren(...accepted.slice(0, shownPairs).map(pair => pairItem(pair, "Take back")));
  $("rejected-part").hidden = !rejected.length;
  $("rejected-title").textContent = `Rejected: ${rejected.length.toLocaleString("en")}`;
  $("rejected-list").replaceChildren(...rejected.slice(0, shownPairs).map(pair => pairItem(pair, "Take back")));
  $("more-decided").hidden = Math.max(accepted.length, rejected.length) <= shownPairs;
}

function typedReferences() {
  // Pairs in the fields that are complete.
  return pairs().map(inputs => inputs.map(chosen)).filter(([head, tail]) => head && tail);
}

async function storeReferences() {
  // In a project, pairs that were typed or pasted become its references.
  const typed = typedReferences();
  if (!project || !typed.length) return;
  const {number} = project, decisions = typed.map(([head, tail]) => ({head: head.id, tail: tail.id, decision: "reference"}));
  await inTurn(async () => {
    const answer = await call(`projects/${number}/decisions`, {who: who(), decisions});
    acts.push(answer.decisions.map(state => state.number));
    await readDecisions();
  });
  showPairs(pairs().map(inputs => inputs.map(chosen)).filter(pair => pair.some(Boolean) && !pair.every(Boolean)));
  say(`${plural(typed.length, "reference")} added.`);
}

function newProject(why) {
  // Asks for a name; resolves to whether a project was made and opened.
  const typed = typedReferences();
  $("make-why").textContent = why;
  $("make-name").value = project ? "" : $("relation").value.trim();
  $("make-description").value = "";
  $("make-who").value = who();
  const references = project ? [] : typed;
  $("make-references").textContent = references.length
    ? `References, from the form: ${references.map(([head, tail]) => `${head.name} → ${tail.name}`).join("; ")}.`
    : "References can be added in the form afterwards.";
  complain($("make-name"), null);
  $("make").showModal();
  $("make-name").focus();
  return new Promise(resolve => {
    let made = false;
    $("make-form").onsubmit = async event => {
      event.preventDefault();
      try {
        $("who").value = $("make-who").value;
        keepWho();
        const body = {name: $("make-name").value.trim(), description: $("make-description").value.trim(), references: references.map(pair => pair.map(entity => entity.id)), who: who()};
        if (!body.name) return complain($("make-name"), "Give the project a name.");
        const facts = await call("projects", body);
        const relation = $("relation").value;
        await loadProjects();
        await chooseProject(facts.number, !project);
        showPairs([]);
        $("relation").value = relation;
        changed();
        arrange();
        if (shown) shown.events = project.events;
        made = true;
        say(`Project ${facts.name} made.`);
        $("make").close();
      } catch (error) {
        complain($("make-name"), error.message);
      }
    };
    $("make").onclose = () => resolve(made);
  });
}

async function showLog() {
  const {log} = await call(`projects/${project.number}/log`), undone = new Set(log.map(event => event.undoes));
  const time = text => new Date(text).toLocaleString("en-GB", {dateStyle: "medium", timeStyle: "short"});
  $("log-list").replaceChildren(...log.slice(-300).reverse().map(event => make("li", {class: undone.has(event.number) ? "undone" : null},
    make("span", {}, make("b", {}, event.who || "No name"), ` ${VERBS[event.kind]} ${pairText(event)} `, make("small", {}, time(event.time))),
    event.kind === "undo" || undone.has(event.number) ? null : make("button", {type: "button", class: "quiet", "aria-label": `Take back ${pairText(event)}`, onclick: async () => { await takeBack([event.number]); await showLog(); }}, "Take back"))));
  $("log-note").textContent = log.length > 300 ? `The last 300 of ${log.length.toLocaleString("en")} entries, newest first. The JSON export has all.` : `${plural(log.length, "entry", "entries")}, newest first.`;
  if (!$("log").open) $("log").showModal();
}

async function exportAs(format) {
  const response = await request(`projects/${project.number}/export?format=${format}`);
  const file = `${project.name.replace(/[^\p{L}\p{N}_-]+/gu, "-").slice(0, 60) || "project"}.${format}`;
  const url = URL.createObjectURL(await response.blob());
  make("a", {href: url, download: file}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  say(`Written to ${file}.`);
}

async function importFile(file) {
  const ending = file.name.split(".").at(-1).toLowerCase(), format = {tsv: "tsv", txt: "tsv", nt: "nt", ntriples: "nt", json: "json"}[ending];
  if (!format) throw new Problem({message: `${file.name}: the name must end in .tsv, .nt or .json.`});
  const answer = await call(`projects/${project.number}/import`, {format, text: await file.text(), who: who()});
  await readDecisions();
  say([`${plural(answer.added, "decision")} of ${answer.read.toLocaleString("en")} in ${file.name} added.`, ...answer.notes.map(sentenceOf)].join(" "));
}

const attempt = act => async event => {
  // Runs an act of the project card; an error is shown there.
  $("project-problem").hidden = true;
  try {
    await act(event);
  } catch (error) {
    $("project-problem").textContent = error.message;
    $("project-problem").hidden = false;
  }
};

$("project-choice").addEventListener("change", attempt(() => {
  forgetLink();
  return chooseProject(Number($("project-choice").value) || null);
}));
$("project-new").addEventListener("click", () => newProject("A project is a relation to complete: it keeps references, and who accepted or rejected what."));
$("make-cancel").addEventListener("click", () => $("make").close());
$("who").addEventListener("change", () => { keepWho(); showProject(); showDecided(); });
$("undo").addEventListener("click", undo);
$("log-open").addEventListener("click", attempt(showLog));
for (const format of ["tsv", "nt", "json"]) $(`export-${format}`).addEventListener("click", attempt(() => exportAs(format)));
$("import").addEventListener("click", () => $("import-file").click());
$("import-file").addEventListener("change", attempt(async () => {
  const [file] = $("import-file").files;
  if (file) await importFile(file).finally(() => { $("import-file").value = ""; });
}));
$("more-decided").addEventListener("click", () => { shownPairs += 1000; showDecided(); });
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, POLL);
