// The HTTP interface, from its OpenAPI schema: what each endpoint takes and gives, and a form to try it.

let schemas = {};

const resolved = schema => schema && schema.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema || {};
const quoted = value => Array.isArray(value) && !value.length ? "an empty list" : typeof value === "string" ? `"${value}"` : String(value);

function kindOf(schema) {
  // A type in words, such as `list of text, 1 to 200`.
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map(kindOf).join(" or ");
  if (schema.const !== undefined) return quoted(schema.const);
  if (schema.enum) return schema.enum.map(quoted).join(" or ");
  const range = (low, high) => low === undefined && high === undefined ? "" : low !== undefined && low === high ? `, exactly ${low}` : `, ${low === undefined ? "up to" : `${low.toLocaleString("en")} ${high === undefined ? "or more" : "to"}`}${high === undefined ? "" : ` ${high.toLocaleString("en")}`}`;
  const inside = schema.items ? kindOf(schema.items) : "anything";
  if (schema.type === "array") return `list of ${inside.includes(",") ? `(${inside})` : inside}${range(schema.minItems, schema.maxItems)}`;
  if (schema.type === "object") return schema.additionalProperties ? `object of ${kindOf(schema.additionalProperties)}` : "object";
  const plain = {string: "text", integer: "whole number", number: "number", boolean: "true or false", null: "null"}[schema.type] || "anything";
  return plain + (schema.type === "string" ? "" : range(schema.minimum, schema.maximum));
}

const pretty = content => JSON.stringify(content, null, 1).replace(/\[\s+("[^"\n]*"),\s+("[^"\n]*")\s+\]/g, "[$1, $2]");

function table(fields) {
  // Rows of [name, schema, required, description].
  return make("table", {}, make("thead", {}, make("tr", {}, ...["Field", "Type", "Meaning"].map(title => make("th", {scope: "col"}, title)))),
    make("tbody", {}, ...fields.map(([name, schema, required, meaning]) => make("tr", {},
      make("th", {scope: "row"}, make("code", {}, name), required ? make("small", {}, " required") : null),
      make("td", {}, kindOf(schema), schema.default !== undefined && schema.default !== null ? make("small", {}, `; ${quoted(schema.default)} if left out`) : null),
      make("td", {}, ...marked(meaning))))));
}

const marked = text => (text || "").split("`").map((part, i) => i % 2 ? make("code", {}, part) : part);
const fieldsOf = (schema, sent) => Object.entries(schema.properties || {}).map(([name, field]) => [name, field, sent && (schema.required || []).includes(name), field.description || resolved(field).description]);

function nested(schema, seen = new Set()) {
  // The names of all schemas that a schema refers to, each once.
  for (const [, name] of JSON.stringify(schema).matchAll(/"#\/components\/schemas\/(\w+)"/g)) if (!seen.has(name)) {
    seen.add(name);
    nested(schemas[name], seen);
  }
  return seen;
}

function described(title, schema, sent) {
  // The fields of an object, and of the objects in it.
  const whole = resolved(schema), inside = [...nested(schema)].filter(name => schemas[name] !== whole && schemas[name].properties);
  return [make("h3", {}, title), whole.properties ? table(fieldsOf(whole, sent)) : make("p", {}, kindOf(schema)),
    ...(inside.length ? [make("details", {}, make("summary", {}, `Objects in it: ${inside.join(", ")}`), ...inside.flatMap(name =>
      [make("h3", {}, name), schemas[name].description ? make("p", {}, ...marked(schemas[name].description)) : null, table(fieldsOf(schemas[name], sent))]))] : [])];
}

async function exampleOf(path) {
  // A body that this server can answer.
  if (path !== "/predict" && path !== "/explain") return {};
  const {relation, references, heads} = await call("example?number=0");
  const body = {references: references.map(pair => pair.map(entity => entity.id)), relation};
  if (path === "/predict") return {...body, heads: heads.slice(0, 1).map(head => head.id), k: 3};
  const [best] = (await call("predict", {...body, heads: [heads[0].id], k: 1})).predictions;
  return {...body, head: heads[0].id, tail: best ? best.tail : references[0][1].id};
}

function trial(path, method, parameters) {
  // A form that sends a request, and its answer.
  const answer = make("pre", {class: "answer", tabindex: "0", "aria-label": `Answer of ${path}`, hidden: true}), id = idOf(path, method);
  const body = method === "post" ? make("textarea", {id: `body-${id}`, rows: 12, spellcheck: "false"}) : null;
  const fields = parameters.map(({name, schema}) => make("input", {id: `${id}-${name}`, type: "text", name, value: name === "q" ? "a" : schema.default ?? ""}));
  if (body) exampleOf(path).then(example => { body.value = pretty(example); }, () => { body.value = "{}"; });
  const send = async event => {
    event.preventDefault();
    answer.hidden = false;
    answer.textContent = "…";
    try {
      const inPath = name => path.includes(`{${name}}`), sent = fields.filter(field => field.value);
      const query = new URLSearchParams(sent.filter(field => !inPath(field.name)).map(field => [field.name, field.value])).toString();
      const to = sent.reduce((text, field) => text.replace(`{${field.name}}`, encodeURIComponent(field.value)), path.slice(1));
      const text = await (await request(to + (query && `?${query}`), body ? JSON.parse(body.value) : undefined)).text();
      answer.textContent = /^[[{]/.test(text) ? pretty(JSON.parse(text)) : text;
    } catch (problem) {
      answer.textContent = problem.message;
    }
  };
  return make("form", {class: "trial", onsubmit: send},
    ...fields.flatMap(field => [make("label", {class: "label", for: field.id}, field.name), field]),
    ...(body ? [make("label", {class: "label", for: body.id}, "Body"), body] : []), make("button", {class: "primary"}, "Send"), answer);
}

// An id for each endpoint: `predict`, `projects`, `projects-number-decisions-post` beside a GET of the same path.
const idOf = (path, method) => path.slice(1).replace(/[{}]/g, "").replaceAll("/", "-") + (method === "post" && !["/predict", "/explain"].includes(path) ? "-post" : "");

function endpoint(path, method, facts) {
  const parameters = facts.parameters || [], body = facts.requestBody && facts.requestBody.content["application/json"].schema;
  const id = idOf(path, method), address = new URL("./", document.baseURI) + path.slice(1), command = method === "post"
    ? `curl -H 'Content-Type: application/json' -d @body.json ${address}` : `curl ${address}`;
  const [, success] = Object.entries(facts.responses).find(([status]) => status.startsWith("2")), json = (success.content || {})["application/json"];
  return make("section", {class: "endpoint", id}, make("h2", {}, make("span", {class: "method"}, method.toUpperCase()), ` ${path}`),
    make("p", {}, facts.description), make("pre", {}, command),
    ...(parameters.length ? [make("h3", {}, "Parameters"), table(parameters.map(each => [each.name, each.schema, each.required, each.description || each.schema.description]))] : []),
    ...(body ? described("Body", body, true) : []), ...(json ? described("Answer", json.schema) : []),
    make("details", {open: true}, make("summary", {}, "Try it"), trial(path, method, parameters)));
}

(async () => {
  try {
    const {paths, components, info} = await call("openapi.json");
    schemas = components.schemas;
    const all = Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, facts]) => [path, method, facts]));
    const first = ["/predict", "/explain"], order = path => first.includes(path) ? first.indexOf(path) : first.length;
    all.sort((one, other) => order(one[0]) - order(other[0]));
    $("contents").replaceChildren(...all.map(([path, method]) => make("a", {href: `#${idOf(path, method)}`}, method === "post" && paths[path].get ? `${path} (post)` : path)));
    const errors = make("section", {class: "endpoint", id: "errors"}, make("h2", {}, "Errors"),
      make("p", {}, "Every error has this form, with a message that says what to do."), ...described("Answer", {$ref: "#/components/schemas/ErrorAnswer"}));
    $("endpoints").replaceChildren(...all.map(each => endpoint(...each)), errors);
    say(`fewlink ${info.version}: ${info.summary}`);
    if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  } catch (problem) {
    say(problem.message);
  }
})();
