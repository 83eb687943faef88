// Numbers, names and sentences as the page writes them.

export const formatCount = (count) => count.toLocaleString("en");

export const plural = (count, one, many = `${one}s`) =>
  `${formatCount(count)} ${count === 1 ? one : many}`;

export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const asSentence = (text) => capitalized(text) + (/[.!?…]$/.test(text) ? "" : ".");

export function formatPercent(probability) {
  if (probability > 0 && probability < 0.01) return "< 1 %";
  if (probability > 0.99 && probability < 1) return "> 99 %";
  return `${Math.round(100 * probability)} %`;
}

export const formatScore = (value) => `${value < 0 ? "−" : ""}${Math.abs(value).toFixed(2)}`;

export const formatSigned = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;

export const formatBytes = (bytes) =>
  bytes < 1 << 20 ? `${Math.ceil(bytes / 1024)} KB` : `${Math.round(bytes / (1 << 20))} MB`;

export function formatDuration(seconds) {
  if (seconds < 90) return plural(Math.max(1, Math.round(seconds)), "second");
  if (seconds < 5400) return plural(Math.round(seconds / 60), "minute");
  return plural(Math.round(seconds / 3600), "hour");
}

// Heads per second or, if slow, per minute.
export function formatPace(perSecond) {
  if (perSecond >= 1) return `${plural(Math.round(perSecond), "head")} a second`;
  return `${plural(Math.max(1, Math.round(60 * perSecond)), "head")} a minute`;
}

export const withSpaces = (name) => name.replaceAll("_", " ");

// A name that fits beside others on a line.
export const shortened = (name, length = 40) =>
  name.length > length ? `${name.slice(0, length - 1).trimEnd()}…` : name;

// The name of an end of a pair, "head" or "tail", with its id if another entity of the graph has the same name.
export const endText = (pair, end) =>
  pair[`${end}_name_shared`] ? `${pair[`${end}_name`]} (${pair[end]})` : pair[`${end}_name`];

export const pairText = (pair) => `${endText(pair, "head")} → ${endText(pair, "tail")}`;

// The last words of a relation that is written as a path or an address; both of two joined paths.
export function shortRelation(relation) {
  if (!/^(\/|https?:\/\/)/.test(relation)) return relation;
  const paths = relation.startsWith("/") ? relation.split("./") : [relation];
  const ends = paths.map((path) =>
    path
      .replace(/[/#]+$/, "")
      .split(/[/#]/)
      .at(-1),
  );
  return ends.join(" / ") || relation;
}

export function stepText({ relation, words, inverse }) {
  const name = shortRelation(words || relation);
  return inverse ? `←${name}—` : `—${name}→`;
}

export const pathText = ({ entities, steps }) =>
  entities
    .map((entity, i) => (i ? `${stepText(steps[i - 1])} ${entity.name}` : entity.name))
    .join(" ");
