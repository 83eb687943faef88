// The drawing of what joins a head and a tail: a lane for each path, or for the neighbours of both, from left to right
// or, in a narrow place, from top to bottom. The head and the tail reach over all lanes, so that no lines cross.

import { coloursOf, cytoscapeIn, textStyle } from "./drawing.js";
import { element } from "./dom.js";
import { shortRelation } from "./text.js";

const LANES = 3;
const MIN_STEP = 220; // pixels from node to node that labels need, from left to right
const NODE = { width: 118, height: 40 };
const WIDE_LANE = 70; // pixels from lane to lane
const LETTER = 7.5; // pixels
const NARROW = { lane: 150, step: 96 }; // pixels from lane to lane, and from node to node

// Draws reasons in a new element; null if they have neither paths nor neighbours. `relation` is the one in question.
export function reasonsDrawing(reasons, relation, width) {
  const lanes = reasons.paths.length ? pathLanes(reasons) : neighbourLanes(reasons, relation);
  if (!lanes.length) return null;
  const steps = Math.max(...lanes.map((lane) => lane.length));
  const wide = width >= NODE.width + steps * MIN_STEP;
  const shown = lanes.slice(0, wide ? LANES : Math.max(1, Math.floor(width / NARROW.lane)));
  const height = wide
    ? shown.length * WIDE_LANE
    : NODE.height + NARROW.step * Math.max(...shown.map((lane) => lane.length)) + 4;
  const container = element("div", {
    class: "lanes",
    role: "img",
    "aria-label": `Drawing: ${shown.map((lane) => lane.text).join("; ")}`,
    "--height": `${height}px`,
  });
  const elements = layOut(shown, wide, width, height);
  cytoscapeIn(container, styles, {
    elements,
    layout: { name: "preset", fit: false },
    userZoomingEnabled: false,
    userPanningEnabled: false,
  });
  return container;
}

// A lane has nodes {name, place, end} at 0 ≤ place ≤ 1, and edges {from, to, label, forward, kind} between them.
function pathLanes({ paths, head }) {
  return paths.map(({ text, entities, steps }) => {
    const beside = entities[0].id === head.id ? 0 : 1; // a path from a reference starts beside the head
    const length = steps.length + beside;
    const nodes = entities.map(({ name }, i) => ({ name, place: (i + beside) / length }));
    if (beside) nodes.unshift({ name: head.name, place: 0 });
    nodes[0].end = "head";
    nodes.at(-1).end = "tail";
    const edges = steps.map(({ relation, forward, example }, i) => ({
      from: nodes[i + beside],
      to: nodes[i + beside + 1],
      label: shortRelation(relation),
      forward,
      kind: example ? "example" : "",
    }));
    return { text, length, nodes, edges };
  });
}

// Lanes from a neighbour of the head, over both ends, to a neighbour of the tail.
function neighbourLanes({ neighbours, head, tail }, relation) {
  const of = (end) => neighbours.filter((one) => one.of === end);
  const [left, right] = [of("head"), of("tail")];
  return Array.from({ length: Math.max(left.length, right.length) }, (_, i) => {
    const ends = [
      { name: head.name, place: 1 / 3, end: "head" },
      { name: tail.name, place: 2 / 3, end: "tail" },
    ];
    const lane = { text: "", length: 3, nodes: [...ends], edges: [] };
    const join = (one, node, from, to, forward) => {
      lane.nodes.push(node);
      lane.edges.push({ from, to, label: shortRelation(one.relation), forward, kind: "" });
      lane.text += ` ${node.name}`;
    };
    if (left[i]) {
      const node = { name: left[i].entity.name, place: 0 };
      join(left[i], node, node, ends[0], !left[i].forward);
    }
    if (right[i]) {
      const node = { name: right[i].entity.name, place: 1 };
      join(right[i], node, ends[1], node, right[i].forward);
    }
    if (!i) {
      lane.edges.push({
        from: ends[0],
        to: ends[1],
        label: relation,
        forward: true,
        kind: "asked",
      });
    }
    return lane;
  });
}

// The elements of Cytoscape. Edges of the head and the tail begin and end at the height of their lane.
function layOut(lanes, wide, width, height) {
  const length = wide ? width - NODE.width - 4 : height - NODE.height - 4;
  const pitch = wide ? WIDE_LANE : width / lanes.length;
  const along = (node) => (wide ? NODE.width : NODE.height) / 2 + 2 + node.place * length;
  const across = (lane) => (lane + 0.5) * pitch;
  const middle = (lanes.length * pitch) / 2;
  const position = (node, lane) => {
    const side = node.end ? middle : across(lane);
    return wide ? { x: along(node), y: side } : { x: side, y: along(node) };
  };
  const elements = new Map();
  const idOf = (node, lane) => node.end ?? `${lane} ${lanes[lane].nodes.indexOf(node)}`;
  lanes.forEach(({ nodes, edges }, lane) => {
    for (const node of nodes) {
      const id = idOf(node, lane);
      const over = node.end ? (lanes.length - 1) * pitch : 0; // the lanes that it reaches over
      const size = wide
        ? { width: NODE.width, height: NODE.height + over }
        : { width: Math.min(NODE.width + 14, pitch - 10) + over, height: NODE.height };
      const data = { id, label: node.name, ...size, room: size.width - 8 };
      const classes = node.end ? ["end"] : [];
      elements.set(id, { group: "nodes", data, position: position(node, lane), classes });
    }
    for (const { from, to, label, forward, kind } of edges) {
      const shift = across(lane) - middle;
      const endpoint = (node, sign) => {
        const beside = node.end ? shift : 0;
        const half = (wide ? NODE.width : NODE.height) / 2;
        return wide ? `${sign * half}px ${beside}px` : `${beside}px ${sign * half}px`;
      };
      const data = {
        id: `edge ${elements.size}`,
        source: idOf(from, lane),
        target: idOf(to, lane),
        label,
        start: endpoint(from, 1),
        finish: endpoint(to, -1),
        room: wide ? (to.place - from.place) * length - NODE.width - 28 : pitch - 20,
        forward,
      };
      elements.set(data.id, { group: "edges", data, classes: [kind].filter(Boolean) });
    }
  });
  return [...elements.values()];
}

// Whether each word of a label is shorter than a line.
const fits = (label, room) => label.split(/\s+/).every((word) => word.length * LETTER <= room);

function styles(css) {
  const { soft, paper, raised, accent, edge } = coloursOf(css);
  const text = {
    label: "data(label)",
    "text-wrap": "wrap",
    "text-max-width": "data(room)",
    "text-overflow-wrap": (one) =>
      fits(one.data("label"), one.data("room")) ? "whitespace" : "anywhere",
  };
  return [
    {
      selector: "node",
      style: {
        ...textStyle(css, 12, raised),
        ...text,
        shape: "round-rectangle",
        width: "data(width)",
        height: "data(height)",
        "background-color": raised,
        "border-color": edge,
        "border-width": 1,
        "text-valign": "center",
      },
    },
    {
      selector: "node.end",
      style: { "border-color": accent, "border-width": 1.5, "font-weight": 600 },
    },
    {
      selector: "edge",
      style: {
        ...textStyle(css, 11, paper),
        ...text,
        color: soft,
        width: 1.4,
        "line-color": edge,
        "curve-style": "straight",
        "source-endpoint": "data(start)",
        "target-endpoint": "data(finish)",
        "target-arrow-color": edge,
        "source-arrow-color": edge,
        "target-arrow-shape": (one) => (one.data("forward") ? "triangle" : "none"),
        "source-arrow-shape": (one) => (one.data("forward") ? "none" : "triangle"),
      },
    },
    { selector: "edge.example", style: { "line-style": "dashed" } },
    { selector: "edge.asked", style: { "line-style": "dashed", color: accent } },
  ];
}
