// The HTTP interface, from its OpenAPI schema: the fields of each endpoint, and a form to try it.

import { call, request } from "./api.js";
import { $, element, setStatus } from "./dom.js";
import { formatCount } from "./text.js";

const FIRST = ["/predict", "/explain"]; // listed before the other endpoints
const TYPES = {
  string: "text",
  integer: "whole number",
  number: "number",
  boolean: "true or false",
  null: "null",
};

let schemas = {};

const nameOf = (reference) => reference.split("/").at(-1);

const resolve = (schema) => (schema?.$ref ? schemas[nameOf(schema.$ref)] : schema || {});

function formatValue(value) {
  if (Array.isArray(value) && !value.length) return "an empty list";
  return typeof value === "string" ? `"${value}"` : String(value);
}

function formatRange(low, high) {
  if (low === undefined && high === undefined) return "";
  if (low === high) return `, exactly ${low}`;
  if (low === undefined) return `, up to ${formatCount(high)}`;
  if (high === undefined) return `, ${formatCount(low)} or more`;
  return `, ${formatCount(low)} to ${formatCount(high)}`;
}

// A type in words, such as "list of text, 1 to 200".
function typeOf(schema) {
  if (schema.$ref) return nameOf(schema.$ref);
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.const !== undefined) return formatValue(schema.const);
  if (schema.enum) return schema.enum.map(formatValue).join(" or ");
  if (schema.type === "array") {
    const item = schema.items ? typeOf(schema.items) : "anything";
    const range = formatRange(schema.minItems, schema.maxItems);
    return `list of ${item.includes(",") ? `(${item})` : item}${range}`;
  }
  if (schema.type === "object") {
    const values = schema.additionalProperties;
    return values ? `object of ${typeOf(values)}` : "object";
  }
  const type = TYPES[schema.type] || "anything";
  return schema.type === "string" ? type : type + formatRange(schema.minimum, schema.maximum);
}

// Text with its `code` marked up.
const withCode = (text = "") =>
  text.split("`").map((piece, i) => (i % 2 ? element("code", {}, piece) : piece));

// Indented JSON with pairs of names on one line.
const formatJson = (content) =>
  JSON.stringify(content, null, 1).replace(/\[\s+("[^"\n]*"),\s+("[^"\n]*")\s+\]/g, "[$1, $2]");

// A table of fields: {name, schema, required, meaning}.
function fieldTable(fields) {
  const titles = ["Field", "Type", "Meaning"].map((title) =>
    element("th", { scope: "col" }, title),
  );
  const rows = fields.map(({ name, schema, required, meaning }) => {
    const initial = schema.default ?? null;
    return element(
      "tr",
      {},
      element(
        "th",
        { scope: "row" },
        element("code", {}, name),
        required ? element("small", {}, " required") : null,
      ),
      element(
        "td",
        {},
        typeOf(schema),
        initial === null ? null : element("small", {}, `; default ${formatValue(initial)}`),
      ),
      element("td", {}, ...withCode(meaning)),
    );
  });
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...titles)),
    element("tbody", {}, ...rows),
  );
}

const fieldsOf = (schema, isRequest) =>
  Object.entries(schema.properties || {}).map(([name, field]) => ({
    name,
    schema: field,
    required: isRequest && schema.required?.includes(name),
    meaning: field.description || resolve(field).description,
  }));

// The names of all schemas that a schema refers to.
function referredNames(schema, names = new Set()) {
  const references = JSON.stringify(schema).matchAll(/"#\/components\/schemas\/(\w+)"/g);
  for (const [, name] of references) {
    if (names.has(name)) continue;
    names.add(name);
    referredNames(schemas[name], names);
  }
  return names;
}

// The fields of an object, and of the objects in it.
function describe(title, schema, isRequest = false) {
  const whole = resolve(schema);
  const inner = [...referredNames(schema)].filter(
    (name) => schemas[name] !== whole && schemas[name].properties,
  );
  const innerTables = inner.flatMap((name) => [
    element("h3", {}, name),
    element("p", {}, ...withCode(schemas[name].description)),
    fieldTable(fieldsOf(schemas[name], isRequest)),
  ]);
  const summary = element("summary", {}, `Objects in it: ${inner.join(", ")}`);
  return [
    element("h3", {}, title),
    whole.properties ? fieldTable(fieldsOf(whole, isRequest)) : element("p", {}, typeOf(schema)),
    inner.length ? element("details", {}, summary, ...innerTables) : null,
  ];
}

// A body that this server can answer.
async function exampleBody(path) {
  if (!FIRST.includes(path)) return {};
  const { relation, in_graph: inGraph, references, heads } = await call("example?number=0");
  const head = heads[0].id;
  const ids = references.map((pair) => pair.map((entity) => entity.id));
  const body = inGraph ? { relation } : { references: ids };
  if (path === "/predict") return { ...body, heads: [head], k: 3 };
  const { predictions } = await call("predict", { ...body, heads: [head], k: 1 });
  return { ...body, head, tail: predictions.length ? predictions[0].tail : head };
}

// A form that sends a request and shows the response.
function trialForm(path, method, parameters) {
  const id = idOf(path, method);
  const response = element("pre", {
    class: "answer",
    tabindex: "0",
    "aria-label": `Response of ${path}`,
    hidden: true,
  });
  const inputs = parameters.map(({ name, schema }) =>
    element("input", {
      id: `${id}-${name}`,
      type: "text",
      name,
      value: name === "q" ? "a" : (schema.default ?? ""),
    }),
  );
  const body =
    method === "post"
      ? element("textarea", { id: `body-${id}`, rows: 12, spellcheck: "false" })
      : null;
  if (body) {
    exampleBody(path).then(
      (example) => (body.value = formatJson(example)),
      () => (body.value = "{}"),
    );
  }

  function address() {
    let filled = path.slice(1);
    const query = new URLSearchParams();
    for (const { name, value } of inputs.filter((input) => input.value)) {
      if (path.includes(`{${name}}`))
        filled = filled.replace(`{${name}}`, encodeURIComponent(value));
      else query.set(name, value);
    }
    return query.size ? `${filled}?${query}` : filled;
  }

  async function send(event) {
    event.preventDefault();
    response.hidden = false;
    response.textContent = "…";
    try {
      const answer = await request(address(), body ? JSON.parse(body.value) : undefined);
      const text = await answer.text();
      response.textContent = /^[[{]/.test(text) ? formatJson(JSON.parse(text)) : text;
    } catch (error) {
      response.textContent = error.message;
    }
  }

  const labelled = (field, label) => [
    element("label", { class: "label", for: field.id }, label),
    field,
  ];
  return element(
    "form",
    { class: "trial", onsubmit: send },
    ...inputs.flatMap((input) => labelled(input, input.name)),
    ...(body ? labelled(body, "Body") : []),
    element("button", { class: "primary" }, "Send"),
    response,
  );
}

// The id of an endpoint's section: "predict", or "projects-post" beside a GET of the same path.
function idOf(path, method) {
  const name = path.slice(1).replace(/[{}]/g, "").replaceAll("/", "-");
  return method === "post" && !FIRST.includes(path) ? `${name}-post` : name;
}

function endpointSection({ path, method, facts }) {
  const parameters = facts.parameters || [];
  const body = facts.requestBody?.content["application/json"]?.schema;
  const address = new URL("./", document.baseURI) + path.slice(1);
  const options = method === "post" ? "-H 'Content-Type: application/json' -d @body.json " : "";
  const [, success] = Object.entries(facts.responses).find(([status]) => status.startsWith("2"));
  const answer = success.content?.["application/json"];
  const described = answer && Object.keys(answer.schema).length > 0;
  const rows = parameters.map(({ name, schema, required, description }) => ({
    name,
    schema,
    required,
    meaning: description || schema.description,
  }));
  return element(
    "section",
    { class: "endpoint", id: idOf(path, method) },
    element("h2", {}, element("span", { class: "method" }, method.toUpperCase()), ` ${path}`),
    element("p", {}, facts.description),
    element("pre", {}, `curl ${options}${address}`),
    ...(rows.length ? [element("h3", {}, "Parameters"), fieldTable(rows)] : []),
    ...(body ? describe("Request", body, true) : []),
    ...(described ? describe("Response", answer.schema) : []),
    element(
      "details",
      { open: true },
      element("summary", {}, "Try it"),
      trialForm(path, method, parameters),
    ),
  );
}

function errorSection() {
  return element(
    "section",
    { class: "endpoint", id: "errors" },
    element("h2", {}, "Errors"),
    element("p", {}, "Every error has this form, with a message that says what to do."),
    ...describe("Response", { $ref: "#/components/schemas/ErrorAnswer" }),
  );
}

async function start() {
  const { paths, components, info } = await call("openapi.json");
  schemas = components.schemas;
  const endpoints = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, facts]) => ({ path, method, facts })),
  );
  const others = endpoints.filter(({ path }) => !FIRST.includes(path));
  const first = FIRST.flatMap((path) => endpoints.filter((endpoint) => endpoint.path === path));
  const ordered = [...first, ...others];
  $("contents").replaceChildren(
    ...ordered.map(({ path, method }) => {
      const label = method === "post" && paths[path].get ? `${path} (POST)` : path;
      return element("a", { href: `#${idOf(path, method)}` }, label);
    }),
  );
  $("endpoints").replaceChildren(...ordered.map(endpointSection), errorSection());
  setStatus(`fewlink ${info.version}: ${info.summary}`);
  if (location.hash) $(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

start().catch((error) => setStatus(error.message));
