import {
  containsCheck,
  type Inner,
  inPlace,
  itemsCheck,
  membersCheck,
  propertyNamesCheck,
  unevaluatedCheck,
} from "./applicators.ts";
import {
  isSchema,
  memberOf,
  patternPartsMax,
  pointerOf,
  readDocument,
  type SchemaDocument,
  SchemaError,
  type SchemaObject,
} from "./document.ts";
import { keywords } from "./keywords.ts";
import { type Breach, type Check, CheckRun, keeps, type SchemaNode } from "./run.ts";

export { SchemaError, schemaBytesMax } from "./document.ts";
export { type Breach, TooMuchToCheck } from "./run.ts";

/** A schema that values can be checked by. */
export interface CompiledSchema {
  /**
   * The first rule that the value breaks; undefined when it keeps all. Takes a bounded time: throws
   * TooMuchToCheck when that is not enough.
   */
  breachOf(value: unknown): Breach | undefined;
  /** Whether there is a value that it refuses. */
  readonly asserts: boolean;
}

const newNode = (): SchemaNode => ({ checks: [], same: [], collects: false, isNever: false });

/**
 * JSON Schema 2020-12, and what 2019-09 and draft-07 say instead. `format` and unknown words are notes.
 * Patterns are RE2. Nothing is fetched: references stay inside the text. Throws SchemaError with the place.
 */
export function compileSchema(text: string): CompiledSchema {
  const steps = compileInSteps(text);
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/** The same in steps of a few milliseconds. */
export function* compileInSteps(text: string): Generator<void, CompiledSchema> {
  const document = readDocument(text);
  yield;
  const compiler = new Compiler(document);
  const root = yield* compiler.compile();
  return {
    asserts: compiler.asserts,
    breachOf(value) {
      const run = new CheckRun();
      return keeps(root, value, run, undefined) ? undefined : run.breach;
    },
  };
}

const schemasAStep = 250;

/** Words that later editions brought. */
const since2019 = new Set(["dependentRequired", "dependentSchemas", "minContains", "maxContains"]);
const unsupported = new Set(["$dynamicRef", "$recursiveRef"]);

class Compiler {
  asserts = false;
  readonly #document: SchemaDocument;
  readonly #patterns = { partsLeft: patternPartsMax };
  readonly #nodes = new Map<SchemaObject, SchemaNode>();
  readonly #always = newNode();
  readonly #never: SchemaNode;
  /** Schemas whose node is still empty. A list, not calls: a chain of references may be long. */
  readonly #waiting: { schema: SchemaObject; place: string; node: SchemaNode }[] = [];

  constructor(document: SchemaDocument) {
    this.#document = document;
    const rule = { keyword: "false", place: "", text: "is not allowed" };
    this.#never = { ...newNode(), isNever: true, checks: [(_value, run) => run.fail(rule)] };
  }

  *compile(): Generator<void, SchemaNode> {
    const root = this.#nodeOf(this.#document.root, "");
    let filled = 0;
    for (let next = this.#waiting.pop(); next; next = this.#waiting.pop()) {
      this.#fill(next);
      if (++filled % schemasAStep === 0) yield;
    }
    this.#refuseCircles();
    return root;
  }

  #nodeOf(schema: unknown, place: string): SchemaNode {
    if (!isSchema(schema)) throw new SchemaError(place, "must be a schema: an object or a boolean");
    if (schema === true) return this.#always;
    if (schema === false) {
      this.asserts = true;
      return this.#never;
    }
    let node = this.#nodes.get(schema);
    if (!node) {
      node = newNode();
      this.#nodes.set(schema, node);
      this.#waiting.push({ schema, place, node });
    }
    return node;
  }

  #fill({ schema, place, node }: { schema: SchemaObject; place: string; node: SchemaNode }): void {
    const { edition } = this.#document;
    const has = (keyword: string) =>
      Object.hasOwn(schema, keyword) && !(edition === 2018 && since2019.has(keyword));
    const inner: Inner = {
      schema,
      place,
      patterns: this.#patterns,
      node: (path, options) => {
        let found: unknown = schema;
        for (const part of path) found = memberOf(found, `${part}`);
        const one = this.#nodeOf(found, place + pointerOf(path));
        if (options?.same) node.same.push(one);
        return one;
      },
    };
    if (has("$ref")) {
      node.checks.push(this.#reference(schema, place, node));
      // Keywords beside a reference count since 2019.
      if (edition === 2018) return;
    }
    const later: Check[] = [];
    for (const keyword of Object.keys(schema)) {
      if (edition === 2018 && since2019.has(keyword)) continue;
      if (unsupported.has(keyword))
        throw new SchemaError(`${place}/${keyword}`, "is not supported: use $ref");
      if (Object.hasOwn(keywords, keyword)) {
        this.asserts = true;
        node.checks.push(keywords[keyword]!(schema[keyword], place, this.#patterns));
      } else if (Object.hasOwn(inPlace, keyword)) {
        if (keyword === "not" || keyword === "oneOf") this.asserts = true;
        later.push(inPlace[keyword]!(inner));
      }
    }
    node.checks.push(...later);
    node.checks.push(...this.#structure(inner, has));
    // These must come last: they are about what all others have not looked at.
    if (edition === 2018) return;
    for (const keyword of ["unevaluatedProperties", "unevaluatedItems"] as const)
      if (has(keyword)) {
        node.collects = true;
        node.checks.push(unevaluatedCheck(inner, keyword));
      }
  }

  #structure(inner: Inner, has: (keyword: string) => boolean): Check[] {
    const checks: Check[] = [];
    const { edition } = this.#document;
    if (["properties", "patternProperties", "additionalProperties"].some(has))
      checks.push(membersCheck(inner));
    if (has("propertyNames")) checks.push(propertyNamesCheck(inner));
    if (edition === 2020) {
      if (has("prefixItems") || has("items")) checks.push(itemsCheck(inner, "prefixItems", "items"));
    } else if (Array.isArray(inner.schema.items)) checks.push(itemsCheck(inner, "items", "additionalItems"));
    else if (has("items")) checks.push(itemsCheck(inner, undefined, "items"));
    if (has("contains")) {
      this.asserts = true;
      checks.push(containsCheck(inner));
    }
    if (edition !== 2020 && has("dependencies")) checks.push(...this.#dependencies(inner));
    return checks;
  }

  /** The word of draft-07 for `dependentRequired` and `dependentSchemas`. */
  #dependencies({ schema, place, patterns, node }: Inner): Check[] {
    const { dependencies } = schema;
    if (typeof dependencies !== "object" || dependencies === null || Array.isArray(dependencies))
      throw new SchemaError(`${place}/dependencies`, "must be an object");
    const entries = Object.entries(dependencies);
    const lists = entries.filter(([, value]) => Array.isArray(value));
    const schemas = entries.filter(([, value]) => !Array.isArray(value));
    if (lists.length > 0) this.asserts = true;
    const { dependentRequired } = keywords;
    const { dependentSchemas } = inPlace;
    const asSchemas: Inner = {
      schema: { dependentSchemas: Object.fromEntries(schemas) },
      place,
      patterns,
      node: ([, name], options) => node(["dependencies", name!], options),
    };
    return [dependentRequired!(Object.fromEntries(lists), place, patterns), dependentSchemas!(asSchemas)];
  }

  #reference(schema: SchemaObject, place: string, node: SchemaNode): Check {
    const at = `${place}/$ref`;
    if (typeof schema.$ref !== "string") throw new SchemaError(at, "must be a text");
    const found = this.#document.refer(schema, schema.$ref, at);
    const target = this.#nodeOf(found.schema, found.place);
    node.same.push(target);
    return (value, run, seen) => keeps(target, value, run, seen);
  }

  /** A schema that asks itself about the same value would ask without end. */
  #refuseCircles(): void {
    const done = new Set<SchemaNode>();
    for (const start of this.#nodes.values()) {
      if (done.has(start)) continue;
      const open = new Set([start]);
      const path = [{ node: start, next: 0 }];
      while (path.length > 0) {
        const top = path.at(-1)!;
        const node = top.node.same[top.next++];
        if (!node) {
          open.delete(top.node);
          done.add(top.node);
          path.pop();
        } else if (open.has(node))
          throw new SchemaError(
            "",
            "must not refer to itself in a circle ($ref, allOf, anyOf, …) about one value",
          );
        else if (!done.has(node)) {
          open.add(node);
          path.push({ node, next: 0 });
        }
      }
    }
  }
}
