// The HTTP interface, from its OpenAPI schema: what each endpoint takes and gives, and a form to try it.

let schemas = {};

const resolved = schema => schema && schema.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema || {};
const quoted = value => typeof value === "string" ? `"${value}"` : String(value);

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
  const {relation, references, heads} = await call("example?number=0");
  const body = {references: references.map(pair => pair.map(entity => entity.id)), relation};
  if (path === "/predict") return {...body, heads: heads.slice(0, 1).map(head => head.id), k: 3};
  const [best] = (await call("predict", {...body, heads: [heads[0].id], k: 1})).predictions;
  return {...body, head: heads[0].id, tail: best ? best.tail : references[0][1].id};
}

function trial(path, method, parameters) {
  // A form that sends a request, and its answer.
  const answer = make("pre", {class: "answer", tabindex: "0", "aria-label": `Answer of ${path}`, hidden: true}), id = path.replaceAll("/", "");
  const body = method === "post" ? make("textarea", {id: `body-${id}`, rows: 12, spellcheck: "false"}) : null;
  const fields = parameters.map(({name, schema}) => make("input", {id: `${id}-${name}`, type: "text", name, value: name === "q" ? "a" : schema.default ?? ""}));
  if (body) exampleOf(path).then(example => { body.value = pretty(example); }, () => { body.value = "{}"; });
  const send = async event => {
    event.preventDefault();
    answer.hidden = false;
    answer.textContent = "…";
    try {
      const query = new URLSearchParams(fields.filter(field => field.value).map(field => [field.name, field.value])).toString();
      answer.textContent = pretty(await call(path.slice(1) + (query && `?${query}`), body ? JSON.parse(body.value) : undefined));
    } catch (problem) {
      answer.textContent = problem.message;
    }
  };
  return make("form", {class: "trial", onsubmit: send},
    ...fields.flatMap(field => [make("label", {class: "label", for: field.id}, field.name), field]),
    ...(body ? [make("label", {class: "label", for: body.id}, "Body"), body] : []), make("button", {class: "primary"}, "Send"), answer);
}

function endpoint(path, method, facts) {
  const parameters = facts.parameters || [], body = facts.requestBody && facts.requestBody.content["application/json"].schema;
  const id = path.slice(1), command = method === "post"
    ? `curl -H 'Content-Type: application/json' -d @body.json ${new URL(id, document.baseURI)}` : `curl ${new URL(id, document.baseURI)}`;
  return make("section", {class: "endpoint", id}, make("h2", {}, make("span", {class: "method"}, method.toUpperCase()), ` ${path}`),
    make("p", {}, facts.description), make("pre", {}, command),
    ...(parameters.length ? [make("h3", {}, "Parameters"), table(parameters.map(each => [each.name, each.schema, each.required, each.description || each.schema.description]))] : []),
    ...(body ? described("Body", body, true) : []), ...described("Answer", facts.responses["200"].content["application/json"].schema),
    make("details", {open: true}, make("summary", {}, "Try it"), trial(path, method, parameters)));
}

(async () => {
  try {
    const {paths, components, info} = await call("openapi.json");
    schemas = components.schemas;
    const all = Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, facts]) => [path, method, facts]));
    const first = ["/predict", "/explain"], order = path => first.includes(path) ? first.indexOf(path) : first.length;
    all.sort((one, other) => order(one[0]) - order(other[0]));
    $("contents").replaceChildren(...all.map(([path]) => make("a", {href: `#${path.slice(1)}`}, path)));
    const errors = make("section", {class: "endpoint", id: "errors"}, make("h2", {}, "Errors"),
      make("p", {}, "Every error has this form, with a message that says what to do."), ...described("Answer", {$ref: "#/components/schemas/ErrorAnswer"}));
    $("endpoints").replaceChildren(...all.map(each => endpoint(...each)), errors);
    say(`fewlink ${info.version}: ${info.summary}`);
    if (location.hash) document.querySelector(location.hash)?.scrollIntoView();
  } catch (problem) {
    say(problem.message);
  }
})();
