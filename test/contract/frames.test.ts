import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { socketOf } from "../../src/edge/openapi.ts";
import { isAction } from "../../src/gate/actions.ts";
import { everyFrame } from "../support/frames.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { declaredFrame, openSocket } from "../support/sockets.ts";

/** One frame of each type that a client may send. */
const samples: Record<string, object> = {
  subscribe: { subscription: { pattern: "framed.>" } },
  unsubscribe: { subscriptionId: "sub_none" },
  ack: { eventId: "evt_none", ackType: "ack" },
};

describe("frames of the socket", () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
  });
  afterAll(() => server?.stop());

  const bound = (from: "client" | "server") =>
    everyFrame(server.running.registry).filter((frame) => frame.from === from);

  test("what a session reads is what operations bind, and nothing else", async () => {
    const types = bound("client").map(({ type }) => type);
    expect(types.toSorted()).toEqual(Object.keys(samples).toSorted());
    const socket = await openSocket(server.url, { key: server.adminKey });
    for (const type of types) socket.send({ type, ...samples[type] });
    // The answer to a later frame says that the earlier ones were read.
    socket.send({ type: "framed" });
    const [refused, ...others] = await socket.wait("error");
    expect(others).toEqual([]);
    for (const type of types) expect(refused.message).toContain(type);
    expect(socket.of("subscription_error")).toEqual([]);
    expect((await socket.wait("subscription_result"))[0].results[0].status).toBe("ok");
    socket.close();
  });

  test("each that a client sends costs an action, and stands in the authorization matrix", async () => {
    const matrix = await Bun.file(new URL("./auth-matrix.txt", import.meta.url)).text();
    expect(bound("client").length).toBeGreaterThan(0);
    for (const { operation, type } of bound("client")) {
      expect(isAction(operation.action ?? ""), type).toBe(true);
      expect(matrix).toContain(`  ${operation.name}  ${operation.action}  websocket  client ${type} {`);
    }
  });

  test("each is described in the OpenAPI document, with its fields", async () => {
    const { body } = await server.api("/openapi.json");
    const sockets = server.running.registry.flatMap((one) => socketOf(one) ?? []);
    expect(sockets.map(({ path }) => path)).toContain("/ws");
    for (const { path, schemas, ...sides } of sockets) {
      const { description, "x-svc-frames": frames } = body.paths[path].get;
      expect(Object.keys(frames.client)).toEqual(Object.keys(sides.client));
      expect(Object.keys(frames.server)).toEqual(Object.keys(sides.server));
      const all = [sides.client, sides.server].flatMap((side) => Object.entries(side));
      const references = { ...frames.client, ...frames.server };
      for (const [type, { about, schema }] of all) {
        expect(description).toContain(`- \`${type}\`: ${about}`);
        expect(references[type]).toEqual({ $ref: `#/components/schemas/${schemas}.${type}` });
        const described = body.components.schemas[`${schemas}.${type}`];
        expect(described).toMatchObject({ type: "object", description: about });
        expect(described.properties.type).toEqual({ const: type, description: expect.any(String) });
        expect(Object.keys(described.properties)).toEqual(["type", ...Object.keys(schema.properties)]);
        expect(described.required).toEqual(["type", ...(schema.required ?? [])]);
      }
    }
  });

  test("a frame of the server that no operation declares is found out, and so is a field", () => {
    const error = { type: "error", code: "INVALID_PATTERN", message: "m" };
    expect(declaredFrame(JSON.stringify(error))).toEqual(error);
    expect(() => declaredFrame('{"type":"framed"}')).toThrow("/type");
    expect(() => declaredFrame(JSON.stringify({ ...error, more: 1 }))).toThrow("/more");
    expect(() => declaredFrame(JSON.stringify({ ...error, code: "ELSE" }))).toThrow("/code");
  });
});
