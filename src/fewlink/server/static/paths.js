// The drawing of what joins a head and a tail: one lane for each path, or for the neighbours of both.

import { svgElement as svg } from "./dom.js";
import { formatPercent, pathText, plural, shortRelation } from "./text.js";

const FONTS = { node: "12px", end: "600 12px", edge: "11px" };
const MIN_EDGE = 86; // least length of an edge from left to right
const MIN_WORDY_EDGE = 104; // the same if its label has long words
const NODE_LINE = 14; // height of a line of text in a node
const EDGE_LINE = 12; // and on an edge
const pen = document.createElement("canvas").getContext("2d");
let drawings = 0;

// Draws the reasons of one prediction. Lanes are straight, from left to right or, if that is too narrow, from top
// to bottom, and the head and the tail reach over all lanes: labels cannot overlap.
// Returns the SVG element (null if there is nothing to draw), and which paths and neighbours it shows.
export function drawPaths(reasons, { relation, width, maxLanes = 3 }) {
  const sketch = sketchPaths(reasons, relation) || sketchNeighbours(reasons, relation);
  if (!sketch) return { picture: null, paths: [], neighbours: [] };
  const layout = layOut(sketch, width, maxLanes);
  const { lanes, height } = layout;
  const arrow = `arrow-${++drawings}`;
  const { query, ends } = sketch;
  const edges = lanes.flatMap((lane, i) =>
    lane.edges.map((edge) => drawEdge(edge, i, layout, arrow)),
  );
  if (query) edges.push(drawEdge(query, (lanes.length - 1) / 2, layout, arrow));
  const nodes = lanes.flatMap((lane, i) =>
    lane.nodes.filter((node) => !node.end).map((node) => drawNode(node, i, layout)),
  );
  const description = lanes.map(describeLane).join("; ");
  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": `How ${reasons.head.name} and ${reasons.tail.name} are connected: ${description}`,
    },
    svg("defs", {}, arrowHead(arrow)),
    ...edges,
    ...lanes.map((lane, i) => drawCaption(lane, i, layout)),
    drawEnd(ends.head, layout),
    drawEnd(ends.tail, layout),
    ...nodes,
  );
  return {
    picture,
    paths: lanes.map((lane) => lane.path).filter(Boolean),
    neighbours: lanes.flatMap((lane) => lane.neighbours || []),
  };
}

function captionOf(path, reasons) {
  const one = reasons.relation ? "known pair" : "example";
  if (path.entities[0].id !== reasons.head.id)
    return `from ${reasons.relation ? "a" : "an"} ${one}`;
  if (!path.like) return "";
  const lookedAt = reasons.compared < reasons.given ? " looked at" : "";
  return `like ${path.like} of ${plural(reasons.compared, one)}${lookedAt}`;
}

// A sketch has lanes of nodes, at 0 ≤ position ≤ 1 along the lane, and edges between them. All lanes share both ends.
function endsOf(reasons, head = 0, tail = 1) {
  return {
    head: { ...reasons.head, position: head, end: true },
    tail: { ...reasons.tail, position: tail, end: true },
  };
}

function sketchPaths(reasons, relation) {
  const startsAtHead = (path) => path.entities[0].id === reasons.head.id;
  const isDirect = (path) => path.steps.length === 1 && startsAtHead(path);
  const paths = reasons.paths.filter(
    (path) => path.entities.length > 1 && (path.weight > 0 || isDirect(path)),
  );
  const nameOf = (step) =>
    step.reference && !reasons.relation ? relation : shortRelation(step.words || step.relation);
  if (!paths.length) return null;
  const ends = endsOf(reasons);
  const lanes = paths.map((path) => {
    const offset = startsAtHead(path) ? 0 : 1; // a path from a reference starts beside the head
    const length = path.steps.length + offset;
    const nodes = path.entities.map((entity, i) => ({
      ...entity,
      position: (i + offset) / length,
    }));
    if (!offset) nodes[0] = ends.head;
    nodes[nodes.length - 1] = ends.tail;
    const edges = path.steps.map((step, i) => ({
      label: nameOf(step),
      inverse: step.inverse,
      from: nodes[i],
      to: nodes[i + 1],
      weight: path.weight,
    }));
    return { path, nodes, edges, length, caption: captionOf(path, reasons) };
  });
  return { ends, lanes };
}

function sketchNeighbours(reasons, relation) {
  const of = (end) => reasons.neighbours.filter((one) => one.of === end && one.weight > 0);
  const [ofHead, ofTail] = [of("head"), of("tail")];
  const count = Math.max(ofHead.length, ofTail.length);
  if (!count) return null;
  const before = ofHead.length ? 1 : 0;
  const length = before + 1 + (ofTail.length ? 1 : 0);
  const ends = endsOf(reasons, before / length, (before + 1) / length);
  const attention = ({ weight }) => (reasons.shared ? "" : `, ${formatPercent(weight)}`);
  const labelOf = (one) => shortRelation(one.relation) + attention(one);
  const lanes = Array.from({ length: count }, (_, i) => {
    const nodes = [];
    const edges = [];
    const [left, right] = [ofHead[i], ofTail[i]];
    if (left) {
      const node = { ...left.entity, position: 0 };
      nodes.push(node);
      const ofEdge = { label: labelOf(left), inverse: !left.inverse, weight: left.weight };
      edges.push({ ...ofEdge, from: node, to: ends.head });
    }
    if (right) {
      const node = { ...right.entity, position: 1 };
      nodes.push(node);
      const ofEdge = { label: labelOf(right), inverse: right.inverse, weight: right.weight };
      edges.push({ ...ofEdge, from: ends.tail, to: node });
    }
    return { nodes, edges, neighbours: [left, right].filter(Boolean), length, caption: "" };
  });
  const query = { label: relation, from: ends.head, to: ends.tail, weight: 0, query: true };
  return { ends, lanes, query };
}

function layOut(sketch, width, maxLanes) {
  const first = sketch.lanes.slice(0, maxLanes);
  const labels = first.flatMap((lane) => lane.edges.map((edge) => edge.label));
  const longestWord = Math.max(
    ...labels.flatMap(splitWords).map((word) => textWidth(word, "edge")),
  );
  const minEdge = Math.min(MIN_WORDY_EDGE, Math.max(MIN_EDGE, longestWord + 16));
  const mostSteps = Math.max(...first.map((lane) => lane.length));
  const nodeWidth = Math.min(140, (width - mostSteps * minEdge) / (mostSteps + 1));
  const horizontal = nodeWidth >= 88;
  const lanes = horizontal ? first : first.slice(0, Math.max(1, Math.floor(width / 150)));
  const column = width / lanes.length;
  const boxWidth = horizontal ? nodeWidth : Math.min(220, column - 14);
  const inner = lanes.flatMap((lane) => lane.nodes.filter((node) => !node.end));
  const isTall = inner.some((node) => wrap(node.name, boxWidth - 6, 3, "node").length === 3);
  const boxHeight = isTall ? 48 : 34;
  const hasCaptions = lanes.some((lane) => lane.caption);
  const drawn = [...lanes.flatMap((lane) => lane.edges), ...(sketch.query ? [sketch.query] : [])];
  const labelLines = Math.max(...drawn.map((edge) => wrap(edge.label, boxWidth, 3, "edge").length));
  const steps = Math.max(...lanes.map((lane) => lane.length));
  const gap = 34 + EDGE_LINE * labelLines + (hasCaptions ? 16 : 0); // between nodes from top to bottom
  const length = horizontal ? width : (steps + 1) * boxHeight + steps * gap;
  const pitch = horizontal ? boxHeight + (hasCaptions ? 50 : 34) : column;
  const size = horizontal ? boxWidth : boxHeight; // of a node along its lane
  const along = (node) => size / 2 + node.position * (length - size);
  const across = (lane) => (horizontal ? lane * pitch + boxHeight / 2 + 23 : (lane + 0.5) * pitch);
  return {
    lanes,
    horizontal,
    hasCaptions,
    width,
    height: horizontal ? lanes.length * pitch : length,
    boxWidth,
    boxHeight,
    size,
    along,
    across,
    center: (node, lane) =>
      horizontal ? [along(node), across(lane)] : [across(lane), along(node)],
    heaviest: Math.max(1e-9, ...drawn.map((edge) => edge.weight)),
  };
}

function drawEdge(edge, lane, layout, arrow) {
  const { horizontal, size, boxWidth, center, hasCaptions } = layout;
  const start = center(edge.from, lane);
  const end = center(edge.to, lane);
  const axis = horizontal ? 0 : 1;
  start[axis] += size / 2 + 2;
  end[axis] -= size / 2 + 2;
  const x = (start[0] + end[0]) / 2;
  const y = (start[1] + end[1]) / 2;
  const style = {
    width: boxWidth,
    maxLines: 3,
    lineHeight: EDGE_LINE,
    font: "edge",
    cutStart: true,
  };
  const label = horizontal
    ? drawText(edge.label, x, y - 10, { ...style, width: end[0] - start[0] - 14, anchor: "bottom" })
    : drawText(edge.label, x, y + (hasCaptions && edge.from.end ? 9 : 0), style);
  const line = {
    d: `M${start} L${end}`,
    "stroke-width": (1 + Math.max(0, edge.weight) / layout.heaviest).toFixed(2),
    [edge.inverse ? "marker-start" : "marker-end"]: `url(#${arrow})`,
  };
  return svg("g", { class: edge.query ? "edge query" : "edge" }, svg("path", line), label);
}

function drawNode(node, lane, { boxWidth, boxHeight, center }) {
  const [x, y] = center(node, lane);
  const box = {
    x: x - boxWidth / 2,
    y: y - boxHeight / 2,
    width: boxWidth,
    height: boxHeight,
    rx: 4,
  };
  const style = { width: boxWidth - 6, maxLines: 3, lineHeight: NODE_LINE, font: "node" };
  return svg("g", { class: "node" }, svg("rect", box), drawText(node.name, x, y, style));
}

// The head or the tail, which reaches over all lanes.
function drawEnd(node, { lanes, horizontal, width, boxWidth, boxHeight, along, across }) {
  const top = across(0) - boxHeight / 2;
  const bottom = across(lanes.length - 1) + boxHeight / 2;
  const box = horizontal
    ? { x: along(node) - boxWidth / 2, y: top, width: boxWidth, height: bottom - top }
    : { x: 7, y: along(node) - boxHeight / 2, width: width - 14, height: boxHeight };
  const text = drawText(node.name, box.x + box.width / 2, box.y + box.height / 2, {
    width: box.width - 6,
    maxLines: Math.max(2, Math.floor(box.height / 16)),
    lineHeight: NODE_LINE,
    font: "end",
  });
  return svg("g", { class: "node end" }, svg("rect", { ...box, rx: 4 }), text);
}

function drawCaption(lane, i, { horizontal, width, boxWidth, boxHeight, across }) {
  if (!lane.caption) return null;
  const style = { lineHeight: EDGE_LINE, font: "edge", anchor: "top" };
  const text = horizontal
    ? drawText(lane.caption, width / 2, across(i) + boxHeight / 2 + 11, {
        ...style,
        width: width - 2 * boxWidth - 16,
        maxLines: 1,
      })
    : drawText(lane.caption, across(i), boxHeight + 11, { ...style, width: boxWidth, maxLines: 2 });
  return svg("g", { class: "caption" }, text);
}

function arrowHead(id) {
  const attributes = {
    id,
    viewBox: "0 0 8 8",
    refX: 7,
    refY: 4,
    markerWidth: 8,
    markerHeight: 8,
    markerUnits: "userSpaceOnUse",
    orient: "auto-start-reverse",
  };
  return svg("marker", attributes, svg("path", { class: "tip", d: "M0 0.8 L8 4 L0 7.2 Z" }));
}

function describeLane(lane) {
  if (!lane.path) return lane.nodes.map((node) => node.name).join(", ");
  return lane.caption ? `${pathText(lane.path)} (${lane.caption})` : pathText(lane.path);
}

// Lines of text around y, or with their bottom or top line at y.
function drawText(text, x, y, { width, maxLines, lineHeight, font, cutStart, anchor }) {
  const lines = wrap(text, width, maxLines, font, cutStart);
  const height = (lines.length - 1) * lineHeight;
  const top = y - { top: 0, bottom: height, middle: height / 2 }[anchor || "middle"];
  const textWide = Math.max(...lines.map((line) => textWidth(line, font))) + 6;
  const ground = {
    class: "ground",
    x: x - textWide / 2,
    y: top - lineHeight / 2,
    width: textWide,
    height: lines.length * lineHeight,
  };
  const spans = lines.map((line, i) => svg("tspan", { x, y: top + i * lineHeight }, line));
  return svg("g", {}, svg("rect", ground), svg("text", {}, svg("title", {}, text), ...spans));
}

function textWidth(text, font) {
  pen.font = `${FONTS[font]} ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

const splitWords = (text) => text.split(/(?<=[\s/._-])/);

// Text in at most `maxLines` lines of `width` pixels; what is too long is cut at its end, or at its start.
function wrap(text, width, maxLines, font, cutStart = false) {
  const fits = (line) => textWidth(line.trim(), font) <= width;
  const fillLines = (pieces) =>
    pieces.reduce(
      (lines, piece) => {
        const longer = lines.at(-1) + piece;
        if (!lines.at(-1) || fits(longer)) lines[lines.length - 1] = longer;
        else lines.push(piece);
        return lines;
      },
      [""],
    );
  const pieces = splitWords(text).flatMap((word) => fillLines([...word]));
  const lines = fillLines(pieces).map((line) => line.trim());
  if (lines.length <= maxLines) return lines;
  if (cutStart) return cutFront(pieces, maxLines, fits);
  const last = [...lines[maxLines - 1]];
  while (last.length && !fits(`${last.join("")}…`)) last.pop();
  return [...lines.slice(0, maxLines - 1), `${last.join("").trim()}…`];
}

// The last pieces of a text that fit in `maxLines` lines, with an ellipsis in front.
function cutFront(pieces, maxLines, fits) {
  const lines = [""];
  for (const piece of [...pieces].reverse()) {
    const isFirst = lines.length === maxLines;
    const longer = piece + lines[0];
    if (!lines[0] || fits(isFirst ? `…${longer}` : longer)) lines[0] = longer;
    else if (isFirst) break;
    else lines.unshift(piece);
  }
  const first = [...lines[0].trim()];
  while (first.length && !fits(`…${first.join("")}`)) first.shift();
  return [`…${first.join("").trim()}`, ...lines.slice(1).map((line) => line.trim())];
}
