import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { shape } from "../../../kit/described.ts";
import { conditions, etagOf, expectedOf, expecting } from "../../../kit/expected.ts";
import { invalid } from "../../../kit/fault.ts";
import {
  endOfWatch,
  listed,
  type Operation,
  type RestRequest,
  unary,
  watch,
} from "../../../kit/operation.ts";
import type { ToldChange } from "../kv/service.ts";
import { type ConfigRevision, type ConfigState, type Configs, stateOf } from "./service.ts";

// The service answers with what a name may be; this only keeps the document honest.
const byName = {
  name: Type.String({
    minLength: 1,
    maxLength: 400,
    description: "Name of the document: A-Z, a-z, 0-9, `_`, `-` and dots, at most 128.",
  }),
};
const revision = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const instant = Type.String({ format: "date-time" });
const Fields = Type.Record(Type.String(), Type.Unknown());

const Row = Type.Object({
  name: shape.text("Name of the document."),
  revision: Type.Integer(),
  updatedAt: instant,
});
export const Document = Type.Object({
  name: shape.text("Name of the document."),
  data: Type.Union([Fields, Type.Null()], { description: "Null of a document that is deleted." }),
  revision: Type.Integer(),
  updatedAt: instant,
});
const Change = Type.Object({
  name: shape.text("Name of the document."),
  revision: Type.Integer(),
});
export const Kept = Type.Object({
  revision: Type.Integer(),
  operation: Type.Union([Type.Literal("put"), Type.Literal("delete")], {
    description: "What was done: `put` or `delete`.",
  }),
  bytes: shape.count("Size of the document, in bytes."),
  updatedAt: instant,
});

export const configJson = ({ name, data, revision, updatedAt }: ConfigState) => ({
  name,
  data,
  revision,
  updatedAt: rfc3339(updatedAt),
});

/** The body is the document itself, the headers what is expected of the one that is there. */
function decode(request: RestRequest) {
  const { params, body } = request;
  if (typeof body !== "object" || body === null || Array.isArray(body))
    throw invalid("body", "must be an object");
  return { ...conditions(request), data: body, name: params.name };
}

const encode = ({ name, revision }: ConfigState) => ({
  status: 200,
  headers: etagOf(revision),
  body: { name, revision },
});

const read = { action: "secrets:read", reads: true } as const;

const readOperations = (configs: Configs): Operation[] => [
  unary({
    name: "config.list",
    ...read,
    summary: "Config documents of the environment, by name.",
    input: Type.Object({}),
    output: Type.Object({ configs: Type.Array(Row, { description: "Documents by name." }) }),
    rest: "GET /api/v1/config",
    lists: listed(({ name }: { name: string }) => [name], { under: "configs" }),
    handle: async (_input, call) => ({
      configs: (await configs.list(call.environmentId)).map((one) => ({
        ...one,
        updatedAt: rfc3339(one.updatedAt),
      })),
    }),
  }),
  unary({
    name: "config.get",
    ...read,
    summary: "One document: as it is, or as it was at a revision that is still kept.",
    input: Type.Object({ ...byName, revision: Type.Optional(revision) }),
    output: Document,
    rest: {
      route: "GET /api/v1/config/{name}",
      encode: (state: ConfigState) => ({
        status: 200,
        headers: etagOf(state.revision),
        body: configJson(state),
      }),
    },
    handle: ({ name, revision }, call) => configs.get(call.environmentId, name, revision),
  }),
  unary({
    name: "config.history",
    ...read,
    summary: "Changes of a document whose data is kept, newest first.",
    input: Type.Object(byName),
    output: Type.Object({
      name: shape.text("Name of the document."),
      history: Type.Array(Kept, { description: "Changes, newest first." }),
    }),
    rest: {
      route: "GET /api/v1/config/{name}/history",
      encode: (history: ConfigRevision[], { name }) => ({
        status: 200,
        body: { name, history: history.map((one) => ({ ...one, updatedAt: rfc3339(one.updatedAt) })) },
      }),
    },
    handle: ({ name }, call) => configs.history(call.environmentId, name),
  }),
];

const writeOperations = (configs: Configs): Operation[] => [
  unary({
    name: "config.put",
    action: "secrets:manage",
    hides: ["data"],
    summary:
      "Sets a document to the body. `If-None-Match: *` only where there is none, `If-Match: {revision}` only at that revision; 412 says the revision that was found.",
    input: Type.Object({ ...byName, data: Fields, ...expecting }),
    output: Change,
    rest: { route: "POST /api/v1/config/{name}", decode, encode, body: Fields },
    handle: ({ name, data, if_match, if_none_match }, call) =>
      configs.put(call.environmentId, name, data, expectedOf(if_match, if_none_match)),
  }),
  unary({
    name: "config.patch",
    action: "secrets:manage",
    hides: ["data"],
    summary: "Puts the fields of the body over those of a document. Headers as in a POST.",
    input: Type.Object({ ...byName, data: Fields, ...expecting }),
    output: Change,
    rest: { route: "PATCH /api/v1/config/{name}", decode, encode, body: Fields },
    handle: ({ name, data, if_match, if_none_match }, call) =>
      configs.patch(call.environmentId, name, data, expectedOf(if_match, if_none_match)),
  }),
  unary({
    name: "config.rollback",
    action: "secrets:manage",
    summary: "Sets a document to what it was at a revision that is kept; its next revision.",
    input: Type.Object({ ...byName, revision }),
    output: Change,
    rest: { route: "POST /api/v1/config/{name}/rollback/{revision}", encode },
    handle: ({ name, revision }, call) => configs.rollback(call.environmentId, name, revision),
  }),
  unary({
    name: "config.delete",
    action: "secrets:manage",
    summary: "Deletes a document; one that does not exist is deleted already. Headers as in a POST.",
    input: Type.Object({ ...byName, ...expecting }),
    rest: {
      route: "DELETE /api/v1/config/{name}",
      decode: (request) => ({ ...conditions(request), ...request.params }),
    },
    handle: ({ name, if_match, if_none_match }, call) =>
      configs.remove(call.environmentId, name, expectedOf(if_match, if_none_match)),
  }),
];

export const configFrames = {
  config_update: { about: "The document is so now; without data, it is deleted.", schema: Document },
  error: { about: "Why the socket is closed.", schema: endOfWatch },
};

/** Written once for all who are told of the change. */
const toldTexts = new WeakMap<ToldChange, string>();

function toldText(change: ToldChange): string {
  const known = toldTexts.get(change);
  if (known !== undefined) return known;
  const text = JSON.stringify({ type: "config_update", ...configJson(stateOf(change)) });
  toldTexts.set(change, text);
  return text;
}

const watchOperation = (configs: Configs): Operation =>
  watch({
    name: "config.watch",
    ...read,
    summary: "A document as it is, and then each change of it; it need not exist yet.",
    input: Type.Object(byName),
    route: "GET /api/v1/config/{name}/watch",
    frames: configFrames,
    async *handle({ name }, call) {
      const { signal, admitted = () => {} } = call;
      for await (const change of configs.watch(call.environmentId, name, { signal, admitted }))
        yield toldText(change);
    },
  });

export const configOperations = (configs: Configs): Operation[] => [
  ...readOperations(configs),
  ...writeOperations(configs),
  watchOperation(configs),
];
