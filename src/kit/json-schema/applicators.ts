import { isSchema, pointerOf, SchemaError, type SchemaObject } from "./document.ts";
import { isObject, type PatternRoom, requireCount, ruleOf, searcher } from "./keywords.ts";
import { type Check, type CheckRun, keeps, keepsIn, keepsQuietly, type SchemaNode, Seen } from "./run.ts";

/** How an applicator gets at the schemas inside its own. */
export interface Inner {
  schema: SchemaObject;
  place: string;
  patterns: PatternRoom;
  /** The schema under these members; about a part of the value, unless `same`. */
  node(path: readonly (string | number)[], options?: { same: true }): SchemaNode;
}

function listAt({ schema, place }: Inner, keyword: string): unknown[] {
  const list = schema[keyword];
  if (!Array.isArray(list) || list.length === 0 || !list.every(isSchema))
    throw new SchemaError(`${place}/${keyword}`, "must be a list of schemas, not empty");
  return list;
}

function namesAt({ schema, place }: Inner, keyword: string): string[] {
  const map = schema[keyword];
  if (map === undefined) return [];
  if (!isObject(map) || !Object.values(map).every(isSchema))
    throw new SchemaError(`${place}/${keyword}`, "must be an object of schemas");
  return Object.keys(map);
}

const sameAt = (inner: Inner, keyword: string): SchemaNode[] =>
  listAt(inner, keyword).map((_, at) => inner.node([keyword, at], { same: true }));

/** Rules that ask other schemas about the same value. */
export const inPlace: Readonly<Record<string, (inner: Inner) => Check>> = {
  allOf(inner) {
    const nodes = sameAt(inner, "allOf");
    return (value, run, seen) => nodes.every((node) => keeps(node, value, run, seen));
  },
  anyOf(inner) {
    const nodes = sameAt(inner, "anyOf");
    const rule = ruleOf("anyOf", inner.place, "must keep one of the schemas of anyOf");
    return (value, run, seen) => {
      let isKept = false;
      for (const node of nodes) {
        const mine = seen && new Seen();
        if (!keepsQuietly(node, value, run, mine)) continue;
        if (!seen) return true;
        isKept = true;
        seen.addAll(run, mine!);
      }
      return isKept || run.fail(rule);
    };
  },
  oneOf(inner) {
    const nodes = sameAt(inner, "oneOf");
    const rule = ruleOf("oneOf", inner.place, "must keep exactly one of the schemas of oneOf");
    return (value, run, seen) => {
      let kept = 0;
      let ofKept: Seen | undefined;
      for (const node of nodes) {
        const mine = seen && new Seen();
        if (!keepsQuietly(node, value, run, mine)) continue;
        if (++kept > 1) return run.fail(rule);
        ofKept = mine;
      }
      if (kept === 0) return run.fail(rule);
      if (seen && ofKept) seen.addAll(run, ofKept);
      return true;
    };
  },
  not(inner) {
    const node = inner.node(["not"], { same: true });
    const rule = ruleOf("not", inner.place, "must not keep the schema of not");
    return (value, run) => !keepsQuietly(node, value, run, undefined) || run.fail(rule);
  },
  if(inner) {
    const { schema } = inner;
    const asked = inner.node(["if"], { same: true });
    const branch = (keyword: string) =>
      schema[keyword] === undefined ? undefined : inner.node([keyword], { same: true });
    const [positive, negative] = [branch("then"), branch("else")];
    return (value, run, seen) => {
      const mine = seen && new Seen();
      const holds = keepsQuietly(asked, value, run, mine);
      if (holds && seen) seen.addAll(run, mine!);
      const next = holds ? positive : negative;
      return next === undefined || keeps(next, value, run, seen);
    };
  },
  dependentSchemas(inner) {
    const names = namesAt(inner, "dependentSchemas");
    const nodes = names.map((name) => inner.node(["dependentSchemas", name], { same: true }));
    return (value, run, seen) => {
      if (!isObject(value)) return true;
      run.spend(names.length);
      return names.every((name, at) => !Object.hasOwn(value, name) || keeps(nodes[at]!, value, run, seen));
    };
  },
};

/** Finding out what is said of a member takes as long as so many steps. */
const keySteps = 2;

/** `properties`, `patternProperties` and `additionalProperties`, in one walk over the members. */
export function membersCheck(inner: Inner): Check {
  const { schema, place } = inner;
  const named = new Map(namesAt(inner, "properties").map((name) => [name, inner.node(["properties", name])]));
  const byPattern = namesAt(inner, "patternProperties").map((pattern) => ({
    matches: searcher(pattern, `${place}/patternProperties${pointerOf([pattern])}`, inner.patterns),
    node: inner.node(["patternProperties", pattern]),
  }));
  const others = schema.additionalProperties === undefined ? undefined : inner.node(["additionalProperties"]);
  const notOthers = ruleOf("additionalProperties", place, "is no property that is allowed");
  return (value, run, seen) => {
    if (!isObject(value)) return true;
    for (const key of Object.keys(value)) {
      run.spend(keySteps);
      const node = named.get(key);
      let isKnown = node !== undefined;
      if (node && !keepsIn(node, value[key], run, key)) return false;
      for (const { matches, node: patterned } of byPattern) {
        if (!matches(key, run)) continue;
        isKnown = true;
        if (!keepsIn(patterned, value[key], run, key)) return false;
      }
      if (!isKnown && others) {
        if (others.isNever) return failAt(run, key, notOthers);
        if (!keepsIn(others, value[key], run, key)) return false;
      }
      if (seen && (isKnown || others)) seen.add(run, key);
    }
    return true;
  };
}

function failAt(run: CheckRun, member: string | number, rule: Parameters<CheckRun["fail"]>[0]): false {
  run.path.push(member);
  run.fail(rule);
  run.path.pop();
  return false;
}

export function propertyNamesCheck(inner: Inner): Check {
  const node = inner.node(["propertyNames"]);
  return (value, run) => !isObject(value) || Object.keys(value).every((key) => keepsIn(node, key, run, key));
}

/** `prefix` and `rest` are what the edition calls them. */
export function itemsCheck(inner: Inner, prefix: string | undefined, rest: string): Check {
  const { schema, place } = inner;
  const first =
    prefix === undefined || schema[prefix] === undefined
      ? []
      : listAt(inner, prefix).map((_, at) => inner.node([prefix, at]));
  const others = schema[rest] === undefined ? undefined : inner.node([rest]);
  const notOthers = ruleOf(rest, place, "is no item that is allowed");
  return (value, run, seen) => {
    if (!Array.isArray(value)) return true;
    for (const [at, item] of value.entries()) {
      const node = first[at] ?? others;
      if (!node) break;
      if (node.isNever && node === others) return failAt(run, at, notOthers);
      if (!keepsIn(node, item, run, at)) return false;
      if (seen) seen.add(run, at);
    }
    return true;
  };
}

export function containsCheck(inner: Inner): Check {
  const { schema, place } = inner;
  const node = inner.node(["contains"]);
  const least =
    schema.minContains === undefined ? 1 : requireCount(schema.minContains, `${place}/minContains`);
  const most =
    schema.maxContains === undefined ? Infinity : requireCount(schema.maxContains, `${place}/maxContains`);
  const tooFew = ruleOf(
    "contains",
    place,
    `must have at least ${least} items that keep the schema of contains`,
  );
  const tooMany = ruleOf(
    "maxContains",
    place,
    `must have at most ${most} items that keep the schema of contains`,
  );
  return (value, run, seen) => {
    if (!Array.isArray(value)) return true;
    let found = 0;
    for (const [at, item] of value.entries()) {
      if (!keepsQuietly(node, item, run, undefined)) continue;
      found++;
      if (seen) seen.add(run, at);
    }
    if (found < least) return run.fail(tooFew);
    return found <= most || run.fail(tooMany);
  };
}

/** About the members that no other rule of the schema has looked at. */
export function unevaluatedCheck(inner: Inner, keyword: "unevaluatedProperties" | "unevaluatedItems"): Check {
  const node = inner.node([keyword]);
  const rule = ruleOf(keyword, inner.place, "is not allowed: no rule of the schema speaks of it");
  const ofList = keyword === "unevaluatedItems";
  return (value, run, seen) => {
    if (ofList ? !Array.isArray(value) : !isObject(value)) return true;
    const members = ofList ? (value as unknown[]).keys() : Object.keys(value as object);
    for (const member of members) {
      run.spend(1);
      if (seen!.members.has(member)) continue;
      if (node.isNever) return failAt(run, member, rule);
      if (!keepsIn(node, (value as Record<string | number, unknown>)[member], run, member)) return false;
      seen!.add(run, member);
    }
    return true;
  };
}
