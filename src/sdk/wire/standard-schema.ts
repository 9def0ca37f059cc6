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
