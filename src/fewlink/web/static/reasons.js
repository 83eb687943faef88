// Reasons of a prediction: a drawing of the paths, bars of evidence, and sentences.

let evidence = {}; // descriptions of the kinds of evidence, from the server
let drawings = 0;
const BOX = 34; // height of a node

function lines(text, width, most) {
  // A text in at most `most` lines of about `width` pixels.
  const fits = Math.max(4, Math.floor(width / 6.3)), broken = [""];
  for (const word of text.split(/\s+/)) {
    const last = broken.at(-1);
    if (!last) broken[broken.length - 1] = word;
    else if (last.length + word.length < fits) broken[broken.length - 1] = `${last} ${word}`;
    else broken.push(word);
  }
  const shown = broken.slice(0, most);
  if (broken.length > most) shown[most - 1] += "…";
  return shown.map(line => line.length > fits ? `${line.slice(0, fits - 1)}…` : line);
}

function words(text, x, y, width, most, size) {
  const parts = lines(text, width, most), top = y - (parts.length - 1) * size / 2;
  return draw("text", {}, draw("title", {}, text), ...parts.map((line, i) => draw("tspan", {x, y: top + i * size}, line)));
}

function sketch(reasons) {
  // Nodes at (along, lane) with 0 ≤ along ≤ 1, and edges between them; null if there is nothing to draw.
  const ends = {head: {...reasons.head, along: 0, lane: null, end: true}, tail: {...reasons.tail, along: 1, lane: null, end: true}};
  const walked = reasons.paths.filter(path => path.entities.length && path.weight > 0).sort((a, b) => b.weight - a.weight);
  if (walked.length) return {ends, lanes: walked.map((path, lane) => {
    const later = path.entities[0].id === reasons.head.id ? 0 : 1; // a path from a reference begins beside the head
    const nodes = path.entities.map((entity, place) => ({...entity, along: (place + later) / (path.steps.length + later), lane}));
    if (!later) nodes[0] = ends.head;
    nodes[nodes.length - 1] = ends.tail;
    return {nodes, edges: path.steps.map((step, i) => ({...step, from: nodes[i], to: nodes[i + 1], lane, weight: path.weight}))};
  })};
  const nearby = {head: [], tail: []};
  for (const near of reasons.neighbours) if (near.weight > 0) nearby[near.of].push(near);
  const count = Math.min(4, Math.max(nearby.head.length, nearby.tail.length));
  if (!count) return null;
  Object.assign(ends.head, {along: nearby.head.length ? 0.34 : 0});
  Object.assign(ends.tail, {along: nearby.tail.length ? 0.66 : 1});
  return {ends, query: {relation: state.relation.trim() || "?", from: ends.head, to: ends.tail, weight: 0}, lanes: Array.from({length: count}, (_, lane) => {
    const nodes = [], edges = [];
    for (const [of, along] of [["head", 0], ["tail", 1]]) {
      const near = nearby[of][lane];
      if (!near) continue;
      const node = {...near.entity, along, lane};
      nodes.push(node);
      const [from, to] = of === "head" ? [node, ends.head] : [ends.tail, node];
      edges.push({relation: near.relation, inverse: of === "head" ? !near.inverse : near.inverse, from, to, lane, weight: near.weight});
    }
    return {nodes, edges};
  })};
}

function drawing(reasons, width) {
  const graph = sketch(reasons);
  if (!graph) return null;
  const narrow = width < 470, lanes = graph.lanes.slice(0, narrow ? 2 : 3), mark = `tip-${++drawings}`;
  const steps = graph.query ? 3 : Math.max(...lanes.map(lane => lane.edges.length));
  const box = narrow ? Math.min(150, width / lanes.length - 14) : Math.min(148, width / (steps + 1) * 0.6);
  const length = narrow ? steps * 84 + BOX : width, across = lanes.length * (narrow ? width / lanes.length : 66);
  const at = node => {
    const lane = node.lane === null ? across / 2 : (node.lane + 0.5) * across / lanes.length;
    const along = (narrow ? BOX : box) / 2 + node.along * (length - (narrow ? BOX : box));
    return narrow ? [lane, along] : [along, lane];
  };
  const heaviest = Math.max(...lanes.flatMap(lane => lane.edges.map(edge => edge.weight)));
  if (graph.query) graph.query.lane = (lanes.length - 1) / 2;
  const edges = [...(graph.query ? [graph.query] : []), ...lanes.flatMap(lane => lane.edges)].map(edge => {
    const [x, y] = at(edge.from), [u, v] = at(edge.to), direct = edge.from.end && edge.to.end;
    const [begin, end] = narrow ? [[x, y + BOX / 2 + 2], [u, v - BOX / 2 - 2]] : [[x + box / 2 + 2, y], [u - box / 2 - 2, v]];
    const bend = direct ? (edge.lane + 0.5) * across / lanes.length : null;
    const middle = narrow ? (begin[1] + end[1]) / 2 : (begin[0] + end[0]) / 2;
    const [one, two] = narrow ? [[bend ?? x, middle], [bend ?? u, middle]] : [[middle, bend ?? y], [middle, bend ?? v]];
    const label = [0, 1].map(i => (begin[i] + 3 * one[i] + 3 * two[i] + end[i]) / 8);
    const room = narrow ? box : Math.max(60, end[0] - begin[0] - 4);
    return draw("g", {class: edge === graph.query ? "edge query" : "edge"}, draw("path", {
      d: `M${begin} C${one} ${two} ${end}`, "stroke-width": (1 + edge.weight / heaviest).toFixed(2),
      [edge.inverse ? "marker-start" : "marker-end"]: `url(#${mark})`,
    }), words(edge.relation, label[0], label[1], room, 2, 13));
  });
  const nodes = [...new Set([graph.ends.head, graph.ends.tail, ...lanes.flatMap(lane => lane.nodes)])].map(node => {
    const [x, y] = at(node);
    return draw("g", {class: node.end ? "node end" : "node"},
      draw("rect", {x: x - box / 2, y: y - BOX / 2, width: box, height: BOX, rx: 4}), words(node.name, x, y, box - 8, 2, 14));
  });
  const [w, h] = narrow ? [width, length] : [width, Math.max(across, BOX + 4)];
  const tip = draw("marker", {id: mark, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8,
    markerUnits: "userSpaceOnUse", orient: "auto-start-reverse"}, draw("path", {class: "tip", d: "M0 0.8 L8 4 L0 7.2 Z"}));
  return draw("svg", {viewBox: `0 -2 ${w} ${h + 4}`, role: "img", "aria-label": `How ${reasons.head.name} and ${reasons.tail.name} are connected, as the sentences below describe`},
    draw("defs", {}, tip), ...edges, ...nodes);
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

function reasonElements(reasons, width) {
  const picture = drawing(reasons, width), titled = (title, element) => element ? [make("h4", {}, title), element] : [];
  const caption = reasons.paths.some(path => path.entities.length) 
    ? reasons.measured ? "Paths that carried the score" : "Paths like those between the references" : reasons.shared ? "What the tail shares with the references’ tails" : "Neighbours with most attention";
  return [
    ...titled(caption, picture),
    ...titled("Evidence", Object.keys(reasons.shares).length ? bars(reasons.shares) : null),
    ...titled("In words", make("ul", {class: "said"}, ...reasons.sentences.map(text => make("li", {}, text)))),
  ];
}
