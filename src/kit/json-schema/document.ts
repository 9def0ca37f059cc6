import { isNested } from "../payload-json.ts";

export type PathPart = string | number;

const escaped = (part: PathPart): string =>
  typeof part === "number" ? `${part}` : part.replaceAll("~", "~0").replaceAll("/", "~1");

/** JSON pointer (RFC 6901): `/items/0/price`. */
export const pointerOf = (path: readonly PathPart[]): string =>
  path.map((part) => `/${escaped(part)}`).join("");

/** The parts of a pointer; undefined when the text is none. */
export function partsOf(pointer: string): string[] | undefined {
  if (pointer === "") return [];
  if (!pointer.startsWith("/") || /~(?![01])/.test(pointer)) return undefined;
  return pointer
    .slice(1)
    .split("/")
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** A member that the value itself has; undefined when there is none. */
export function memberOf(value: unknown, part: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  if (Array.isArray(value)) return /^(0|[1-9]\d{0,8})$/.test(part) ? value[Number(part)] : undefined;
  return Object.hasOwn(value, part) ? (value as Record<string, unknown>)[part] : undefined;
}

/** The reason a schema was refused, and where in it. */
export class SchemaError extends Error {
  constructor(place: string, rule: string) {
    super(`${place === "" ? "the schema" : place.slice(0, placeCharsMax)} ${rule}`);
    this.name = "SchemaError";
  }
}

const placeCharsMax = 200;
export const schemaBytesMax = 256 * 1024;
const schemaLevelsMax = 64;
/** Schemas in one text, the inner ones counted. */
const schemasMax = 5_000;
/** Of all patterns together, as `patternSize` counts them. */
export const patternPartsMax = 5_000;
/** Of the URI that an `$id` comes to: each anchor and reference under it is written behind it. */
const baseCharsMax = 500;

/** The dialects that are understood, by the year of their edition. */
const editions: Readonly<Record<string, Edition>> = {
  "https://json-schema.org/draft/2020-12/schema": 2020,
  "https://json-schema.org/draft/2019-09/schema": 2019,
  "http://json-schema.org/draft-07/schema": 2018,
};
export type Edition = 2018 | 2019 | 2020;

export type SchemaObject = Readonly<Record<string, unknown>>;

/** Keywords whose value is a schema, a list of schemas, or schemas by name. */
const single = new Set(
  "additionalProperties propertyNames contains not if then else unevaluatedItems unevaluatedProperties items additionalItems".split(
    " ",
  ),
);
const lists = new Set(["allOf", "anyOf", "oneOf", "prefixItems", "items"]);
const maps = new Set(
  "properties patternProperties dependentSchemas $defs definitions dependencies".split(" "),
);

export const isSchema = (value: unknown): value is SchemaObject | boolean =>
  typeof value === "boolean" || (typeof value === "object" && value !== null && !Array.isArray(value));

/** Where a reference without a base of its own begins: no reference leads out of the text. */
const ownBase = "svc-schema:///";

/** A schema text with the names that its parts can be referred to by. */
export type SchemaDocument = ReturnType<typeof readDocument>;

/** Throws SchemaError for a text that is none, or larger than the bounds. */
export function readDocument(text: string) {
  if (Buffer.byteLength(text) > schemaBytesMax)
    throw new SchemaError("", `must be at most ${schemaBytesMax} bytes`);
  if (isNested(text, schemaLevelsMax))
    throw new SchemaError("", `must not be nested deeper than ${schemaLevelsMax} levels`);
  let root: unknown;
  try {
    root = JSON.parse(text);
  } catch {
    throw new SchemaError("", "must be JSON text");
  }
  if (!isSchema(root)) throw new SchemaError("", "must be an object or a boolean");
  const edition = editionOf(root);
  const names = namesIn(root, edition);
  return {
    root,
    edition /** The schema that a reference in `from` means, with its place. Throws SchemaError. */,
    refer: (from: SchemaObject, reference: string, place: string) => referred(names, from, reference, place),
  };
}

function editionOf(root: SchemaObject | boolean): Edition {
  const said = typeof root === "object" ? root.$schema : undefined;
  if (said === undefined) return 2020;
  const edition = typeof said === "string" ? editions[said.replace(/#$/, "")] : undefined;
  if (!edition)
    throw new SchemaError("/$schema", `must be one of ${Object.keys(editions).join(", ")}, or left out`);
  return edition;
}

interface Names {
  /** Schemas with a base of their own, and named by an anchor, by their whole URI. */
  readonly resources: Map<string, { schema: SchemaObject | boolean; place: string }>;
  readonly bases: Map<SchemaObject, string>;
}

function namesIn(root: SchemaObject | boolean, edition: Edition): Names {
  const names: Names = { resources: new Map([[ownBase, { schema: root, place: "" }]]), bases: new Map() };
  let count = 0;

  const name = (uri: string, schema: SchemaObject, place: string) => {
    if (names.resources.get(uri)?.schema !== schema && names.resources.has(uri))
      throw new SchemaError(place, "has a name that another schema has too");
    names.resources.set(uri, { schema, place });
  };
  const visit = (schema: unknown, base: string, place: string): void => {
    if (++count > schemasMax) throw new SchemaError("", `must hold at most ${schemasMax} schemas`);
    if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return;
    const object = schema as SchemaObject;
    const own = baseOf(object, base, place, edition);
    names.bases.set(object, own);
    if (own !== base) name(own, object, place);
    const anchors = edition === 2018 ? [fragmentOf(object.$id)] : [object.$anchor, object.$dynamicAnchor];
    for (const anchor of anchors) if (typeof anchor === "string") name(`${own}#${anchor}`, object, place);
    for (const keyword of Object.keys(object)) {
      const value = object[keyword];
      if (typeof value !== "object") {
        if (typeof value === "boolean" && single.has(keyword)) visit(value, own, place);
        continue;
      }
      const at = `${place}/${keyword}`;
      if (maps.has(keyword) && isSchema(value) && typeof value === "object")
        for (const [key, inner] of Object.entries(value)) visit(inner, own, at + pointerOf([key]));
      else if (lists.has(keyword) && Array.isArray(value))
        value.forEach((inner, index) => {
          visit(inner, own, `${at}/${index}`);
        });
      else if (single.has(keyword)) visit(value, own, at);
    }
  };
  visit(root, ownBase, "");
  return names;
}

const fragmentOf = (id: unknown): string | undefined =>
  typeof id === "string" && id.startsWith("#") ? id.slice(1) : undefined;

function baseOf({ $id, $ref }: SchemaObject, base: string, place: string, edition: Edition): string {
  if ($id === undefined || (edition === 2018 && ($ref !== undefined || fragmentOf($id) !== undefined)))
    return base;
  const resolved = typeof $id === "string" ? resolve($id, base) : undefined;
  if (resolved === undefined || resolved.fragment !== "")
    throw new SchemaError(`${place}/$id`, "must be a URI without a fragment");
  if (resolved.uri.length > baseCharsMax)
    throw new SchemaError(`${place}/$id`, `must be a URI of at most ${baseCharsMax} characters`);
  return resolved.uri;
}

function resolve(reference: string, base: string): { uri: string; fragment: string } | undefined {
  try {
    if (reference.startsWith("#")) return { uri: base, fragment: decodeURIComponent(reference.slice(1)) };
    const url = new URL(reference, base);
    const fragment = decodeURIComponent(url.hash.slice(1));
    url.hash = "";
    return { uri: url.href, fragment };
  } catch {
    return undefined;
  }
}

function referred(
  { resources, bases }: Names,
  from: SchemaObject,
  reference: string,
  place: string,
): { schema: SchemaObject | boolean; place: string } {
  const resolved = resolve(reference, bases.get(from) ?? ownBase);
  if (!resolved) throw new SchemaError(place, "must be a reference");
  const { uri, fragment } = resolved;
  const resource = resources.get(uri);
  if (!resource) throw new SchemaError(place, "leads out of the schema, which must be whole");
  if (fragment === "") return resource;
  if (!fragment.startsWith("/")) {
    const named = resources.get(`${uri}#${fragment}`);
    if (!named) throw new SchemaError(place, "leads to an anchor that there is not");
    return named;
  }
  let schema: unknown = resource.schema;
  for (const part of partsOf(fragment) ?? [""]) schema = memberOf(schema, part);
  if (!isSchema(schema)) throw new SchemaError(place, "leads to no schema");
  return { schema, place: resource.place + fragment };
}
