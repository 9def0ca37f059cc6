import type { DescMethod } from "@bufbuild/protobuf";
import { KindGuard, type TSchema } from "@sinclair/typebox";
import { comments } from "../gen/svc/v1/comments.ts";
import type { Operation, UnaryOperation } from "../kit/operation.ts";
import { sequenceHeader } from "../kit/sequence.ts";
import type { SocketBinding } from "../kit/socket-binding.ts";
import { Examples, illustrate } from "./examples.ts";
import { faultCatalogue } from "./fault-encoding.ts";
import { type JsonSchema, withWords, wordsOf } from "./field-words.ts";
import { errorSchemas, groups, introduction, sharedParts } from "./openapi-parts.ts";
import { closed } from "./perform.ts";
import { ProtoSchemas } from "./proto-schema.ts";
import { type FullBinding, parseRoute, restBindings } from "./rest.ts";
import { methodBindings, rpcPath } from "./rpc.ts";
import { socketFrameBytesMax, socketPath } from "./sockets.ts";

export interface Manifested {
  name: string;
  method: string;
  path: string;
  /** The action the caller must hold; `public` for none. */
  action: string;
  protocol: "rest" | "connect" | "connect-stream" | "websocket";
}

/** A watch has no frames of the client. */
const none: SocketBinding["client"] = {};

export interface SocketAt extends SocketBinding {
  path: string;
  /** Begins the names of its frames' schemas: two paths may have frames of one type. */
  schemas: string;
}

/** How the operation appears on a WebSocket, if it does. */
export function socketOf(operation: Operation): SocketAt | undefined {
  if (operation.mode === "watch") {
    const { path } = parseRoute(operation.route);
    return { path, schemas: operation.name, client: none, server: operation.frames };
  }
  const shared = operation.mode === "stream" ? operation.socket : undefined;
  return shared && { path: socketPath, schemas: "socket", ...shared };
}

const groupOf = (name: string): string => name.split(".", 1)[0] ?? "";

/** Every way to every operation; `/api/v1/routes` and the contract tests read it. */
export function manifest(registry: readonly Operation[]): Manifested[] {
  return registry.flatMap((operation) => {
    const head = { name: operation.name, action: operation.action ?? "public" };
    const posted = (method: DescMethod, protocol: Manifested["protocol"]): Manifested => ({
      ...head,
      method: "POST",
      path: rpcPath(method),
      protocol,
    });
    const methods = methodBindings(operation).map(({ method }) => method);
    if (operation.mode !== "unary") {
      const streams = methods.map((method) => posted(method, "connect-stream"));
      const path = socketOf(operation)?.path;
      return path === undefined
        ? streams
        : [...streams, { ...head, method: "GET", path, protocol: "websocket" }];
    }
    const rest = restBindings(operation).map(({ route }): Manifested => {
      return { ...head, ...parseRoute(route), protocol: "rest" };
    });
    return [...rest, ...methods.map((method) => posted(method, "connect"))];
  });
}

/** TypeBox is JSON Schema once its symbols are gone; its kinds that JSON has no word for are bytes. */
function plain(schema: TSchema): JsonSchema {
  const text = JSON.stringify(schema, (key, value) => {
    if (value?.type === "Uint8Array") return { type: "string", format: "binary" };
    return key === "$id" ? undefined : value;
  });
  return withWords(JSON.parse(text)) as JsonSchema;
}

const fieldsOf = (schema: TSchema): Record<string, TSchema> =>
  KindGuard.IsObject(schema) ? schema.properties : {};
const requiredOf = (schema: TSchema): readonly string[] => schema.required ?? [];

function queryParameters(schema: TSchema, except: readonly string[]): JsonSchema[] {
  return Object.entries(fieldsOf(schema))
    .filter(([name]) => !except.includes(name))
    .map(([name, field]) => parameter("query", name, requiredOf(schema).includes(name), plain(field)));
}

/** What it means stands beside its schema, where readers and generators look for it. */
function parameter(place: string, name: string, required: boolean, field: JsonSchema): JsonSchema {
  const { description = wordsOf(name), ...schema } = field;
  return { name, in: place, required, schema, ...(description !== undefined && { description }) };
}

/** The input without what the path carries. */
function bodySchema(schema: TSchema, except: readonly string[]): JsonSchema {
  const whole = plain(closed(schema, true));
  const properties = { ...(whole.properties as Record<string, unknown> | undefined) };
  for (const name of except) delete properties[name];
  const required = requiredOf(schema).filter((name) => !except.includes(name));
  const { required: _all, ...rest } = whole;
  return {
    ...rest,
    ...(whole.properties !== undefined && { properties }),
    ...(required.length > 0 && { required }),
  };
}

const shownBy = (example: object | undefined) => example && { example };
const json = (schema: JsonSchema, sample?: object) => ({
  "application/json": { schema, ...shownBy(sample) },
});
const errorRef = { $ref: "#/components/responses/Error" };
const rpcErrorRef = { $ref: "#/components/responses/ConnectError" };

function refusals(operation: Pick<Operation, "action">, error: JsonSchema): JsonSchema {
  return { "400": error, ...(operation.action !== null && { "401": error, "403": error }), default: error };
}

function head(
  operation: Pick<Operation, "name" | "summary" | "action" | "scope" | "waitsFor">,
  operationId: string,
): JsonSchema {
  const parameters = [
    ...(operation.action !== null && operation.scope !== "none" ? ["Environment"] : []),
    ...(operation.waitsFor === undefined ? [] : ["MinSequence"]),
  ];
  return {
    operationId,
    summary: operation.summary,
    tags: [groupOf(operation.name)],
    "x-svc-action": operation.action ?? "public",
    ...(operation.action === null && { security: [] }),
    ...(parameters.length > 0 && {
      parameters: parameters.map((name) => ({ $ref: `#/components/parameters/${name}` })),
    }),
  };
}

/** The headers of a success besides those that every answer has. */
const successHeaders = (operation: Operation) =>
  operation.mode === "unary" &&
  operation.writes && { headers: { [sequenceHeader]: { $ref: "#/components/headers/Sequence" } } };

/** Fields of inputs that headers fill. */
const headerOf: Readonly<Record<string, string>> = { if_match: "If-Match", if_none_match: "If-None-Match" };
const headerFields = Object.keys(headerOf);

const headerParameters = (schema: TSchema): JsonSchema[] =>
  headerFields.flatMap((name) => {
    const field = fieldsOf(schema)[name];
    return field ? [parameter("header", headerOf[name]!, false, plain(field))] : [];
  });

const namesIn = (path: string): string[] =>
  [...path.matchAll(/\{(\w+)(?:\.\.\.)?\}/g)].map(([, name]) => name!);

function pathParameters(input: TSchema, names: readonly string[]): JsonSchema[] {
  const fields = fieldsOf(input);
  return names.map((name) =>
    parameter("path", name, true, fields[name] ? plain(fields[name]) : { type: "string" }),
  );
}

function socketParameters({ input }: Operation, path: string): JsonSchema[] {
  const names = namesIn(path);
  return [...pathParameters(input, names), ...queryParameters(input, names)];
}

const meaningOf = (status: number): string => {
  if (status >= 300) return "The same, but not well.";
  return status === 204 ? "Success, and nothing to say." : "Success.";
};

function restDescribed(operation: UnaryOperation, binding: FullBinding, operationId: string) {
  const { method, path } = parseRoute(binding.route);
  const names = namesIn(path);
  const readsBody = ["POST", "PUT", "PATCH"].includes(method);
  const base = head(operation, operationId);
  const query = binding.query ?? (readsBody ? undefined : operation.input);
  const parameters = [
    ...((base.parameters as JsonSchema[] | undefined) ?? []),
    ...pathParameters(operation.input, names),
    ...(query ? queryParameters(query, [...names, ...headerFields]) : []),
    ...headerParameters(operation.input),
  ];
  const body = binding.body ? plain(binding.body) : bodySchema(operation.input, [...names, ...headerFields]);
  // A body of its own that names no fields may be any value; one that has none is not sent.
  const hasFields = Object.keys(body.properties ?? (binding.body ? { any: true } : {})).length > 0;
  const status = binding.status ?? (operation.output || binding.encode || binding.json ? 200 : 204);
  const answers = [status, ...(binding.also ?? [])].map((one) => [
    one,
    {
      description: meaningOf(one),
      ...(one < 300 && successHeaders(operation)),
      ...(operation.output && one !== 204 && { content: json(plain(operation.output)) }),
    },
  ]);
  return {
    ...base,
    ...(parameters.length > 0 && { parameters }),
    ...(readsBody &&
      binding.raw && { requestBody: { content: { "application/octet-stream": {} }, required: true } }),
    ...(readsBody &&
      !binding.raw &&
      hasFields && {
        requestBody: { content: json(body, operation.sample), required: Array.isArray(body.required) },
      }),
    responses: {
      ...Object.fromEntries(answers),
      ...refusals(operation, errorRef),
    },
  };
}

function rpcDescribed(
  operation: Operation,
  { method, answer }: { method: DescMethod; answer: TSchema | undefined },
  schemas: ProtoSchemas,
  operationId: string,
) {
  const streams = operation.mode !== "unary";
  const type = streams ? "application/connect+json" : "application/json";
  const words = comments[operationId];
  return {
    ...head(operation, operationId),
    ...(words !== undefined && { description: words }),
    requestBody: {
      required: true,
      content: { [type]: { schema: schemas.message(method.input), ...shownBy(operation.sample) } },
    },
    responses: {
      "200": {
        description: streams
          ? "Enveloped messages; the last envelope carries the outcome. Errors come there, with status 200."
          : "Success.",
        ...successHeaders(operation),
        content: { [type]: { schema: answer ? plain(answer) : schemas.message(method.output) } },
      },
      ...refusals(operation, rpcErrorRef),
    },
  };
}

/** The frames of one side as schemas of the document, and where it refers to them, by `type`. */
function framesDescribed(
  frames: SocketBinding["client"],
  schemas: string,
  components: Record<string, JsonSchema>,
) {
  const references: Record<string, JsonSchema> = {};
  for (const [type, { about, schema }] of Object.entries(frames)) {
    const { properties, required = [], ...rest } = plain(schema);
    components[`${schemas}.${type}`] = {
      ...rest,
      description: about,
      properties: {
        type: { const: type, description: "Tells the frame from others." },
        ...(properties as object),
      },
      required: ["type", ...(required as string[])],
    };
    references[type] = { $ref: `#/components/schemas/${schemas}.${type}` };
  }
  return references;
}

const frameLines = (frames: SocketBinding["client"]): string =>
  Object.entries(frames)
    .map(([type, { about }]) => `- \`${type}\`: ${about}`)
    .join("\n");

function socketDescribed(
  operation: Operation,
  { path, schemas, client, server }: SocketAt,
  components: Record<string, JsonSchema>,
) {
  // Its subscriptions name positions in their frames.
  const { waitsFor: _none, ...shown } = operation;
  const base = head(shown, operation.name);
  const input = path === socketPath ? [] : socketParameters(operation, path);
  const parameters = [...((base.parameters as JsonSchema[] | undefined) ?? []), ...input];
  const sends = framesDescribed(client, schemas, components);
  const gets = framesDescribed(server, schemas, components);
  const sent = `The client sends:\n\n${frameLines(client)}`;
  return {
    ...base,
    ...(parameters.length > 0 && { parameters }),
    description:
      "Becomes a WebSocket of subprotocol `svc.v1`; browsers offer the credential beside it, as " +
      `\`svc.auth.bearer.<base64url>\`. Frames are JSON texts with a \`type\`: schema \`${schemas}.{type}\`; those of the ` +
      `client have at most ${socketFrameBytesMax} bytes. ` +
      `${client === none ? "The client sends nothing." : sent}\n\nThe server sends:\n\n${frameLines(server)}`,
    "x-svc-frames": { client: sends, server: gets },
    responses: {
      "101": {
        description: "Frames follow in both directions: JSON texts, told apart by `type`.",
        content: json({ oneOf: [...Object.values(sends), ...Object.values(gets)] }),
      },
      "426": { description: "The request asks for no WebSocket." },
      ...refusals(operation, errorRef),
    },
  };
}

/** The OpenAPI 3.1 document of everything in the registry. */
export function openApiDocument(registry: readonly Operation[], version: string): JsonSchema {
  const schemas = new ProtoSchemas();
  const paths: Record<string, JsonSchema> = {};
  const frames: Record<string, JsonSchema> = {};
  const put = (path: string, method: string, described: JsonSchema) => {
    paths[path] = { ...paths[path], [method.toLowerCase()]: described };
  };
  for (const operation of registry) {
    if (operation.mode === "unary") {
      restBindings(operation).forEach((binding, index) => {
        const { method, path } = parseRoute(binding.route);
        const operationId = index === 0 ? operation.name : `${operation.name}.${index + 1}`;
        put(path.replace("...}", "}"), method, restDescribed(operation, binding, operationId));
      });
    }
    const socket = socketOf(operation);
    if (socket) put(socket.path, "GET", socketDescribed(operation, socket, frames));
    for (const binding of methodBindings(operation)) {
      const { method } = binding;
      const operationId = `${method.parent.typeName}.${method.name}`;
      const answer = "json" in binding ? binding.json?.answer : undefined;
      put(rpcPath(method), "POST", rpcDescribed(operation, { method, answer }, schemas, operationId));
    }
  }
  const whole = { ...errorSchemas, ...frames, ...schemas.components };
  illustrate(paths, new Examples(whole));
  const tags = new Set(registry.map(({ name }) => groupOf(name)));
  return {
    openapi: "3.1.0",
    info: {
      title: "svc",
      version,
      description: introduction,
      license: { name: "Proprietary", identifier: "LicenseRef-Proprietary" },
    },
    servers: [{ url: "/" }],
    security: [{ bearer: [] }, { cookie: [] }, { token: [] }],
    tags: [...tags].sort().map((name) => ({ name, description: groups[name] ?? "" })),
    paths,
    components: { ...sharedParts, schemas: whole },
    "x-svc-errors": faultCatalogue,
  };
}
