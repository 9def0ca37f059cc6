import { snakeCase } from "../kit/cases.ts";
import { exampleValues } from "./example-values.ts";
import type { JsonSchema } from "./field-words.ts";

const instant = "2026-01-15T09:30:00Z";
/** Deeper objects are left out where they may be: an example is there to be read. */
const depthMax = 5;
/** Fields that say what another one says already, in another form. */
const otherForm = /(Value|_value|Full|_full)$/;

const typeOf = (value: unknown): string =>
  Array.isArray(value) ? "array" : Number.isInteger(value) ? "integer" : typeof value;

/** Whether a value kept for a name fits the schema: its type, and no object whose fields are named there. */
function fits(value: unknown, schema: JsonSchema, itemOf: (schema: JsonSchema) => JsonSchema): boolean {
  const isDigits = typeof value === "string" && /^\d+$/.test(value);
  if (value === undefined || ("format" in schema && !isDigits && typeof value === "string")) return false;
  if ("contentEncoding" in schema || (schema.format === "date-time" && isDigits)) return false;
  if (schema.type === undefined) return !("anyOf" in schema) && !("oneOf" in schema);
  if (schema.type !== typeOf(value) && !(schema.type === "number" && typeof value === "number")) return false;
  if (Array.isArray(value)) return fits(value[0], itemOf(schema), itemOf);
  return schema.properties === undefined;
}

/** A text named by a description: an id's kind (`run_…`), the only or first choice, or what it is such as. */
function toldText({ type, description, ...rest }: JsonSchema): string | undefined {
  if (type !== "string" || typeof description !== "string") return undefined;
  if ("format" in rest || "contentEncoding" in rest) return undefined;
  const kind = /\(`?([a-z]+_)…`?\)/.exec(description)?.[1];
  if (kind !== undefined) return `${kind}01kf3m8q4v7x2n9t5c6b1d0e8g`;
  return (
    /such as `([^`…]+)`/.exec(description)?.[1] ??
    /such as ([^\s`]+?)[.,;]?(?:\s|$)/.exec(description)?.[1] ??
    /(?:^|^Always |: )`([a-z][\w-]*)`/.exec(description)?.[1]
  );
}

function textExample({ format, contentEncoding, minLength }: JsonSchema): string {
  if (format === "date-time") return instant;
  if (format === "int64" || format === "uint64") return "1";
  if (contentEncoding === "base64") return "e30=";
  return minLength === undefined ? "" : "example";
}

/** Names of fields of which an object may hold one only, save the first of each choice. */
function secondChoices(schema: JsonSchema): Set<string> {
  const choices = (schema.allOf ?? []) as { oneOf?: { required?: string[] }[] }[];
  return new Set(
    choices.flatMap(({ oneOf = [] }) => oneOf.slice(1).flatMap(({ required = [] }) => required)),
  );
}

/** Composes values that schemas take, from what each field says of itself and of its name. */
export class Examples {
  readonly #schemas: Record<string, JsonSchema>;

  /** The schemas that references lead to. */
  constructor(schemas: Record<string, JsonSchema>) {
    this.#schemas = schemas;
  }

  of(given: unknown, name = "", depth = 0): unknown {
    const schema = this.#resolved(given as JsonSchema);
    const [own] = (schema.examples ?? []) as unknown[];
    if (own !== undefined) return own;
    if ("const" in schema) return schema.const;
    if ("default" in schema) return schema.default;
    // The first word of an enum of the RPC wire stands for none of them.
    if (Array.isArray(schema.enum)) return schema.enum[1] ?? schema.enum[0];
    const told = toldText(given as JsonSchema) ?? toldText(schema);
    if (told !== undefined) return told;
    const kept = exampleValues[snakeCase(name)];
    if (fits(kept, schema, ({ items }) => this.#resolved(items as JsonSchema))) return kept;
    const [choice] = (schema.anyOf ?? schema.oneOf ?? []) as JsonSchema[];
    if (choice) return this.of(choice, name, depth);
    switch (schema.type) {
      case "object":
        return this.#object(schema, depth);
      case "array":
        return depth >= depthMax ? [] : [this.of(schema.items, name, depth + 1)];
      case "string":
        return textExample(schema);
      case "integer":
      case "number":
        return Math.max(1, (schema.minimum as number | undefined) ?? 1);
      case "boolean":
        return true;
      default:
        return {};
    }
  }

  #resolved(schema: JsonSchema): JsonSchema {
    if (typeof schema.$ref !== "string") return schema;
    return this.#schemas[schema.$ref.slice("#/components/schemas/".length)] ?? {};
  }

  #object(schema: JsonSchema, depth: number): Record<string, unknown> {
    const required = new Set((schema.required ?? []) as string[]);
    const second = secondChoices(schema);
    const fields = Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>);
    return Object.fromEntries(
      fields.flatMap(([name, field]) => {
        const mustStand = required.has(name);
        const isLeftOut = depth >= depthMax || second.has(name) || otherForm.test(name);
        if (isLeftOut && !mustStand) return [];
        const value = this.of(field, name, depth + 1);
        return value === "" && !mustStand ? [] : [[name, value]];
      }),
    );
  }
}

interface ShownContent {
  content?: Record<string, { schema?: unknown; example?: unknown }>;
}

interface ShownOperation {
  parameters?: { name?: string; schema?: unknown; example?: unknown }[];
  requestBody?: ShownContent;
  responses: Record<string, ShownContent>;
}

/** Puts an example beside every schema of a body, and in every parameter of the document's paths. */
export function illustrate(paths: Record<string, JsonSchema>, examples: Examples): void {
  for (const operation of Object.values(paths).flatMap((path) => Object.values(path) as ShownOperation[])) {
    for (const one of operation.parameters ?? [])
      if (one.schema !== undefined) one.example = examples.of(one.schema, one.name);
    for (const { content = {} } of [operation.requestBody ?? {}, ...Object.values(operation.responses)])
      for (const body of Object.values(content))
        if (body.schema !== undefined) body.example ??= examples.of(body.schema);
  }
}
