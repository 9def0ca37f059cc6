/** A JSON Schema: an object, or a boolean. */
export type JsonSchemaText = boolean | { readonly [keyword: string]: unknown };

/** The part of Standard Schema v1 (standardschema.dev) in use: zod, valibot, arktype and others fit it. */
export interface StandardSchema<Output = unknown> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
    /** The part of Standard JSON Schema that is used. */
    readonly jsonSchema?: { readonly input?: TellSchema; readonly output?: TellSchema } | undefined;
  };
}

/** The value as its schema has it, or what is wrong with it, in a text. */
export async function checkedBy<Output>(
  schema: StandardSchema<Output>,
  value: unknown,
): Promise<{ value: Output } | { issues: string }> {
  const result = await schema["~standard"].validate(value);
  if (result.issues === undefined) return { value: result.value };
  const issues = result.issues.slice(0, 5).map(({ message, path = [] }) => {
    const place = path.map((part) => String(typeof part === "object" ? part.key : part)).join(".");
    return place === "" ? message : `${place}: ${message}`;
  });
  return { issues: issues.join("; ") };
}

type TellSchema = (options: { target: "draft-2020-12" }) => JsonSchemaText;

type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

type TypeNamed<Name extends string> = Name extends "string"
  ? string
  : Name extends "number" | "integer"
    ? number
    : Name extends "boolean"
      ? boolean
      : Name extends "null"
        ? null
        : never;

type Members<Schema, Properties> = {
  [Name in keyof Properties as Schema extends { required: readonly (infer Required)[] }
    ? Name extends Required
      ? Name
      : never
    : never]: FromJsonSchema<Properties[Name]>;
} & {
  [Name in keyof Properties as Schema extends { required: readonly (infer Required)[] }
    ? Name extends Required
      ? never
      : Name
    : Name]?: FromJsonSchema<Properties[Name]>;
};

type Shaped<Schema, Name> = Name extends "object"
  ? Schema extends { properties: infer Properties }
    ? { [Member in keyof Members<Schema, Properties>]: Members<Schema, Properties>[Member] }
    : Record<string, unknown>
  : Name extends "array"
    ? Schema extends { items: infer Items }
      ? FromJsonSchema<Items>[]
      : unknown[]
    : Name extends string
      ? TypeNamed<Name>
      : unknown;

/** The type of the values that a JSON Schema allows, as far as its words for types say. */
export type FromJsonSchema<Schema> = Schema extends { const: infer Value }
  ? Value
  : Schema extends { enum: readonly (infer Value)[] }
    ? Value
    : Schema extends { anyOf: readonly (infer One)[] } | { oneOf: readonly (infer One)[] }
      ? FromJsonSchema<One>
      : Schema extends { type: readonly (infer Name)[] }
        ? Name extends string
          ? Shaped<Schema, Name>
          : unknown
        : Schema extends { type: infer Name }
          ? Shaped<Schema, Name>
          : unknown;

/**
 * A schema for `defineEvents` and `defineTools` whose types follow from a JSON Schema. It is the server that
 * checks data by it, once `client.schemas.push()` or `client.tools.register()` has registered it.
 */
export function jsonSchema<const Schema extends JsonSchemaText>(
  schema: Schema,
): StandardSchema<FromJsonSchema<Schema>> {
  return {
    "~standard": {
      version: 1,
      vendor: "svc",
      validate: (value) => ({ value: value as FromJsonSchema<Schema> }),
      jsonSchema: { output: () => schema },
    },
  };
}

interface TellsJsonSchema {
  toJsonSchema?: unknown;
  toJSONSchema?: unknown;
}

const edition = "draft-2020-12";

/**
 * What a schema library says of its schema, by Standard JSON Schema or a method of its own (zod, arktype).
 * Undefined for nothing. Throws what the library throws for a schema that JSON Schema cannot express.
 */
export function toldJsonSchema(
  schema: StandardSchema,
  side: "input" | "output" = "output",
): JsonSchemaText | undefined {
  const told = schema["~standard"].jsonSchema;
  if (told) return (told[side] ?? told.output ?? told.input)?.({ target: edition });
  const { toJsonSchema, toJSONSchema } = schema as TellsJsonSchema;
  const tell = toJsonSchema ?? toJSONSchema;
  return typeof tell === "function" ? (tell.call(schema) as JsonSchemaText) : undefined;
}
