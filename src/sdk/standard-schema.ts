/** A JSON Schema: an object, or a boolean. */
export type JsonSchemaText = boolean | { readonly [keyword: string]: unknown };

/** The part of Standard Schema v1 (standardschema.dev) that is used: zod, valibot, arktype and others fit it. */
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

type TellSchema = (options: { target: "draft-2020-12" }) => JsonSchemaText;

type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}
