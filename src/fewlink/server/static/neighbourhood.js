// The dialog with the neighbourhood of an entity, as a graph and as an equal list: clicking a neighbour walks to it.

import { call } from "./api.js";
import { $, button, element, showText } from "./dom.js";
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
let picture = null; // what is drawn
let requests = 0;
const kinds = new Map(); // of entities, by id

const canvas = $("graph-canvas");
const list = $("graph-list");

const moreButton = (text, label, onclick) =>
  button(text, { class: "quiet", "aria-label": label, onclick });

// Opens the dialog at an entity. It marks the pair, the references and the paths of `reasons`, an answer of /explain,
// or else the heads and references of the form and the project.
export function showNeighbourhood(id, reasons = null) {
  context = reasons ? contextOf(reasons) : formContext();
  walk = [];
  groups = [];
  $("graph-title").textContent = "";
  list.replaceChildren();
  if (!$("neighbourhood").open) $("neighbourhood").showModal();
  attempted(async () => {
    loading ??= Drawing.in(canvas, openNode);
    drawing = await loading;
    await loadKinds();
    await walkTo({ id, step: null });
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

async function attempted(action) {
  try {
    await action();
  } catch (error) {
    loading = drawing && loading; // tried again if it could not be loaded
    showText("graph-facts", error.message);
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

// Goes on from the last visited entity to another one, and shows it.
async function walkTo({ id, step }, visited = walk) {
  const number = ++requests;
  const answer = await ask({ id, relations: RELATIONS, count: FIRST_NEIGHBOURS });
  if (number !== requests) return;
  rememberKinds(answer);
  walk = [...visited, { id: answer.id, name: answer.name, step }];
  groups = answer.relations;
  relationsInAll = answer.relations_in_all;
  $("graph-title").textContent = answer.name;
  const about = [answer.id, withSpaces(answer.kind ?? ""), plural(answer.edges_in_all, "edge")];
  showText("graph-facts", about.filter((text) => text && text !== answer.name).join(" · "));
  show();
  $("graph-title").focus();
}

// Goes to an entity of the picture, by the step that leads there from the shown one if there is one.
const walkFrom = (entity, step = null) => attempted(() => walkTo({ ...entity, step }));

const returnTo = (place) => attempted(() => walkTo(walk[place], walk.slice(0, place)));

// What a click on a node of the drawing does.
function openNode(id) {
  const { center, nodes, edges } = picture;
  const node = nodes.get(id);
  if (node.load) node.load();
  else if (id !== center) {
    const edge = edges.find(
      ({ from, to }) => [from, to].includes(id) && [from, to].includes(center),
    );
    const [step] = edge?.steps ?? [null];
    walkFrom(node, step && { ...step, inverse: step.inverse !== (edge.to === center) });
  }
}

// Loads more neighbours of a relation, or more relations if there is none, and moves the focus to the first of them.
function loadMore(group) {
  const number = ++requests;
  const page = group
    ? { relation: group.relation, inverse: group.inverse, first: group.neighbours.length }
    : { first_relation: groups.length, relations: RELATIONS };
  const count = group ? MORE_NEIGHBOURS : FIRST_NEIGHBOURS;
  attempted(async () => {
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
  $("graph-back").hidden = walk.length < 2;
  canvas.ariaLabel = `Graph of ${center.name} and its neighbours. The list shows the same.`;
  list.ariaLabel = `Neighbours of ${center.name}`;
  picture = pictureOf(center);
  drawing.show(picture);
  $("graph-legend").replaceChildren(...legendItems(picture));
  list.replaceChildren(...listSections(center));
  list.scrollTop = 0;
}

// The picture: nodes by id, and edges {from, to, steps, kind}, where steps are read from `from` to `to`.
function pictureOf(center) {
  const nodes = new Map();
  const edges = new Map();
  const add = ({ id, name }) => {
    if (nodes.has(id)) return;
    nodes.set(id, { id, name, kind: kinds.get(id) ?? null, marks: marksOf(id) });
  };
  const join = (from, to, step, kind) => {
    const edge = edges.get(`${from}\n${to}`) ?? edges.get(`${to}\n${from}`);
    if (!edge) {
      edges.set(`${from}\n${to}`, { from, to, steps: [step], kind });
      return;
    }
    const own = edge.from === from ? step : { ...step, inverse: !step.inverse };
    const isOwn = ({ words, inverse }) => words === own.words && inverse === own.inverse;
    if (!edge.steps.some(isOwn)) edge.steps.push(own);
    edge.kind ||= kind;
  };
  const addMore = (text, group, steps) => {
    const id = `\n${text} ${nodes.size}`; // no entity has such an id
    nodes.set(id, { id, name: text, kind: null, marks: ["more"], load: () => loadMore(group) });
    edges.set(id, { from: center.id, to: id, steps, kind: "open" });
  };
  add(center);
  for (let i = walk.length - 1; i > Math.max(0, walk.length - 1 - STEPS_DRAWN); i--) {
    add(walk[i - 1]);
    if (walk[i].step) join(walk[i - 1].id, walk[i].id, walk[i].step, "walked");
  }
  for (const { entities, steps } of context.paths) {
    if (!entities.some(({ id }) => nodes.has(id))) continue;
    entities.forEach(add);
    steps.forEach(({ words, inverse, example }, i) => {
      const kind = example ? "reference" : "path";
      join(entities[i].id, entities[i + 1].id, { words, inverse }, kind);
    });
  }
  for (const { head, tail } of referencesOf(center.id)) {
    add(head);
    add(tail);
    join(head.id, tail.id, { words: context.relation ?? "reference", inverse: false }, "reference");
  }
  for (const group of groups) {
    for (const neighbour of group.neighbours) {
      add(neighbour);
      join(center.id, neighbour.id, inWords(group), "");
    }
    const left = group.count - group.neighbours.length;
    if (left) addMore(moreText(left), group, [inWords(group)]);
  }
  const left = relationsInAll - groups.length;
  if (left) addMore(`and ${plural(left, "more relation")}`, null, []);
  return { center: center.id, nodes, edges: [...edges.values()] };
}

const moreText = (left) => `and ${formatCount(left)} more`;

const inWords = ({ words, relation, inverse }) => ({
  words: shortRelation(words || relation),
  inverse,
});

const referencesOf = (id) =>
  context.references
    .filter(({ head, tail }) => head.id === id || tail.id === id)
    .slice(0, MAX_REFERENCES);

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
    const items = references.map(({ head, tail }) => {
      const other = head.id === center.id ? tail : head;
      const step = { words: context.relation ?? "reference", inverse: other === head };
      return element("li", {}, ...nodeParts(other, () => walkFrom(other, step)));
    });
    sections.push(section("References", element("ul", { class: "bare nodes" }, ...items)));
  }
  groups.forEach((group, place) => {
    const step = inWords(group);
    const items = group.neighbours.map((one, i) =>
      element("li", {}, ...nodeParts(one, () => walkFrom(one, step), `${place}-${i}`)),
    );
    const left = group.count - group.neighbours.length;
    if (left) {
      const label = `${moreText(left)}: ${group.relation_name}`;
      items.push(
        element(
          "li",
          {},
          moreButton(moreText(left), label, () => loadMore(group)),
        ),
      );
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
        moreButton(text, null, () => loadMore(null)),
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
    const own = nodeButton(entity, () => walkFrom(entity));
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
  return button(name, { class: "entity", "data-place": place, ...listeners });
}

$("graph-back").addEventListener("click", () => returnTo(walk.length - 2));
$("zoom-out").addEventListener("click", () => drawing?.zoom(0.8));
$("zoom-in").addEventListener("click", () => drawing?.zoom(1.25));
$("zoom-fit").addEventListener("click", () => drawing?.fit());
