// The dialog with the neighbourhood of an entity, as a graph and as an equal list: clicking a neighbour walks to it.

import { call } from "./api.js";
import { $, element } from "./dom.js";
import { Drawing, glyph } from "./neighbourhood-drawing.js";
import { relationName } from "./form.js";
import { decisionsOf, project } from "./project.js";
import { state } from "./state.js";
import { formatCount, plural, shortRelation, stepText, withSpaces } from "./text.js";

const FIRST_NEIGHBOURS = 5; // of each relation
const MORE_NEIGHBOURS = 20;
const RELATIONS = 12; // and how many more each time
const STEPS_DRAWN = 4; // of the walk
const MAX_PATHS = 4;
const MAX_REFERENCES = 5; // of the shown entity
const MARKS = {
  asked: "asked",
  reference: "in a reference",
  path: "on a path",
  visited: "visited",
};

let walk = []; // {id, name, step} of the visited entities; the last one is shown, step leads to it
let groups = []; // the shown relations of the shown entity, with their neighbours
let relationsInAll = 0;
let context = null; // what is marked: {asked, relation, references, paths}
let drawing = null; // made when the dialog is first opened
let loading = null;
let requests = 0;
const kinds = new Map(); // of entities, by id

const dialog = $("neighbourhood");
const title = element("h2", { tabindex: "-1" });
const facts = element("p", { class: "hint", role: "status" });
const back = button("Back", null, () => returnTo(walk.length - 2));
const canvas = element("div", { class: "canvas", role: "img" });
const legend = element("ul", { class: "legend" });
const list = element("div", { class: "neighbours", tabindex: "0", role: "region" });

function button(text, label, onclick) {
  return element("button", { type: "button", class: "quiet", "aria-label": label, onclick }, text);
}

dialog.append(
  element(
    "div",
    { class: "line" },
    title,
    element(
      "span",
      { class: "actions" },
      back,
      button("Close", null, () => dialog.close()),
    ),
  ),
  facts,
  element(
    "div",
    { class: "panes" },
    element(
      "div",
      { class: "picture" },
      element(
        "div",
        { class: "zoom", role: "group", "aria-label": "Zoom" },
        button("−", "Zoom out", () => drawing?.zoom(0.8)),
        button("+", "Zoom in", () => drawing?.zoom(1.25)),
        button("Fit", "Fit the graph into the window", () => drawing?.fit()),
      ),
      canvas,
      legend,
    ),
    list,
  ),
);

// Opens the dialog at an entity. It marks the pair, the references and the paths of `reasons`, an answer of /explain,
// or else the heads and references of the form and the project.
export function showNeighbourhood(id, reasons = null) {
  context = reasons ? contextOf(reasons) : formContext();
  walk = [];
  groups = [];
  title.textContent = "";
  list.replaceChildren();
  if (!dialog.open) dialog.showModal();
  attempt(async () => {
    drawing = await loadDrawing();
    await loadKinds();
    await walkTo([{ id, step: null }]);
  });
}

const contextOf = ({ head, tail, references, paths }) => ({
  asked: [head, tail],
  relation: relationName(),
  references,
  paths: paths.slice(0, MAX_PATHS).map(({ entities, steps }) => ({
    entities,
    steps: steps.map(({ relation, forward, example }) => ({
      words: shortRelation(relation),
      inverse: !forward,
      example,
    })),
  })),
});

function formContext() {
  const entered = state.references
    .filter((pair) => pair.every(Boolean))
    .map(([head, tail]) => ({ head, tail }));
  const decided = [...decisionsOf("reference"), ...decisionsOf("accepted")].map((one) => ({
    head: { id: one.head, name: one.head_name },
    tail: { id: one.tail, name: one.tail_name },
  }));
  const relation = project?.name || state.relation || null;
  return { asked: state.heads, relation, references: [...entered, ...decided], paths: [] };
}

function loadDrawing() {
  loading ??= Drawing.in(canvas, { onWalk: walkAlong, onMore: loadMore }).catch((error) => {
    loading = null;
    throw error;
  });
  return loading;
}

async function attempt(action) {
  try {
    await action();
  } catch (error) {
    facts.textContent = error.message;
  }
}

const ask = (query) => call(`entity?${new URLSearchParams(query)}`);

async function loadKinds() {
  const entities = context.paths.flatMap((path) => path.entities);
  const unknown = [...new Set(entities.map(({ id }) => id))].filter((id) => !kinds.has(id));
  const answers = unknown.map((id) => ask({ id, relations: 1, count: 1 }));
  (await Promise.all(answers)).forEach(rememberKinds);
}

function rememberKinds(answer) {
  const neighbours = answer.relations.flatMap((group) => group.neighbours);
  for (const { id, kind } of [answer, ...neighbours]) kinds.set(id, kind);
}

// Goes on from the last visited entity through these, {id, name, step}, and shows the last one.
async function walkTo(steps, visited = walk) {
  const number = ++requests;
  const { id } = steps.at(-1);
  const answer = await ask({ id, relations: RELATIONS, count: FIRST_NEIGHBOURS });
  if (number !== requests) return;
  rememberKinds(answer);
  walk = [...visited, ...steps.slice(0, -1), { ...steps.at(-1), id: answer.id, name: answer.name }];
  groups = answer.relations;
  relationsInAll = answer.relations_in_all;
  title.textContent = answer.name;
  const about = [answer.id, withSpaces(answer.kind ?? ""), plural(answer.edges_in_all, "edge")];
  facts.textContent = about.filter((text) => text && text !== answer.name).join(" · ");
  show();
  title.focus();
}

const walkAlong = (steps) => attempt(() => walkTo(steps));

const returnTo = (place) => attempt(() => walkTo([walk[place]], walk.slice(0, place)));

// Loads more neighbours of a relation, or more relations if there is none, and moves the focus to the first of them.
function loadMore(group) {
  const number = ++requests;
  const page = group
    ? { relation: group.relation, inverse: group.inverse, first: group.neighbours.length }
    : { first_relation: groups.length, relations: RELATIONS };
  const count = group ? MORE_NEIGHBOURS : FIRST_NEIGHBOURS;
  attempt(async () => {
    const answer = await ask({ id: walk.at(-1).id, ...page, count });
    if (number !== requests) return;
    rememberKinds(answer);
    const place = group ? `${groups.indexOf(group)}-${page.first}` : `${groups.length}-0`;
    if (group) group.neighbours.push(...answer.relations[0].neighbours);
    else groups.push(...answer.relations);
    show();
    list.querySelector(`[data-place="${place}"]`)?.focus();
  });
}

function show() {
  const center = walk.at(-1);
  back.hidden = walk.length < 2;
  canvas.setAttribute(
    "aria-label",
    `Graph of ${center.name} and its neighbours. The list shows the same.`,
  );
  list.setAttribute("aria-label", `Neighbours of ${center.name}`);
  const picture = pictureOf(center);
  drawing.show(picture);
  legend.replaceChildren(...legendItems(picture));
  list.replaceChildren(...listSections(center));
  list.scrollTop = 0;
}

// The picture: nodes by id, and edges {from, to, steps, kind}, where steps are read from `from` to `to`.
function pictureOf(center) {
  const nodes = new Map();
  const edges = new Map();
  const add = ({ id, name }) => {
    if (!nodes.has(id))
      nodes.set(id, { id, name, kind: kinds.get(id) ?? null, marks: marksOf(id) });
  };
  const join = (from, to, step, kind) => {
    const [key, turned] = [`${from}\n${to}`, `${to}\n${from}`];
    const edge = edges.get(key) ?? edges.get(turned);
    if (!edge) edges.set(key, { from, to, steps: [step], kind });
    else {
      const own = edge.from === from ? step : { ...step, inverse: !step.inverse };
      const same = (one) => one.words === own.words && one.inverse === own.inverse;
      if (!edge.steps.some(same)) edge.steps.push(own);
      edge.kind ||= kind;
    }
  };
  add(center);
  for (let i = walk.length - 1; i > Math.max(0, walk.length - 1 - STEPS_DRAWN); i--) {
    add(walk[i - 1]);
    if (walk[i].step) join(walk[i - 1].id, walk[i].id, walk[i].step, "walked");
  }
  for (const { entities, steps } of context.paths) {
    if (!entities.some(({ id }) => nodes.has(id))) continue;
    entities.forEach(add);
    steps.forEach((step, i) => {
      const { words, inverse, example } = step;
      const kind = example ? "reference" : "path";
      join(entities[i].id, entities[i + 1].id, { words, inverse }, kind);
    });
  }
  for (const { from, to } of referencesOf(center.id)) {
    add(from);
    add(to);
    join(from.id, to.id, { words: context.relation ?? "reference", inverse: false }, "reference");
  }
  const more = [];
  groups.forEach((group, place) => {
    for (const neighbour of group.neighbours) {
      add(neighbour);
      join(center.id, neighbour.id, inWords(group), "");
    }
    const left = group.count - group.neighbours.length;
    if (left) more.push({ group, place, step: inWords(group), text: moreText(left) });
  });
  const left = relationsInAll - groups.length;
  if (left) more.push({ group: null, step: null, text: `and ${plural(left, "more relation")}` });
  return { center: center.id, nodes, edges: [...edges.values()], more };
}

const moreText = (left) => `and ${formatCount(left)} more`;

const inWords = ({ words, relation, inverse }) => ({
  words: shortRelation(words || relation),
  inverse,
});

function referencesOf(id) {
  return context.references
    .filter(({ head, tail }) => head.id === id || tail.id === id)
    .slice(0, MAX_REFERENCES)
    .map(({ head, tail }) => ({ from: head, to: tail }));
}

function marksOf(id) {
  const holds = (entities) => entities.some((entity) => entity.id === id);
  const marks = [];
  if (holds(context.asked)) marks.push("asked");
  if (context.references.some(({ head, tail }) => holds([head, tail]))) marks.push("reference");
  if (context.paths.some(({ entities }) => holds(entities))) marks.push("path");
  if (walk.slice(0, -1).some((step) => step.id === id)) marks.push("visited");
  return marks;
}

function legendItems({ nodes }) {
  const shown = [...nodes.values()];
  const seen = [...new Set(shown.map(({ kind }) => kind))].filter(Boolean);
  const marks = Object.keys(MARKS).filter((mark) =>
    shown.some((node) => node.marks.includes(mark)),
  );
  return [
    ...seen.map((kind) => element("li", {}, glyph(kind), withSpaces(kind))),
    ...marks.map((mark) => element("li", {}, element("i", { class: `mark ${mark}` }), MARKS[mark])),
  ];
}

function listSections(center) {
  const sections = [];
  if (walk.length > 1) {
    const items = walk
      .slice(0, -1)
      .map((step, i) => element("li", {}, ...nodeParts(step, () => returnTo(i))));
    sections.push(section("Walked", element("ol", { class: "bare nodes" }, ...items)));
  }
  if (context.paths.length) {
    const items = context.paths.map((path) => element("li", {}, ...pathParts(path)));
    sections.push(section("Paths of the explanation", element("ul", { class: "bare" }, ...items)));
  }
  const references = referencesOf(center.id);
  if (references.length) {
    const items = references.map(({ from, to }) => {
      const other = from.id === center.id ? to : from;
      const step = { words: context.relation ?? "reference", inverse: other === from };
      return element("li", {}, ...nodeParts(other, () => walkAlong([{ ...other, step }])));
    });
    sections.push(section("References", element("ul", { class: "bare nodes" }, ...items)));
  }
  groups.forEach((group, place) => {
    const step = inWords(group);
    const items = group.neighbours.map((one, i) =>
      element("li", {}, ...nodeParts(one, () => walkAlong([{ ...one, step }]), `${place}-${i}`)),
    );
    const left = group.count - group.neighbours.length;
    if (left) {
      const onclick = () => loadMore(group);
      const label = `${moreText(left)}: ${group.relation_name}`;
      items.push(element("li", {}, button(moreText(left), label, onclick)));
    }
    const name = [
      stepText({ relation: group.relation_name, inverse: group.inverse }),
      element("span", { class: "count" }, ` ${formatCount(group.count)}`),
    ];
    sections.push(section(name, element("ul", { class: "bare nodes" }, ...items)));
  });
  const left = relationsInAll - groups.length;
  if (left) {
    const text = `and ${plural(left, "more relation")}`;
    sections.push(
      element(
        "p",
        {},
        button(text, null, () => loadMore(null)),
      ),
    );
  }
  if (!groups.length) sections.push(element("p", { class: "hint" }, "It has no edges."));
  return sections;
}

function section(name, content) {
  const heading = element("h3", {}, ...(Array.isArray(name) ? name : [name]));
  return element("section", {}, heading, content);
}

// The entities of a path as buttons, with its steps between them.
function pathParts({ entities, steps }) {
  return entities.flatMap((entity, i) => {
    const own = nodeButton(entity, () => walkAlong([{ ...entity, step: null }]));
    return i ? [element("em", {}, ` ${stepText(steps[i - 1])} `), own] : [own];
  });
}

// A node as an item of the list: its shape, its name as a button, its kind and its marks.
function nodeParts(entity, onclick, place) {
  const kind = kinds.get(entity.id);
  return [
    kind ? glyph(kind) : null,
    nodeButton(entity, onclick, place),
    kind ? element("small", {}, ` ${withSpaces(kind)}`) : null,
    ...marksOf(entity.id).map((mark) => element("span", { class: "badge" }, MARKS[mark])),
  ];
}

function nodeButton({ id, name }, onclick, place = null) {
  const highlight = (on) => () => drawing?.highlight(id, on);
  const listeners = {
    onclick,
    onmouseenter: highlight(true),
    onmouseleave: highlight(false),
    onfocus: highlight(true),
    onblur: highlight(false),
  };
  const attributes = { type: "button", class: "entity", "data-place": place };
  return element("button", { ...attributes, ...listeners }, name);
}
