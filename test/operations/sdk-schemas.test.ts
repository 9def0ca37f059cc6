import { afterAll, beforeAll, expect, test } from "bun:test";
import { createClient, defineEvents, jsonSchema, type StandardSchema } from "../../src/sdk/index.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({ engine: "libsql" });
}, 120_000);
afterAll(() => server?.stop());

/** What a schema library would make that has a method of its own. */
const library: StandardSchema<{ by: string }> & { toJSONSchema(): object } = {
  "~standard": { version: 1, vendor: "test", validate: (value) => ({ value: value as { by: string } }) },
  toJSONSchema: () => ({ type: "object", properties: { by: { type: "string" } }, required: ["by"] }),
};

const events = defineEvents({
  "order.placed": {
    version: 2,
    schema: jsonSchema({
      type: "object",
      properties: {
        id: { type: "string" },
        state: { enum: ["new", "old"] },
        items: { type: "array", items: { type: "object", properties: { price: { type: "number" } } } },
        note: { type: ["string", "null"] },
      },
      required: ["id", "state"],
    }),
  },
  "order.paid": { schema: library },
  "order.sent": { jsonSchema: { type: "null" } },
  "order.lost": {} as { schema?: StandardSchema<{ at: number }> },
});

test("a registry pushes what its rules tell, and the server checks by it", async () => {
  const client = createClient({ events, url: server.url, apiKey: server.adminKey });
  expect(await client.schemas.push()).toEqual({
    registered: ["order.placed/2", "order.paid/1", "order.sent/1"],
    unchanged: [],
    untold: ["order.lost"],
  });
  expect((await client.schemas.push()).unchanged).toHaveLength(3);
  // Types follow from the schema: another state does not compile.
  await client.emit("order.placed", { id: "o1", state: "new", items: [{ price: 3 }], note: null });
  // @ts-expect-error
  const wrong = client.emit("order.placed", { id: "o1", state: "gone" });
  await expect(wrong).rejects.toMatchObject({ code: "invalid_argument" });
  // @ts-expect-error
  await expect(client.emit("order.paid", {})).rejects.toThrow('data: must have the property "by"');
  expect(await client.schemas.get("order.paid")).toMatchObject({
    eventName: "order.paid",
    version: 1,
    schema: library.toJSONSchema(),
  });
});

test("schemas are registered, listed, tried and deleted one by one", async () => {
  const { schemas } = createClient({ url: server.url, apiKey: server.adminKey });
  expect(await schemas.register("one.a", { type: "object" }, { description: "first" })).toBe("registered");
  const up = [{ op: "rename", path: "/a", to: "b" }];
  expect(await schemas.register("one.a", { "x-upcast": up }, { version: 2 })).toBe("registered");
  const { schemas: list, totalCount } = await schemas.list({ eventName: "one.a", limit: 1 });
  expect({ list, totalCount }).toMatchObject({
    list: [{ eventName: "one.a", version: 1, description: "first" }],
    totalCount: 2,
  });
  expect(await schemas.testUpcast("one.a", { a: 1 }, { from: 1 })).toEqual({
    data: { b: 1 },
    stepsApplied: [{ fromVersion: 1, toVersion: 2, description: "rename" }],
  });
  expect(await schemas.check({ eventName: "one.a", hours: 2 })).toMatchObject({
    mode: "enforce",
    trafficWindowHours: 2,
    schemas: [{ version: 1, asserts: true, compileError: "", traffic: [] }, { asserts: false }],
  });
  await schemas.delete("one.a", 2);
  await expect(schemas.get("one.a", 2)).rejects.toMatchObject({ code: "not_found" });
});
