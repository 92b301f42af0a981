// JSON schemas as forms: the kind of field for each schema, and drafts of values as people edit them. Pure.
//
// A draft has the values of a form's fields: texts for numbers, positions for choices. `draftOf` makes one of a value,
// and `readDraft` reads the value back. A value that does not fit its field is edited as JSON, in `{ json: text }`.

/**
 * @typedef {{kind: "text" | "number" | "boolean" | "choice" | "object" | "list" | "map" | "json", schema: any,
 *   nullable: boolean, choices: any[], items: any}} Field
 * @typedef {{path: string, text: string}} Problem
 */

const DEEPEST = 12;
/** A whole number that JavaScript would round: it is kept as text. */
const LONG = /^-?\d{16,}$/;

/** Return a schema without references. @param {any} schema @param {any} root @param {number} [depth] @returns {any} */
export function resolved(schema, root, depth = 0) {
  if (schema === null || typeof schema !== "object" || depth > DEEPEST) return {};
  const { $ref: ref, allOf, ...rest } = schema;
  if (typeof ref === "string" && ref.startsWith("#/")) {
    const names = ref.slice(2).split("/").map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
    const target = names.reduce((/** @type {any} */ found, name) => found?.[name], root);
    return resolved({ ...target, ...rest }, root, depth + 1);
  }
  if (Array.isArray(allOf) && allOf.length === 1) return resolved({ ...allOf[0], ...rest }, root, depth + 1);
  return allOf ? { ...rest, allOf } : rest;
}

const isNull = (/** @type {any} */ schema) => schema.type === "null" || ("const" in schema && schema.const === null);
const valuesOf = (/** @type {any} */ schema) => ("const" in schema ? [schema.const] : schema.enum);

/** Return the field for a schema. @param {any} schema @param {any} root @returns {Field} */
export function fieldOf(schema, root) {
  const own = resolved(schema, root);
  const field = (/** @type {Field["kind"]} */ kind, /** @type {any} */ more = {}) => ({ kind, schema: own, nullable: false, choices: [], items: null, ...more });
  const variants = own.anyOf || own.oneOf;
  if (Array.isArray(variants)) {
    const all = variants.map((each) => resolved(each, root)), left = all.filter((each) => !isNull(each));
    const nullable = left.length < all.length, { anyOf, oneOf, ...about } = own;
    if (left.length === 1) return { ...fieldOf({ ...left[0], ...about }, root), nullable };
    if (left.length && left.every(valuesOf)) return field("choice", { choices: left.flatMap(valuesOf), nullable });
    return field("json", { nullable });
  }
  const values = valuesOf(own);
  if (Array.isArray(values)) return field("choice", { choices: values.filter((each) => each !== null), nullable: values.includes(null) && values.length > 1 });
  if (Array.isArray(own.type)) {
    const types = own.type.filter((/** @type {string} */ each) => each !== "null");
    if (types.length !== 1) return field("json");
    return { ...fieldOf({ ...own, type: types[0] }, root), nullable: types.length < own.type.length };
  }
  if (own.allOf) return field("json");
  if (own.type === "string") return field("text");
  if (own.type === "integer" || own.type === "number") return field("number");
  if (own.type === "boolean") return field("boolean");
  if (own.type === "array" && own.items && typeof own.items === "object" && !own.prefixItems) return field("list", { items: own.items });
  if (own.properties && Object.keys(own.properties).length) return field("object");
  if (own.type === "object" && own.additionalProperties && typeof own.additionalProperties === "object") return field("map", { items: own.additionalProperties });
  return field("json");
}

/** Return a schema that fits a value, for a form without one. @param {any} value @returns {any} */
export function schemaOf(value) {
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return { type: typeof value };
  if (Array.isArray(value)) {
    const kinds = new Set(value.map((each) => JSON.stringify(schemaOf(each))));
    return kinds.size === 1 ? { type: "array", items: schemaOf(value[0]) } : { type: "array" };
  }
  if (value === null || typeof value !== "object") return {};
  const properties = Object.fromEntries(Object.entries(value).map(([name, each]) => [name, schemaOf(each)]));
  return { type: "object", properties, required: Object.keys(value), additionalProperties: false };
}

const equal = (/** @type {any} */ a, /** @type {any} */ b) => JSON.stringify(a) === JSON.stringify(b);
const isRecord = (/** @type {any} */ value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** Return the draft of a value; of undefined, the draft of a new value. @param {any} value @param {Field} field @param {any} root @param {boolean} [required] @param {number} [depth] @returns {any} */
export function draftOf(value, field, root, required = true, depth = 0) {
  const { kind, nullable, choices, items, schema } = field;
  if (value === undefined) return required ? emptyDraft(field, root, depth) : undefined;
  if (value === null && nullable) return null;
  const asJson = { json: JSON.stringify(value, null, 2) };
  if (kind === "text") return typeof value === "string" ? value : asJson;
  if (kind === "number") return typeof value === "number" || (typeof value === "string" && LONG.test(value)) ? String(value) : asJson;
  if (kind === "boolean") return typeof value === "boolean" ? value : asJson;
  if (kind === "choice") {
    const place = choices.findIndex((each) => equal(each, value));
    return place < 0 ? asJson : place;
  }
  if (kind === "list") return Array.isArray(value) ? value.map((each) => draftOf(each, fieldOf(items, root), root, true, depth + 1)) : asJson;
  if (kind === "map") return isRecord(value) ? Object.entries(value).map(([name, each]) => [name, draftOf(each, fieldOf(items, root), root, true, depth + 1)]) : asJson;
  if (kind !== "object" || !isRecord(value)) return asJson;
  if (Object.keys(value).some((name) => !Object.hasOwn(schema.properties, name))) return asJson;
  return draftOfObject(value, schema, root, depth);
}

/** @param {any} value @param {any} schema @param {any} root @param {number} depth */
function draftOfObject(value, schema, root, depth) {
  const draft = Object.entries(schema.properties).map(([name, each]) => {
    const required = (schema.required || []).includes(name), own = Object.hasOwn(value, name) ? value[name] : undefined;
    return [name, draftOf(own, fieldOf(each, root), root, required, depth + 1)];
  });
  return Object.fromEntries(draft);
}

/** @param {Field} field @param {any} root @param {number} depth */
function emptyDraft({ kind, schema, choices }, root, depth) {
  if (kind === "object" && depth < DEEPEST) return draftOfObject({}, schema, root, depth);
  if (kind === "choice") return choices.length === 1 ? 0 : undefined;
  if (kind === "list" || kind === "map") return [];
  return kind === "boolean" ? false : kind === "json" ? { json: "" } : "";
}

/** Read the value of a draft, and its problems; undefined is an absent value. @param {any} draft @param {Field} field @param {any} root @param {boolean} [required] @returns {{value: any, problems: Problem[]}} */
export function readDraft(draft, field, root, required = true) {
  /** @type {Problem[]} */
  const problems = [];
  return { value: read(draft, field, root, required, "", problems), problems };
}

/** @param {any} draft @param {Field} field @param {any} root @param {boolean} required @param {string} path @param {Problem[]} problems @returns {any} */
function read(draft, field, root, required, path, problems) {
  const { kind, schema, nullable, choices, items } = field;
  const wrong = (/** @type {string} */ text) => void problems.push({ path, text });
  const below = (/** @type {string | number} */ name) => (path ? `${path}.${name}` : String(name));
  if (draft === null) return null;
  if (draft === undefined) return required ? wrong(kind === "choice" ? "choose one" : "is missing") : undefined;
  if (isRecord(draft) && kind !== "object" || (kind === "object" && typeof draft.json === "string" && !Object.hasOwn(schema.properties, "json"))) {
    if (!draft.json.trim()) return required ? wrong("is missing") : undefined;
    try {
      return JSON.parse(draft.json);
    } catch (error) {
      return wrong(`is not JSON: ${/** @type {Error} */ (error).message}`);
    }
  }
  if (kind === "text") return draft === "" && !required && schema.minLength ? undefined : ofText(draft, schema, wrong);
  if (kind === "number") {
    if (!draft.trim()) return nullable ? null : required ? wrong("is missing") : undefined;
    return ofNumber(draft.trim(), schema, wrong);
  }
  if (kind === "choice") return choices[draft];
  if (kind === "boolean") return draft;
  if (kind === "object") {
    const entries = Object.entries(schema.properties).map(([name, each]) => [name, read(draft[name], fieldOf(each, root), root, (schema.required || []).includes(name), below(name), problems)]);
    return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
  }
  const { minItems: least = 0, maxItems: most = Infinity } = schema, inner = fieldOf(items, root);
  if (draft.length < least) wrong(`needs at least ${least}`);
  if (draft.length > most) wrong(`takes at most ${most}`);
  if (kind === "list") return draft.map((/** @type {any} */ each, /** @type {number} */ place) => read(each, inner, root, true, below(place), problems));
  const pairs = /** @type {[string, any][]} */ (draft);
  if (pairs.some(([name]) => !name)) wrong("has a value without a name");
  return Object.fromEntries(pairs.map(([name, each], place) => [name, read(each, inner, root, true, below(place), problems)]));
}

/** @param {string} text @param {any} schema @param {(text: string) => void} wrong */
function ofText(text, { minLength: least = 0, maxLength: most = Infinity, pattern }, wrong) {
  const { length } = [...text];
  if (length < least) wrong(length ? `needs at least ${least} characters` : "is missing");
  else if (length > most) wrong(`takes at most ${most} characters, and has ${length}`);
  else if (pattern && !fits(pattern, text)) wrong(`must match ${pattern}`);
  return text;
}

/** @param {string} pattern @param {string} text */
function fits(pattern, text) {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return true; // another dialect: the server checks
  }
}

/** @param {string} text @param {any} schema @param {(text: string) => void} wrong */
function ofNumber(text, { type, minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: under }, wrong) {
  const value = Number(text);
  if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) || !Number.isFinite(value)) return wrong("is not a number");
  if (type === "integer" && !Number.isSafeInteger(value)) return wrong(Number.isInteger(value) ? "is too large for this page" : "is not a whole number");
  if (value < minimum) wrong(`must be at least ${minimum}`);
  else if (value > maximum) wrong(`must be at most ${maximum}`);
  else if (value <= above) wrong(`must be above ${above}`);
  else if (value >= under) wrong(`must be below ${under}`);
  return value;
}
