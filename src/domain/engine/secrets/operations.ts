import { Type } from "@sinclair/typebox";
import { recordJson, stated } from "../../../kit/cases.ts";
import { described, shape } from "../../../kit/described.ts";
import { listed, type Operation, unary } from "../../../kit/operation.ts";
import type { SecretRow, Secrets } from "./service.ts";

const text = Type.String({ maxLength: 4_000 });
const instant = Type.String({ format: "date-time" });
const byName = {
  name: Type.String({
    minLength: 1,
    maxLength: 400,
    description: "Name of the secret, such as `STRIPE_KEY`.",
  }),
};
// The service answers with the limit in bytes; this only keeps the document honest.
const value = shape.text("Never answered again.");

export const SecretShape = Type.Object({
  name: described(text, "Name of the secret, such as `STRIPE_KEY`."),
  revision: Type.Integer(),
  description: Type.Optional(described(text, "What the secret is for.")),
  created_at: instant,
  updated_at: instant,
});

const secretJson = (row: SecretRow) => recordJson(row, "name revision description createdAt updatedAt");

export const SecretUsersShape = Type.Object({
  functions: Type.Array(
    Type.Object({
      id: shape.text("Id of the function."),
      version: shape.count("Version of the function."),
      status: shape.text("`active`, `paused` or `archived`."),
    }),
    { description: "Functions that declare the secret." },
  ),
});

const read = { action: "secrets:read", reads: true } as const;

/** Metadata on every read; values only ever reach workers, in their assignments. */
export const secretsOperations = (secrets: Secrets): Operation[] => [
  unary({
    name: "secrets.list",
    ...read,
    summary: "Secrets of the environment, without their values.",
    input: Type.Object({}),
    output: Type.Array(SecretShape),
    rest: "GET /api/v1/secrets",
    lists: listed(({ name }: { name: string }) => [name]),
    handle: async (_input, call) => (await secrets.list(call.environmentId)).map(secretJson),
  }),
  unary({
    name: "secrets.create",
    action: "secrets:manage",
    summary: "A secret, sealed at rest; functions that declare its name get its value in their assignments.",
    input: Type.Object({
      ...byName,
      value,
      description: Type.Optional(described(text, "What the secret is for.")),
    }),
    output: SecretShape,
    rest: { route: "POST /api/v1/secrets", status: 201, json: secretJson },
    handle: (input, call) => secrets.create(call.environmentId, input),
  }),
  unary({
    name: "secrets.get",
    ...read,
    summary: "One secret, without its value; with `revision` what was known of it at an earlier value.",
    input: Type.Object({
      ...byName,
      revision: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
    }),
    output: SecretShape,
    rest: { route: "GET /api/v1/secrets/{name}", json: secretJson },
    handle: ({ name, revision }, call) => secrets.get(call.environmentId, name, revision),
  }),
  unary({
    name: "secrets.functions",
    ...read,
    alsoAsks: ["functions:read"],
    costs: () => ["functions:read"],
    summary: "Functions whose runs get the secret.",
    input: Type.Object(byName),
    output: SecretUsersShape,
    rest: "GET /api/v1/secrets/{name}/functions",
    lists: listed(({ id }: { id: string }) => [id], {
      under: "functions",
      also: "functions:read",
      type: "function",
    }),
    handle: async ({ name }, call) => ({
      functions: (await secrets.usersOf(call.environmentId, name)).map((one) => ({
        id: one.definition.id,
        version: one.version,
        status: one.status,
      })),
    }),
  }),
  unary({
    name: "secrets.put",
    action: "secrets:manage",
    summary: "Gives a secret another value; its next revision.",
    input: Type.Object({
      ...byName,
      value,
      description: Type.Optional(described(text, "What the secret is for.")),
    }),
    output: SecretShape,
    rest: { route: "PUT /api/v1/secrets/{name}", json: secretJson },
    handle: ({ name, ...input }, call) => secrets.put(call.environmentId, name, input),
  }),
  unary({
    name: "secrets.patch",
    action: "secrets:manage",
    summary: "Renames or describes a secret; its value stays.",
    input: Type.Object({
      ...byName,
      new_name: Type.Optional(described(text, "The name from now on.")),
      description: Type.Optional(described(text, "What the secret is for.")),
    }),
    output: SecretShape,
    rest: {
      route: "PATCH /api/v1/secrets/{name}",
      json: secretJson,
      // The path names the secret, the body's `name` its next name.
      decode({ params, body }) {
        const { name, ...rest } = (body ?? {}) as Record<string, unknown>;
        return { ...rest, ...(name !== undefined && { new_name: name }), name: params.name };
      },
      body: Type.Object({
        name: Type.Optional(described(text, "The name from now on.")),
        description: Type.Optional(described(text, "What the secret is for.")),
      }),
    },
    // Under a name that a policy keeps from the caller, its value would reach the functions of that name.
    about: ({ name, new_name }) => (new_name === undefined ? [name] : [name, new_name]),
    handle: ({ name, new_name, description }, call) =>
      secrets.patch(call.environmentId, name, {
        ...stated({ name: new_name, description }),
      }),
  }),
  unary({
    name: "secrets.delete",
    action: "secrets:manage",
    summary: "Deletes a secret.",
    input: Type.Object(byName),
    rest: "DELETE /api/v1/secrets/{name}",
    handle: ({ name }, call) => secrets.remove(call.environmentId, name),
  }),
];
