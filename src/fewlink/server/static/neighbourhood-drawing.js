// The drawing of a neighbourhood: a tree of columns to both sides of its centre, or to one side in a narrow window.
// Kinds have a shape and a colour.

import { svgElement } from "./dom.js";

const WIDE = { column: 230, label: 165, sides: 2 };
const NARROW = { column: 135, label: 125, sides: 1 };
const NARROW_WIDTH = 620; // pixels
const ROW = 30;
const UNDER = 22; // below a node whose label is under it
const CENTER_LABEL = 1.4; // times the width of the other labels
const EDGE_LETTERS = 22;
const MARGIN = 18;
const ZOOMS = { least: 0.3, readable: 0.6, most: 3 };

// The corners of each shape, around 0 in a square from −1 to 1; the first one is a circle.
const SHAPES = {
  ellipse: null,
  rectangle: [-0.85, -0.85, 0.85, -0.85, 0.85, 0.85, -0.85, 0.85],
  triangle: [0, -1, 1, 0.9, -1, 0.9],
  diamond: [0, -1, 1, 0, 0, 1, -1, 0],
  "down-triangle": [-1, -0.9, 1, -0.9, 0, 1],
  hexagon: [-0.5, -0.9, 0.5, -0.9, 1, 0, 0.5, 0.9, -0.5, 0.9, -1, 0],
  cross: [
    -0.35, -1, 0.35, -1, 0.35, -0.35, 1, -0.35, 1, 0.35, 0.35, 0.35, 0.35, 1, -0.35, 1, -0.35, 0.35,
    -1, 0.35, -1, -0.35, -0.35, -0.35,
  ],
  chevron: [-1, -1, 0.2, -1, 1, 0, 0.2, 1, -1, 1, -0.2, 0],
};
const NAMES = Object.keys(SHAPES);
const kindNumbers = new Map(); // in the order in which kinds appeared

function numberOf(kind) {
  if (!kindNumbers.has(kind)) kindNumbers.set(kind, kindNumbers.size);
  return kindNumbers.get(kind);
}

// Kinds share colours only if there are more than 8, and then differ in shape from those with the same colour.
function styleOf(kind) {
  if (!kind) return { shape: "ellipse", colour: 0 };
  const number = numberOf(kind);
  const round = Math.floor(number / NAMES.length);
  return {
    shape: NAMES[(number + 3 * round) % NAMES.length],
    colour: (number % NAMES.length) + 1,
  };
}

// The shape of a kind as a small picture.
export function glyph(kind) {
  const { shape, colour } = styleOf(kind);
  const corners = SHAPES[shape];
  const mark = corners
    ? svgElement("polygon", { points: corners.join(" ") })
    : svgElement("circle", { r: 1 });
  const attributes = { class: `glyph kind-${colour}`, viewBox: "-1.15 -1.15 2.3 2.3" };
  return svgElement("svg", { ...attributes, "aria-hidden": "true" }, mark);
}

const shortened = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

export class Drawing {
  // Loads Cytoscape.js and draws in an element. `onWalk` gets the steps to a clicked node, `onMore` a group.
  static async in(container, callbacks) {
    const { default: cytoscape } = await import("./cytoscape-3.34.4.min.js");
    return new Drawing(cytoscape, container, callbacks);
  }

  constructor(cytoscape, container, { onWalk, onMore }) {
    this.container = container;
    this.cy = cytoscape({
      container,
      minZoom: ZOOMS.least,
      maxZoom: ZOOMS.most,
      autoungrabify: true,
      boxSelectionEnabled: false,
      selectionType: "single",
    });
    this.cy.on("tap", "node", ({ target }) => {
      if (target.hasClass("more")) onMore(target.scratch("group"));
      else if (target.id() !== this.picture.center) onWalk(this.stepsTo(target.id()));
    });
    this.cy.on("mouseover mouseout", "node", ({ target, type }) => {
      const walks = type === "mouseover" && target.id() !== this.picture.center;
      container.classList.toggle("walks", walks);
      target.toggleClass("highlight", type === "mouseover");
    });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => this.picture && this.cy.style(this.styles()));
    new ResizeObserver(() => this.resized()).observe(container);
  }

  resized() {
    const { clientWidth: width } = this.container;
    if (!width) return; // the dialog is closed
    this.cy.resize();
    if (this.picture && this.width !== width) this.show(this.picture);
  }

  zoom(factor) {
    const level = this.cy.zoom() * factor;
    const { clientWidth: width, clientHeight: height } = this.container;
    this.cy.zoom({ level, renderedPosition: { x: width / 2, y: height / 2 } });
  }

  // Shows everything if it stays readable, else the surroundings of the centre.
  fit() {
    const { cy } = this;
    cy.fit(undefined, MARGIN);
    if (cy.zoom() > 1.1) cy.zoom(1.1);
    if (cy.zoom() >= ZOOMS.readable) {
      cy.center();
      return;
    }
    const box = cy.elements().boundingBox();
    const { clientWidth: width, clientHeight: height } = this.container;
    const zoom = Math.min(1, Math.max(ZOOMS.readable, (width - 2 * MARGIN) / box.w));
    cy.zoom(zoom);
    const overflows = box.w * zoom > width && this.format.sides === 1;
    const x = overflows ? MARGIN - box.x1 * zoom : width / 2 - (box.x1 + box.w / 2) * zoom;
    const { y } = cy.getElementById(this.picture.center).position();
    cy.pan({ x, y: Math.min(height / 2 - y * zoom, MARGIN - box.y1 * zoom) });
  }

  highlight(id, on) {
    this.cy.getElementById(id).toggleClass("highlight", on);
  }

  // The steps from the centre to a node: {id, name, step}.
  stepsTo(id) {
    const steps = [];
    for (let at = id; at !== this.picture.center; at = this.tree.parents.get(at)) {
      const parent = this.tree.parents.get(at);
      const edge = this.picture.edges.find(
        ({ from, to }) => (from === parent && to === at) || (from === at && to === parent),
      );
      const [first] = edge.steps;
      const step = edge.from === parent ? first : { ...first, inverse: !first.inverse };
      steps.unshift({ id: at, name: this.picture.nodes.get(at).name, step });
    }
    return steps;
  }

  show(picture) {
    this.picture = picture;
    this.width = this.container.clientWidth;
    this.format = this.width < NARROW_WIDTH ? NARROW : WIDE;
    this.tree = treeOf(picture);
    const places = arrange(this.tree, picture, this.format);
    this.cy.batch(() => {
      this.cy.elements().remove();
      this.cy.add(elementsOf(picture, this.tree, places));
      for (const node of this.cy.nodes(".more")) {
        node.scratch("group", picture.more[node.data("more")].group);
      }
    });
    this.cy.style(this.styles());
    this.fit();
  }

  styles() {
    const css = getComputedStyle(this.container);
    const colour = (name) => css.getPropertyValue(`--${name}`).trim();
    const [ink, soft, paper, accent, edge] = ["ink", "soft", "ground", "accent", "edge"].map(
      colour,
    );
    const label = {
      label: "data(label)",
      color: ink,
      "font-family": css.fontFamily,
      "font-size": 13,
      "text-wrap": "ellipsis",
      "text-max-width": this.format.label,
      "text-background-color": paper,
      "text-background-opacity": 0.85,
      "text-background-padding": 1,
    };
    const side = (node) => ({ 1: "right", "-1": "left" })[node.data("side")] ?? "center";
    return [
      {
        selector: "node",
        style: {
          ...label,
          shape: (node) => (SHAPES[node.data("shape")] ? "polygon" : "ellipse"),
          "shape-polygon-points": (node) =>
            (SHAPES[node.data("shape")] ?? SHAPES.diamond).join(" "),
          width: 15,
          height: 15,
          "background-color": (node) => colour(`kind-${node.data("colour")}`),
          "border-color": ink,
          "border-width": 0,
          "text-halign": side,
          "text-valign": (node) => (node.data("side") ? "center" : "bottom"),
          "text-margin-x": (node) => 5 * node.data("side"),
          "text-margin-y": (node) => (node.data("side") ? 0 : 3),
          "overlay-opacity": 0,
        },
      },
      {
        selector: "edge",
        style: {
          width: 1.3,
          "line-color": edge,
          "curve-style": "unbundled-bezier",
          "edge-distances": "node-position",
          "control-point-weights": (one) => one.data("weights"),
          "control-point-distances": (one) => one.data("distances"),
          "target-label": "data(label)",
          "target-text-offset": "data(offset)",
          "font-family": css.fontFamily,
          "font-size": 11,
          color: soft,
          "text-background-color": paper,
          "text-background-opacity": 1,
          "text-background-padding": 1,
          "arrow-scale": 0.8,
          "target-arrow-color": edge,
          "source-arrow-color": edge,
          "target-arrow-shape": (one) => (one.data("forward") ? "triangle" : "none"),
          "source-arrow-shape": (one) => (one.data("backward") ? "triangle" : "none"),
          "overlay-opacity": 0,
        },
      },
      {
        selector: "edge.across",
        style: {
          "curve-style": "straight",
          "target-label": "",
          label: "data(label)",
          "text-rotation": "autorotate",
        },
      },
      { selector: "edge.loop", style: { "curve-style": "bezier" } },
      {
        selector: "edge.path",
        style: {
          width: 3,
          "line-color": accent,
          "target-arrow-color": accent,
          "source-arrow-color": accent,
          color: ink,
        },
      },
      { selector: "edge.walked", style: { width: 2.4, "line-color": soft, color: ink } },
      { selector: "edge.reference", style: { "line-style": "dashed", width: 2, color: ink } },
      { selector: "edge.open", style: { "line-style": "dotted" } },
      { selector: "node.visited", style: { "border-width": 2, "border-color": soft } },
      { selector: "node.path", style: { "border-width": 2.5, "border-color": accent } },
      {
        selector: "node.reference",
        style: { "border-width": 5, "border-style": "double", "border-color": ink },
      },
      {
        selector: "node.asked",
        style: { width: 21, height: 21, "border-width": 3.5, "border-color": accent },
      },
      {
        selector: "node.center",
        style: {
          width: 26,
          height: 26,
          "font-weight": 700,
          "font-size": 15,
          "text-wrap": "wrap",
          "text-max-width": CENTER_LABEL * this.format.label,
          ...(this.format.sides === 1 ? { "text-valign": "top", "text-margin-y": -3 } : {}),
        },
      },
      {
        selector: "node.more",
        style: {
          shape: "round-rectangle",
          width: 15,
          height: 9,
          "background-color": paper,
          "border-width": 1.4,
          "border-style": "dashed",
          "border-color": accent,
          color: accent,
        },
      },
      {
        selector: "node.highlight",
        style: { "underlay-color": accent, "underlay-opacity": 0.35, "underlay-padding": 6 },
      },
    ];
  }
}

// The tree in which each node hangs from the one that reaches it first: {children, parents}.
function treeOf({ center, nodes, edges, more }) {
  const neighbours = new Map([...nodes.keys()].map((id) => [id, []]));
  for (const { from, to } of edges) {
    neighbours.get(from).push(to);
    neighbours.get(to).push(from);
  }
  const children = new Map([[center, []]]);
  const parents = new Map();
  const waiting = [center];
  while (waiting.length) {
    const id = waiting.shift();
    for (const other of neighbours.get(id)) {
      if (children.has(other)) continue;
      children.set(other, []);
      children.get(id).push(other);
      parents.set(other, id);
      waiting.push(other);
    }
  }
  // a node for more neighbours follows the last one of its relation
  more.forEach(({ group }, i) => {
    const own = children.get(center);
    const last = group ? Math.max(...group.neighbours.map(({ id }) => own.indexOf(id))) : -1;
    const id = moreId(i);
    own.splice(last < 0 ? own.length : last + 1, 0, id);
    children.set(id, []);
    parents.set(id, center);
  });
  return { children, parents };
}

const moreId = (i) => `\nmore ${i}`;

const isBranch = ({ from, to }, parents) => parents.get(to) === from || parents.get(from) === to;

// Places {x, y, side} by id: children in rows beside their parent, to both sides of the centre, or to one. The label of
// a node is beside it at the side away from the centre, or below it if lines go on there: side 0.
function arrange({ children, parents }, { center, edges }, { column, sides: count }) {
  const across = edges.filter((edge) => !isBranch(edge, parents));
  const goesOn = (id) =>
    children.get(id).length > 0 || across.some(({ from, to }) => from === id || to === id);
  const heights = new Map();
  const heightOf = (id) => {
    const below = children.get(id).map(heightOf);
    const sum = below.reduce((total, height) => total + height, 0);
    heights.set(id, Math.max(ROW + (goesOn(id) ? UNDER : 0), sum));
    return heights.get(id);
  };
  const all = children.get(center);
  const total = all.map(heightOf).reduce((sum, height) => sum + height, 0);
  const sides = [[], []];
  let filled = 0;
  for (const id of all) {
    sides[count === 1 || filled < total / 2 ? 0 : 1].push(id);
    filled += heights.get(id);
  }
  const places = new Map();
  const put = (id, depth, side, top) => {
    places.set(id, {
      x: side * depth * column,
      y: top + heights.get(id) / 2,
      side: goesOn(id) ? 0 : side,
    });
    let at = top;
    for (const child of children.get(id)) {
      put(child, depth + 1, side, at);
      at += heights.get(child);
    }
  };
  sides.forEach((ids, i) => {
    let top = -ids.reduce((sum, id) => sum + heights.get(id), 0) / 2;
    for (const id of ids) {
      put(id, 1, i ? -1 : 1, top);
      top += heights.get(id);
    }
  });
  const top = Math.min(0, ...[...places.values()].map(({ y }) => y));
  places.set(center, { x: 0, y: count === 1 ? top : 0, side: 0 });
  return places;
}

const turned = (steps) => steps.map((step) => ({ ...step, inverse: !step.inverse }));

const labelOf = (steps) => [...new Set(steps.map(({ words }) => words))].join(" · ");

function elementsOf({ center, nodes, edges, more }, { parents }, places) {
  const placed = [...nodes.values()].filter(({ id }) => places.has(id));
  const drawn = placed.map(({ id, name, kind, marks }) => ({
    group: "nodes",
    data: { id, label: name, side: places.get(id).side, ...styleOf(kind) },
    position: { ...places.get(id) },
    classes: [...marks, id === center ? "center" : ""],
  }));
  more.forEach(({ text }, i) => {
    const id = moreId(i);
    const data = { id, label: text, more: i, side: places.get(id).side, shape: "", colour: 0 };
    drawn.push({ group: "nodes", data, position: { ...places.get(id) }, classes: ["more"] });
  });
  const lines = edges
    .filter(({ from, to }) => places.has(from) && places.has(to))
    .map((edge) => {
      const { from, to, steps, kind } = edge;
      if (from === to) return line(from, to, steps, [kind, "loop"]);
      if (!isBranch(edge, parents)) return line(from, to, steps, [kind, "across"]);
      return parents.get(from) === to
        ? line(to, from, turned(steps), [kind])
        : line(from, to, steps, [kind]);
    });
  more.forEach(({ step }, i) => lines.push(line(center, moreId(i), step ? [step] : [], ["open"])));
  return [...drawn, ...lines];

  function line(source, target, steps, classes) {
    const label = shortened(labelOf(steps), EDGE_LETTERS);
    const data = {
      source,
      target,
      label,
      offset: 16 + 3 * label.length,
      forward: steps.some(({ inverse }) => !inverse),
      backward: steps.some(({ inverse }) => inverse),
      ...curve(places.get(source), places.get(target)),
    };
    return { group: "edges", data, classes: classes.filter(Boolean) };
  }
}

// Two control points that make a curve leave its source and reach its target horizontally.
function curve(from, to) {
  const [x, y] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(x, y) || 1;
  const points = [
    [x * 0.3, 0],
    [x * 0.55, y],
  ];
  return {
    weights: points.map(([u, v]) => (u * x + v * y) / length ** 2),
    distances: points.map(([u, v]) => (v * x - u * y) / length),
  };
}
