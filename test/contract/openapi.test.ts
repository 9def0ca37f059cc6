import { expect, test } from "bun:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import { Type } from "@sinclair/typebox";
import { manifest, openApiDocument } from "../../src/edge/openapi.ts";
import { probes } from "../../src/edge/probes.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { type Operation, unary } from "../../src/kit/operation.ts";
import { version } from "../../src/kit/version.ts";
import { madeUpOperations } from "../operations/edge-support.ts";

interface Described {
  operationId: string;
  parameters?: { $ref?: string; name?: string; in?: string; required?: boolean }[];
  requestBody?: { content: Record<string, { schema?: Record<string, unknown> }> };
  responses: Record<string, { content?: Record<string, { schema: unknown }> }>;
  security?: unknown[];
}

interface Document {
  openapi: string;
  paths: Record<string, Record<string, Described>>;
  components: { schemas: Record<string, Record<string, unknown>> };
}

const registry: Operation[] = [
  ...madeUpOperations({ ran: [], streams: { open: 0, ended: 0 } }),
  ...probes({
    clock: systemClock(),
    version,
    store: { ping: async () => {} },
    capabilities: { authRequired: true, transports: [], features: [] },
    registry: () => registry,
  }),
];

const document = openApiDocument(registry, version) as unknown as Document;

/** What every document must keep, whatever is in its registry. */
export async function expectSound(registry: readonly Operation[], document: Document): Promise<void> {
  const { valid, errors } = await new Validator().validate(JSON.parse(JSON.stringify(document)));
  expect(errors).toBeUndefined();
  expect(valid).toBe(true);
  expect(document.openapi).toStartWith("3.1");
  const ids = new Set<string>();
  for (const { method, path, action } of manifest(registry)) {
    const described = document.paths[path.replace("...}", "}")]?.[method.toLowerCase()];
    expect(described, `${method} ${path} is not described`).toBeDefined();
    expect(ids.has(described!.operationId), described!.operationId).toBe(false);
    ids.add(described!.operationId);
    expect(Object.keys(described!.responses)).toContain("default");
    if (action === "public") expect(described!.security).toEqual([]);
    else expect(Object.keys(described!.responses)).toContain("401");
  }
  // No reference leads nowhere.
  const parts = JSON.parse(JSON.stringify(document));
  for (const [, pointer] of JSON.stringify(document).matchAll(/"\$ref":"#\/([^"]+)"/g)) {
    const found = pointer!.split("/").reduce((value, part) => value?.[part], parts);
    expect(found, pointer!).toBeDefined();
  }
}

test("the document is valid OpenAPI 3.1 and describes every route", () => expectSound(registry, document));

test("REST inputs stand where the server reads them", () => {
  const update = document.paths["/api/v1/things/{id}"]?.put;
  expect(update?.parameters?.filter((one) => one.in === "path").map((one) => one.name)).toEqual(["id"]);
  const body = update?.requestBody?.content["application/json"]?.schema;
  expect(Object.keys(body?.properties as object)).toEqual(["name", "limit", "kind", "triggers"]);
  expect(body).toMatchObject({ required: ["name"], additionalProperties: false });
  const list = document.paths["/api/v1/things"]?.get;
  expect(list?.parameters?.filter((one) => one.in === "query").map((one) => one.name)).toEqual([
    "limit",
    "deep",
    "names",
  ]);
  expect(list?.requestBody).toBeUndefined();
  const raw = document.paths["/api/v1/buckets/{bucket}/keys/{key}"]?.put;
  expect(Object.keys(raw?.requestBody?.content ?? {})).toEqual(["application/octet-stream"]);
});

test("writes to a log and reads that wait for one say so", () => {
  const base = { summary: "Made up.", action: "things:write" };
  const made: Operation[] = [
    unary({
      ...base,
      ...{
        name: "things.write",
        input: Type.Object({}),
        rest: "POST /api/v1/written",
        handle: () => undefined,
      },
      writes: { log: "events", positionOf: () => 1 },
    }),
    unary({
      ...base,
      ...{ name: "things.read", input: Type.Object({}), rest: "GET /api/v1/read", handle: () => undefined },
      waitsFor: "log",
    }),
  ];
  const { paths, components } = openApiDocument(made, version) as unknown as Document & {
    components: { headers: object; parameters: Record<string, { name: string }> };
  };
  const written = paths["/api/v1/written"]?.post;
  expect(written?.responses["204"]).toMatchObject({
    headers: { "X-Svc-Sequence": { $ref: "#/components/headers/Sequence" } },
  });
  expect(written?.parameters).toEqual([{ $ref: "#/components/parameters/Environment" }]);
  const read = paths["/api/v1/read"]?.get;
  expect(read?.parameters).toContainEqual({ $ref: "#/components/parameters/MinSequence" });
  expect(components.parameters.MinSequence?.name).toBe("X-Svc-Min-Sequence");
});

test("RPC messages are described as the protobuf mapping writes them", () => {
  const run = document.components.schemas["svc.v1.Run"] as { properties: object; required: string[] };
  expect(run.properties).toMatchObject({
    createdAt: { type: "string", format: "date-time" },
    status: { $ref: "#/components/schemas/svc.v1.RunStatus" },
    output: { type: "object" },
    attempt: { type: "integer", format: "int32" },
  });
  expect(run.required).toContain("maxAttempts");
  const event = document.components.schemas["svc.v1.SubscriptionEvent"] as { properties: object };
  expect(event.properties).toMatchObject({ sequence: { type: "string", format: "uint64" } });
  const subscribe = document.paths["/svc.v1.PubSubService/Subscribe"]?.post;
  expect(Object.keys(subscribe?.requestBody?.content ?? {})).toEqual(["application/connect+json"]);
});
