// Reasons of a prediction: a drawing of the paths, bars of evidence, and what these do not show in words.

let evidence = {}; // descriptions of the kinds of evidence, from the server
let drawings = 0;
const GAP = [86, 104]; // least length of an edge from left to right: of any, and of one with long words
const LEAST = 0.005; // contributions to the score below this are not mentioned
const FONT = {node: "12px", end: "600 12px", edge: "11px"};
const pen = document.createElement("canvas").getContext("2d");

function widthOf(text, font) {
  pen.font = `${FONT[font]} ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

function lines(text, room, most, font, front) {
  // A text in at most `most` lines of `room` pixels; what is too long is cut at its end, or in front.
  const fits = line => widthOf(line.trim(), font) <= room;
  const pieces = text.split(/(?<=[\s/._-])/).flatMap(piece => {
    const parts = [""];
    for (const sign of piece) fits(parts.at(-1) + sign) || !parts.at(-1) ? parts[parts.length - 1] += sign : parts.push(sign);
    return parts;
  });
  const filled = [""];
  for (const piece of pieces) fits(filled.at(-1) + piece) || !filled.at(-1) ? filled[filled.length - 1] += piece : filled.push(piece);
  if (filled.length <= most) return filled.map(line => line.trim());
  if (!front) {
    const last = [...filled[most - 1].trim()];
    while (last.length && !fits(`${last.join("")}…`)) last.pop();
    return [...filled.slice(0, most - 1).map(line => line.trim()), `${last.join("").trim()}…`];
  }
  const kept = [""];
  while (pieces.length && (kept.length < most || fits(`…${pieces.at(-1)}${kept[0]}`))) {
    const piece = pieces.pop();
    if (fits(`${kept.length === most ? "…" : ""}${piece}${kept[0]}`) || !kept[0]) kept[0] = piece + kept[0];
    else kept.unshift(piece);
  }
  const first = [...kept[0].trim()];
  while (first.length && !fits(`…${first.join("")}`)) first.shift();
  return [`…${first.join("").trim()}`, ...kept.slice(1).map(line => line.trim())];
}

function words(text, x, y, {room, most, size, font, front, above, below}) {
  // Lines around y, above it or below it.
  const parts = lines(text, room, most, font, front), top = y - (below ? 0 : parts.length - 1) * size / (above ? 1 : 2);
  const wide = Math.max(...parts.map(line => widthOf(line, font))) + 6;
  return draw("g", {}, draw("rect", {class: "ground", x: x - wide / 2, y: top - size / 2, width: wide, height: parts.length * size}),
    draw("text", {}, draw("title", {}, text), ...parts.map((line, i) => draw("tspan", {x, y: top + i * size}, line))));
}

function brief(relation) {
  // The telling end of a relation that is written as a path or an address; of two joined paths, both ends.
  if (!/^(\/|https?:\/\/)/.test(relation)) return relation;
  const parts = relation.startsWith("/") ? relation.split("./") : [relation];
  return parts.map(part => part.replace(/[/#]+$/, "").split(/[/#]/).at(-1)).join(" / ") || relation;
}

const labelOf = edge => brief(edge.relation) + (edge.amount || "");
const isDirect = (path, reasons) => path.steps.length === 1 && path.entities[0].id === reasons.head.id;

function captionOf(path, reasons) {
  const from = path.entities[0].id !== reasons.head.id ? "from a reference" : path.like ? `like ${path.like} of ${plural(reasons.references.length, "reference")}` : "";
  return [Math.abs(path.weight) >= LEAST ? figure(path.weight, "+") : "", from].filter(Boolean).join(", ");
}

function sketch(reasons) {
  // Lanes of nodes at 0 ≤ along ≤ 1 with edges between them, and both ends, which all lanes share; null if there is nothing to draw.
  const ends = {head: {...reasons.head, along: 0, end: true}, tail: {...reasons.tail, along: 1, end: true}};
  const walked = reasons.paths.filter(path => path.entities.length > 1 && (path.weight > 0 || isDirect(path, reasons)));
  walked.sort((a, b) => isDirect(b, reasons) - isDirect(a, reasons) || b.weight - a.weight);
  if (walked.length) return {ends, lanes: walked.map(path => {
    const later = path.entities[0].id === reasons.head.id ? 0 : 1; // a path from a reference begins beside the head
    const nodes = path.entities.map((entity, place) => ({...entity, along: (place + later) / (path.steps.length + later)}));
    if (!later) nodes[0] = ends.head;
    nodes[nodes.length - 1] = ends.tail;
    return {path, nodes, caption: captionOf(path, reasons), steps: path.steps.length + later,
      edges: path.steps.map((step, i) => ({...step, from: nodes[i], to: nodes[i + 1], weight: path.weight}))};
  })};
  const nearby = {head: [], tail: []};
  for (const near of reasons.neighbours) if (near.weight > 0) nearby[near.of].push(near);
  const count = Math.max(nearby.head.length, nearby.tail.length);
  if (!count) return null;
  const before = nearby.head.length ? 1 : 0, steps = before + 1 + (nearby.tail.length ? 1 : 0);
  Object.assign(ends.head, {along: before / steps});
  Object.assign(ends.tail, {along: (before + 1) / steps});
  const query = {relation: relationName(), from: ends.head, to: ends.tail, weight: 0};
  return {ends, query, lanes: Array.from({length: count}, (_, lane) => {
    const nodes = [], edges = [], near = [];
    for (const [of, along] of [["head", 0], ["tail", 1]]) {
      const one = nearby[of][lane];
      if (!one) continue;
      const node = {...one.entity, along};
      nodes.push(node);
      near.push(one);
      const [from, to] = of === "head" ? [node, ends.head] : [ends.tail, node];
      edges.push({relation: one.relation, amount: reasons.shared ? "" : `, ${percent(one.weight)}`, inverse: of === "head" ? !one.inverse : one.inverse, from, to, weight: one.weight});
    }
    return {nodes, edges, near, steps, caption: ""};
  })};
}

function drawing(reasons, width, lanesAtMost = 3) {
  // Each lane is straight, from left to right or else from top to bottom, and the ends reach over all lanes: no labels can meet.
  const graph = sketch(reasons);
  if (!graph) return {picture: null, drawn: [], near: []};
  const shown = graph.lanes.slice(0, lanesAtMost), most = Math.max(...shown.map(lane => lane.steps));
  const longest = Math.max(...shown.flatMap(lane => lane.edges.flatMap(edge => labelOf(edge).split(/(?<=[\s/._-])/).map(word => widthOf(word, "edge")))));
  const gap = Math.min(GAP[1], Math.max(GAP[0], longest + 16));
  const side = Math.min(140, (width - most * gap) / (most + 1)), across = side >= 88;
  const lanes = across ? shown : shown.slice(0, Math.max(1, Math.min(lanesAtMost, Math.floor(width / 150))));
  const steps = Math.max(...lanes.map(lane => lane.steps)), mark = `tip-${++drawings}`, captions = lanes.some(lane => lane.caption);
  const column = width / lanes.length, box = across ? side : Math.min(220, column - 14);
  const inside = lanes.flatMap(lane => lane.nodes.filter(node => !node.end).map(node => lines(node.name, box - 6, 3, "node").length));
  const tall = Math.max(2, ...inside) === 3 ? 48 : 34; // height of a node
  const labels = Math.max(...[...lanes.flatMap(lane => lane.edges), graph.query || {relation: ""}].map(edge => lines(labelOf(edge), box, 3, "edge").length));
  const pitch = across ? tall + (captions ? 50 : 34) : column, size = across ? box : tall;
  const length = across ? width : (steps + 1) * tall + steps * (34 + 12 * labels + (captions ? 16 : 0));
  const along = node => size / 2 + node.along * (length - size);
  const beside = lane => across ? lane * pitch + tall / 2 + 23 : (lane + 0.5) * pitch;
  const point = (node, lane) => across ? [along(node), beside(lane)] : [beside(lane), along(node)];
  const heaviest = Math.max(1e-9, ...lanes.flatMap(lane => lane.edges.map(edge => edge.weight)));
  const edgeOf = (edge, lane) => {
    const begin = point(edge.from, lane), end = point(edge.to, lane), way = across ? 0 : 1;
    begin[way] += size / 2 + 2;
    end[way] -= size / 2 + 2;
    const middle = [(begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2];
    const room = across ? end[0] - begin[0] - 14 : box;
    return draw("g", {class: edge === graph.query ? "edge query" : "edge"},
      draw("path", {d: `M${begin} L${end}`, "stroke-width": (1 + Math.max(0, edge.weight) / heaviest).toFixed(2), [edge.inverse ? "marker-start" : "marker-end"]: `url(#${mark})`}),
      words(labelOf(edge), middle[0], across ? middle[1] - 10 : middle[1] + (captions && edge.from.end ? 9 : 0), {room, most: 3, size: 12, font: "edge", front: true, above: across}));
  };
  const edges = lanes.flatMap((lane, at) => lane.edges.map(edge => edgeOf(edge, at)));
  if (graph.query) edges.push(edgeOf(graph.query, (lanes.length - 1) / 2));
  const inner = lanes.flatMap((lane, at) => lane.nodes.filter(node => !node.end).map(node => {
    const [x, y] = point(node, at);
    return draw("g", {class: "node"}, draw("rect", {x: x - box / 2, y: y - tall / 2, width: box, height: tall, rx: 4}),
      words(node.name, x, y, {room: box - 6, most: 3, size: 14, font: "node"}));
  }));
  const outer = [graph.ends.head, graph.ends.tail].map(node => {
    const from = across ? beside(0) - tall / 2 : 7, to = across ? beside(lanes.length - 1) + tall / 2 : width - 7, at = along(node);
    const place = across ? {x: at - box / 2, y: from, width: box, height: to - from} : {x: from, y: at - tall / 2, width: to - from, height: tall};
    return draw("g", {class: "node end"}, draw("rect", {...place, rx: 4}), words(node.name, place.x + place.width / 2, place.y + place.height / 2,
      {room: place.width - 6, most: Math.max(2, Math.floor(place.height / 16)), size: 14, font: "end"}));
  });
  const notes = lanes.map((lane, at) => {
    if (!lane.caption) return null;
    const [x, y, room] = across ? [width / 2, beside(at) + tall / 2 + 11, width - 2 * box - 16] : [beside(at), tall + 11, box];
    return draw("g", {class: "caption"}, words(lane.caption, x, y, {room, most: across ? 1 : 2, size: 12, font: "edge", below: true}));
  });
  const high = across ? lanes.length * pitch : length;
  const tip = draw("marker", {id: mark, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8,
    markerUnits: "userSpaceOnUse", orient: "auto-start-reverse"}, draw("path", {class: "tip", d: "M0 0.8 L8 4 L0 7.2 Z"}));
  const told = lanes.map(lane => lane.path ? `${pathText(lane.path)} (${lane.caption})` : lane.nodes.map(node => node.name).join(", ")).join("; ");
  const picture = draw("svg", {viewBox: `0 0 ${width} ${high}`, role: "img", "aria-label": `How ${reasons.head.name} and ${reasons.tail.name} are connected: ${told}`},
    draw("defs", {}, tip), ...edges, ...notes, ...outer, ...inner);
  return {picture, drawn: lanes.map(lane => lane.path).filter(Boolean), near: lanes.flatMap(lane => lane.near || [])};
}

function bars(shares) {
  const values = Object.values(shares), low = Math.min(0, ...values), high = Math.max(0, ...values), span = high - low || 1;
  const part = value => `${(100 * value / span).toFixed(2)}%`;
  return make("dl", {class: "shares"}, ...Object.entries(shares).flatMap(([kind, value]) => [
    make("dt", {}, evidence[kind] || kind),
    make("dd", {class: value < 0 ? "share against" : "share", "aria-hidden": "true", "--from": part(Math.min(value, 0) - low),
      "--share": part(Math.abs(value)), "--zero": part(-low)}, make("i")),
    make("dd", {}, figure(value, "+")),
  ]));
}

const hop = step => step.inverse ? `←${brief(step.relation)}—` : `—${brief(step.relation)}→`;
const pathText = path => path.entities.map((entity, i) => i ? `${hop(path.steps[i - 1])} ${entity.name}` : entity.name).join(" ");

function told(reasons, drawn, near) {
  // The sentences that say more than the drawing, the bars and the row: `lead` in front, and the others.
  const shares = Object.entries(reasons.shares).map(([kind, value]) => `${evidence[kind] || kind} (${value < 0 ? "-" : "+"}${Math.abs(value).toFixed(2)})`);
  const paths = reasons.paths.filter(path => path.entities.length > 1);
  const beside = one => `${hop(one)} ${one.entity.name}`;
  const repeats = text => [...shares, ...paths.map(pathText), ...near.map(beside)].some(part => text.includes(part));
  const said = reasons.sentences.filter(text => !text.endsWith(` has a score of ${reasons.score.toFixed(2)}.`));
  const lead = said.length && said[0].startsWith(reasons.head.name) && !shares.some(share => said[0].includes(share)) ? said.shift() : "";
  const others = said.filter(text => !repeats(text)), left = paths.filter(path => path.weight >= LEAST && !drawn.includes(path));
  for (const path of left.slice(0, 2)) others.push(`Another path: ${pathText(path)} (${captionOf(path, reasons)}).`);
  const unseen = near.length ? reasons.neighbours.filter(one => one.weight > 0 && !near.includes(one)) : [];
  if (unseen.length) others.push(`Further neighbours: ${unseen.map(one => `${reasons[one.of].name} ${beside(one)}`).join("; ")}.`);
  return {lead, others};
}

function reasonElements(reasons, width) {
  const {picture, drawn, near} = drawing(reasons, width), titled = (title, element) => element ? [make("h4", {}, title), element] : [];
  const caption = drawn.length ? reasons.measured ? "Paths that carried the score" : "Paths like those between the references"
    : reasons.shared ? "What the tail shares with the references’ tails" : "Neighbours with most attention";
  const {lead, others} = told(reasons, drawn, near);
  const list = others.length ? make("ul", {class: "said"}, ...others.map(text => make("li", {}, text))) : null;
  return [
    ...(lead ? [make("p", {class: "lead"}, lead)] : []),
    ...titled(caption, picture && make("div", {class: "drawing"}, picture, make("button", {type: "button", class: "quiet", onclick: () => enlarge(reasons, caption)}, "Larger"))),
    ...titled(`Evidence in the score of ${figure(reasons.score)}`, Object.keys(reasons.shares).length ? bars(reasons.shares) : null),
    ...titled("In words", list),
  ];
}

function enlarge(reasons, caption) {
  // The drawing in a dialog that fills the window, with more paths and larger letters.
  $("larger-title").textContent = `${reasons.head.name} → ${reasons.tail.name}: ${caption.charAt(0).toLowerCase()}${caption.slice(1)}`;
  $("larger").showModal();
  drawLarger = () => {
    const room = $("larger-drawing").clientWidth, wide = Math.max(720, room); // on a phone it is scrolled
    const {picture} = drawing(reasons, wide / (wide > 900 ? 1.25 : 1), 8);
    picture.style.setProperty("--wide", `${wide}px`);
    $("larger-drawing").replaceChildren(picture);
  };
  drawLarger();
}
let drawLarger = () => {};
addEventListener("resize", () => { if ($("larger").open) drawLarger(); });
