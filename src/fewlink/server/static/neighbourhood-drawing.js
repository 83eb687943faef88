// The drawing of a neighbourhood: a tree of columns to both sides of its centre, or to one side in a narrow window.
// Kinds have a shape and a colour.

import { coloursOf, cytoscapeIn, textStyle } from "./drawing.js";
import { svgElement } from "./dom.js";
import { shortened } from "./text.js";

const WIDE = { column: 230, label: 165, sides: 2 };
const NARROW = { column: 135, label: 125, sides: 1 };
const NARROW_WIDTH = 620; // pixels
const ROW = 30;
const UNDER = 22; // below a node whose label is under it
const CENTER_LABEL = 1.4; // times the width of the other labels
const EDGE_LETTERS = 22;
const MARGIN = 18;
const ZOOMS = { least: 0.3, readable: 0.6, usual: 1.1, most: 3 };

// The corners of each shape, around 0 in a square from −1 to 1; the first one is a circle.
const SHAPES = {
  ellipse: null,
  rectangle: [-0.85, -0.85, 0.85, -0.85, 0.85, 0.85, -0.85, 0.85],
  triangle: [0, -1, 1, 0.9, -1, 0.9],
  diamond: [0, -1, 1, 0, 0, 1, -1, 0],
  "down-triangle": [-1, -0.9, 1, -0.9, 0, 1],
  hexagon: [-0.5, -0.9, 0.5, -0.9, 1, 0, 0.5, 0.9, -0.5, 0.9, -1, 0],
  chevron: [-1, -1, 0.2, -1, 1, 0, 0.2, 1, -1, 1, -0.2, 0],
};
const NAMES = Object.keys(SHAPES);
const COLOURS = 8;
const kindNumbers = new Map(); // in the order in which kinds appeared

// With seven shapes and eight colours, kinds share both only if there are more than 56.
function styleOf(kind) {
  if (!kind) return { shape: "ellipse", colour: 0 };
  if (!kindNumbers.has(kind)) kindNumbers.set(kind, kindNumbers.size);
  const number = kindNumbers.get(kind);
  return { shape: NAMES[number % NAMES.length], colour: (number % COLOURS) + 1 };
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

export class Drawing {
  // Loads Cytoscape.js and draws in an element. `onTap` gets the id of a node that was clicked.
  static async in(container, onTap) {
    const drawing = new Drawing();
    drawing.container = container;
    const options = { minZoom: ZOOMS.least, maxZoom: ZOOMS.most };
    drawing.cy = await cytoscapeIn(container, (css) => drawing.styles(css), options);
    drawing.cy.on("tap", "node", ({ target }) => onTap(target.id()));
    drawing.cy.on("mouseover mouseout", "node", ({ target, type }) => {
      const walks = type === "mouseover" && target.id() !== drawing.picture.center;
      container.classList.toggle("walks", walks);
      target.toggleClass("highlight", type === "mouseover");
    });
    new ResizeObserver(() => drawing.resized()).observe(container);
    return drawing;
  }

  format = WIDE;

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
    const whole = cy.zoom();
    cy.zoom(Math.max(ZOOMS.readable, Math.min(ZOOMS.usual, whole)));
    const center = cy.getElementById(this.picture.center);
    cy.center(whole < ZOOMS.readable ? center.closedNeighborhood() : undefined);
  }

  highlight(id, on) {
    this.cy.getElementById(id).toggleClass("highlight", on);
  }

  // Draws a picture {center, nodes by id, edges {from, to, steps, kind}}, where steps are read from `from` to `to`.
  show(picture) {
    this.picture = picture;
    this.width = this.container.clientWidth;
    this.format = this.width < NARROW_WIDTH ? NARROW : WIDE;
    const tree = treeOf(picture);
    const places = arrange(tree.children, picture, this.format);
    this.cy.batch(() => {
      this.cy.elements().remove();
      this.cy.add(elementsOf(picture, tree.parents, places));
    });
    this.cy.style(this.styles(getComputedStyle(this.container)));
    this.fit();
  }

  styles(css) {
    const { ink, soft, ground, accent, edge, ...kinds } = coloursOf(css);
    const side = (node) => ({ 1: "right", "-1": "left" })[node.data("side")] ?? "center";
    const arrow = (end) => (one) => (one.data(end) ? "triangle" : "none");
    const line = (colour) => ({
      "line-color": colour,
      "target-arrow-color": colour,
      "source-arrow-color": colour,
    });
    return [
      {
        selector: "node",
        style: {
          ...textStyle(css, 13, ground),
          label: "data(label)",
          "text-wrap": "ellipsis",
          "text-max-width": this.format.label,
          shape: (node) => (SHAPES[node.data("shape")] ? "polygon" : "ellipse"),
          "shape-polygon-points": (node) =>
            (SHAPES[node.data("shape")] ?? SHAPES.diamond).join(" "),
          width: 15,
          height: 15,
          "background-color": (node) => kinds[`kind-${node.data("colour")}`],
          "border-color": accent,
          "border-width": 0,
          "text-halign": side,
          "text-valign": (node) => (node.data("side") ? "center" : "bottom"),
          "text-margin-x": (node) => 5 * node.data("side"),
          "text-margin-y": (node) => (node.data("side") ? 0 : 3),
        },
      },
      {
        selector: "edge",
        style: {
          ...textStyle(css, 11, ground),
          ...line(edge),
          color: soft,
          width: 1.3,
          "curve-style": "unbundled-bezier",
          "edge-distances": "node-position",
          "control-point-weights": (one) => one.data("weights"),
          "control-point-distances": (one) => one.data("distances"),
          "target-label": "data(label)",
          "target-text-offset": "data(offset)",
          "arrow-scale": 0.8,
          "target-arrow-shape": arrow("forward"),
          "source-arrow-shape": arrow("backward"),
        },
      },
      {
        selector: "edge.across",
        style: { "curve-style": "straight", "target-label": "", label: "data(label)" },
      },
      { selector: "edge.loop", style: { "curve-style": "bezier" } },
      { selector: "edge.path", style: { ...line(accent), width: 3, color: ink } },
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
          height: 9,
          "background-color": ground,
          "border-width": 1.4,
          "border-style": "dashed",
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
function treeOf({ center, nodes, edges }) {
  const neighbours = new Map([...nodes.keys()].map((id) => [id, []]));
  for (const { from, to } of edges) {
    neighbours.get(from).push(to);
    neighbours.get(to).push(from);
  }
  const children = new Map([[center, []]]);
  const parents = new Map();
  for (const id of children.keys()) {
    for (const other of neighbours.get(id)) {
      if (children.has(other)) continue;
      children.set(other, []); // visited later, by the outer loop
      children.get(id).push(other);
      parents.set(other, id);
    }
  }
  return { children, parents };
}

// Places {x, y, side} by id: leaves in rows, other nodes in the middle of their children, in columns to both sides of the
// centre or to one. The label of a node is beside it at the side away from the centre, or below it if several lines meet
// there: side 0.
function arrange(children, { center, edges }, { column, sides }) {
  const joins = (id) => edges.filter(({ from, to }) => from === id || to === id).length > 1;
  const places = new Map();
  const all = children.get(center);
  const half = sides === 1 ? all.length : Math.ceil(all.length / 2);
  [all.slice(0, half), all.slice(half)].forEach((ids, i) => {
    const side = i ? -1 : 1;
    let bottom = 0;
    const put = (id, depth) => {
      const top = bottom;
      for (const child of children.get(id)) put(child, depth + 1);
      bottom = Math.max(bottom, top + ROW + (joins(id) ? UNDER : 0));
      const y = (top + bottom) / 2;
      places.set(id, { x: side * depth * column, y, side: joins(id) ? 0 : side });
    };
    for (const id of ids) put(id, 1);
    for (const place of places.values()) if (place.x * side > 0) place.y -= bottom / 2;
  });
  const top = Math.min(0, ...[...places.values()].map(({ y }) => y));
  places.set(center, { x: 0, y: sides === 1 ? top : 0, side: 0 });
  return places;
}

const turned = (steps) => steps.map((step) => ({ ...step, inverse: !step.inverse }));

function elementsOf({ center, nodes, edges }, parents, places) {
  const placed = [...nodes.values()].filter(({ id }) => places.has(id));
  const drawn = placed.map(({ id, name, kind, marks }) => ({
    group: "nodes",
    data: { id, label: name, side: places.get(id).side, ...styleOf(kind) },
    position: { ...places.get(id) },
    classes: [...marks, id === center ? "center" : ""],
  }));
  const line = (source, target, steps, classes) => {
    const label = shortened(
      [...new Set(steps.map(({ words }) => words))].join(" · "),
      EDGE_LETTERS,
    );
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
  };
  const lines = edges
    .filter(({ from, to }) => places.has(from) && places.has(to))
    .map(({ from, to, steps, kind }) => {
      if (parents.get(from) === to) return line(to, from, turned(steps), [kind]);
      const across = parents.get(to) === from ? "" : "across";
      return line(from, to, steps, [kind, from === to ? "loop" : across]);
    });
  return [...drawn, ...lines];
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
