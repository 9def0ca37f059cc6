import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Code, createClient, type Interceptor } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { EntityStreamService } from "../../src/gen/svc/v1/entity_stream_pb.ts";
import { ProjectionService } from "../../src/gen/svc/v1/projection_pb.ts";
import { PubSubService } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import { sql } from "../../src/kit/sql.ts";
import { freePort } from "../support/process.ts";
import { openFrames, projectionCaller } from "../support/projections.ts";
import { type Answer, engines, startTestServer, type TestServer } from "../support/server.ts";

const written = "x-svc-sequence";
const least = "x-svc-min-sequence";

describe.each(engines)("positions of writes and reads on %s", (engine) => {
  let server: TestServer;
  let caller: ReturnType<typeof projectionCaller>;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { grpcPort: await freePort() } });
    caller = projectionCaller(server);
  }, 120_000);
  afterAll(() => server.stop());

  let number = 0;
  const rpc = (service: string, method: string, body: object, token?: string, more: object = {}) =>
    server.rpc(service, method, body, { headers: { ...(token && { [least]: token }), ...more } });
  const emit = (event = "a.happened") => rpc("SvcService", "Emit", { event });
  const tokenOf = ({ headers }: Answer) => headers.get(written)!;
  const partsOf = (token: string | null) => {
    const [, epoch, position, log] = /^(\d+)\.(\d+)(\.topics)?$/.exec(token ?? "") ?? [];
    expect([token, epoch]).toEqual([token, expect.any(String)]);
    return { epoch: Number(epoch), position: Number(position), isTopics: log !== undefined };
  };
  const registered = async (more: object = {}) => {
    const name = `folded_${++number}`;
    const event = `folded${number}.happened`;
    await caller.ok("RegisterProjection", { name, events: [event], ...more });
    return { name, event };
  };

  test("every write answers its position, in the body and in the header", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "plain", name: "plain", triggers: [] });
    const stream = { entityId: "one", entityType: "thing", expectedVersion: -1 };
    const inBody: [string, string, object][] = [
      ["SvcService", "Emit", { event: "a" }],
      ["SvcService", "Trigger", { event: "a" }],
      ["PubSubService", "Emit", { event: "a" }],
      ["SvcService", "TriggerSync", { event: "a" }],
      ["SvcService", "InvokeFunction", { functionId: "plain" }],
      ["SvcService", "InvokeFunctionSync", { functionId: "plain", timeoutMs: 1 }],
      ["EntityStreamService", "AppendEvent", { ...stream, eventName: "b" }],
      ["PubSubService", "Publish", { topic: "t" }],
    ];
    for (const [service, method, body] of inBody) {
      const answer = await rpc(service, method, body);
      expect([method, answer.status]).toEqual([method, 200]);
      const { position, isTopics } = partsOf(answer.headers.get(written));
      expect([method, `${position}`]).toEqual([method, answer.body.sequence]);
      expect(isTopics).toBe(method === "Publish");
    }
    const inBatches: [string, string, object][] = [
      ["SvcService", "TriggerBatch", { events: [{ event: "a" }, { event: "b" }] }],
      ["EntityStreamService", "AppendEvents", { streams: [{ ...stream, events: [{ eventName: "b" }] }] }],
      ["PubSubService", "PublishBatch", { messages: [{ topic: "t" }, { topic: "u" }] }],
    ];
    for (const [service, method, body] of inBatches) {
      const answer = await rpc(service, method, body);
      expect(`${partsOf(answer.headers.get(written)).position}`).toBe(answer.body.results.at(-1).sequence);
    }
    const first = await rpc("SvcService", "Emit", { event: "a", idempotencyKey: "again" });
    const repeat = await rpc("SvcService", "Emit", { event: "a", idempotencyKey: "again" });
    expect(tokenOf(repeat)).toBe(tokenOf(first));
    expect((await rpc("SvcService", "ListRuns", {})).headers.get(written)).toBeNull();
    const cors = await fetch(`${server.url}/api/v1/events`, { method: "OPTIONS" });
    expect(cors.headers.get("access-control-allow-headers")).toContain("X-Svc-Min-Sequence");
    expect(cors.headers.get("access-control-expose-headers")).toContain("X-Svc-Sequence");
  });

  test("over gRPC, gRPC-Web and Connect in binary alike", async () => {
    const asAdmin: Interceptor = (next) => (request) => {
      request.header.set("authorization", `Bearer ${server.adminKey}`);
      return next(request);
    };
    const options = { interceptors: [asAdmin], httpVersion: "1.1" as const };
    const baseUrl = server.url;
    const transports = [
      createGrpcTransport({ baseUrl: server.running.grpcUrl!, interceptors: [asAdmin] }),
      createGrpcWebTransport({ ...options, baseUrl }),
      createConnectTransport({ ...options, baseUrl, useBinaryFormat: true }),
    ];
    for (const transport of transports) {
      let token = "";
      const onHeader = (headers: Headers) => {
        token = headers.get(written) ?? token;
      };
      const emitted = await createClient(SvcService, transport).emit({ event: "a" }, { onHeader });
      expect(partsOf(token).position).toBe(Number(emitted.sequence));
      await createClient(PubSubService, transport).publish({ topic: "t" }, { onHeader });
      expect(partsOf(token).isTopics).toBe(true);
      const appended = await createClient(EntityStreamService, transport).appendEvent(
        { entityId: "binary", entityType: "thing", eventName: "c", expectedVersion: -1n },
        { onHeader },
      );
      expect(partsOf(token).position).toBe(Number(appended.sequence));
      const { name, event } = await registered();
      const { seq } = await caller.emit(event);
      const epoch = partsOf(token).epoch;
      const other = createClient(ProjectionService, transport).getProjection(
        { name },
        { headers: { [least]: `${epoch + 1}.${seq}` } },
      );
      await expect(other).rejects.toMatchObject({ code: Code.FailedPrecondition });
      await caller.poll(name);
      await caller.save(name, seq, { n: 1 });
      const read = await createClient(ProjectionService, transport).getProjection(
        { name },
        { headers: { [least]: `${epoch}.${seq}` } },
      );
      expect(read.state).toEqual({ n: 1 });
    }
  });

  test("a read of a projection waits for the save that folds the position", async () => {
    const { name, event } = await registered();
    const token = tokenOf(await emit(event));
    const { position } = partsOf(token);
    const reading = rpc("ProjectionService", "GetProjection", { name }, token);
    const rest = server.api(`/api/v1/projections/${name}?minSequence=${token}`);
    const partitions = server.api(`/api/v1/projections/${name}/partitions`, { headers: { [least]: token } });
    await caller.poll(name);
    expect((await caller.save(name, position, { n: 1 })).status).toBe(200);
    expect((await reading).body.state).toEqual({ n: 1 });
    expect((await rest).body.state.state).toEqual({ n: 1 });
    expect((await partitions).body.partitions).toEqual(["__global__"]);
    const passed = tokenOf(await emit("nobody.folds.this"));
    expect((await rpc("ProjectionService", "GetProjection", { name }, passed)).body.state).toEqual({ n: 1 });
    const missing = await rpc("ProjectionService", "GetProjection", { name: "nothing" }, passed);
    expect([missing.status, missing.body.code]).toEqual([404, "not_found"]);
    const topic = tokenOf(await rpc("PubSubService", "Publish", { topic: "t" }));
    expect((await rpc("ProjectionService", "GetProjection", { name }, topic)).status).toBe(200);
  });

  test("a read that runs out of time says how far the projection is", async () => {
    const { name, event } = await registered();
    const token = tokenOf(await emit(event));
    const { position } = partsOf(token);
    // REST leaves a deadline to the caller: no load makes this answer come too late.
    const late = await server.api(`/api/v1/projections/${name}`, {
      headers: { [least]: token, "connect-timeout-ms": "200" },
    });
    expect([late.status, late.body.code]).toEqual([503, "unavailable"]);
    expect(late.body.message).toBe(`projection "${name}" is at ${position - 1}, not at ${position} yet`);
    expect(late.headers.get("retry-after")).toBe("1");
  });

  test("a projection that cannot go on refuses what it has not folded, and answers what it has", async () => {
    const { name, event } = await registered();
    const seen = tokenOf(await emit(event));
    await caller.poll(name);
    await caller.save(name, partsOf(seen).position, { n: 1 });
    await caller.ok("PauseProjection", { name });
    const unseen = tokenOf(await emit(event));
    const read = (token: string) => rpc("ProjectionService", "GetProjection", { name }, token);
    expect((await read(seen)).body.state).toEqual({ n: 1 });
    expect([(await read(unseen)).body.code, (await read(unseen)).body.message]).toEqual([
      "failed_precondition",
      `projection "${name}" is paused`,
    ]);
    await caller.ok("ResumeProjection", { name });
    const { events } = await caller.poll(name);
    const [{ id: eventId, seq: eventSeq }] = events;
    await caller.ok("ReportProjectionError", { name, eventId, eventSeq, message: "broken" });
    expect((await read(unseen)).body.code).toBe("failed_precondition");
    await caller.ok("ResumeProjection", { name });
    const waiting = read(unseen);
    await caller.poll(name);
    await caller.save(name, partsOf(unseen).position, { n: 2 });
    expect((await waiting).body.state).toEqual({ n: 2 });
    await caller.ok("RebuildProjection", { name });
    expect((await read(seen)).body.code).toBe("failed_precondition");
  });

  test("a position is checked by reads of the log itself", async () => {
    const { headers } = await emit();
    const token = headers.get(written)!;
    const { epoch, position } = partsOf(token);
    const list = (text: string, more: object = {}) => rpc("SvcService", "ListRuns", {}, text, more);
    expect((await list(token)).status).toBe(200);
    for (const text of ["", "7", "a.b", `${epoch}.`, `${epoch}.-1`, `${epoch}.${2 ** 60}`, `${token}.x`]) {
      const wrong = await server.api("/api/v1/events", { headers: { [least]: text } });
      expect([text, wrong.status, wrong.body.code]).toEqual([text, 400, "invalid_argument"]);
      expect(wrong.body.field).toBe("X-Svc-Min-Sequence");
    }
    const query = await server.api("/api/v1/events?minSequence=x");
    expect([query.status, query.body.field]).toEqual([400, "minSequence"]);
    const other = await list(`${epoch + 1}.${position}`);
    expect([other.status, other.body.code]).toEqual([400, "failed_precondition"]);
    expect(other.headers.get("svc-error-reason")).toBe("epoch_changed");
    const ahead = await server.api("/api/v1/events", {
      headers: { [least]: `${epoch}.${position + 1_000}`, "grpc-timeout": "200m" },
    });
    expect([ahead.status, ahead.body.code]).toEqual([503, "unavailable"]);
    expect(ahead.body.message).toContain(`not at ${position + 1_000} yet`);
    const { body } = await server.api("/api/v1/events?limit=1");
    const next = Number(body.events[0].sequence) + 1;
    const waiting = list(`${epoch}.${next}`);
    await emit();
    expect((await waiting).status).toBe(200);
    // What takes no position passes it by.
    expect((await rpc("SvcService", "ListFunctions", {}, "nonsense")).status).toBe(200);
  });

  test("a position is one of the caller's environment, whatever others have", async () => {
    const made = await server.api("/api/v1/environments", { body: { name: "elsewhere" } });
    const granted = await server.api("/api/v1/apikeys", { body: { name: "k", env_id: made.body.id } });
    const key = granted.body.key as string;
    const { headers } = await emit();
    const { epoch, position } = partsOf(headers.get(written));
    const sent = { [least]: `${epoch}.${position}`, "grpc-timeout": "100m" };
    const read = await server.api("/api/v1/events", { key, headers: sent });
    const own = await server.rpc("SvcService", "Emit", { event: "a" }, { key });
    const end = partsOf(tokenOf(own)).position - 1;
    // Nothing says that the position is there for somebody else.
    expect(read.body.message).toEndWith(`the log of events is at ${end}, not at ${position} yet`);
    expect((await server.api("/api/v1/events", { key, headers: { [least]: tokenOf(own) } })).status).toBe(
      200,
    );
  });

  test("a subscription begins when the feed has come to the position", async () => {
    const token = tokenOf(await emit());
    const { epoch } = partsOf(token);
    const asked = { pattern: "events:>", options: {} };
    const refused = await subscribe(asked, `${epoch + 1}.1`);
    await refused.over();
    expect(refused.end()?.error?.code).toBe("failed_precondition");
    const begun = await subscribe({ ...asked, options: { replay: 1 } }, token);
    expect((await begun.wait(1)).length).toBe(1);
    begun.cut();
  });

  test("runs that an event started are listed with its position", async () => {
    await server.rpc("SvcService", "RegisterFunction", {
      ...{ id: "started", name: "started", triggers: [{ event: "start.now" }] },
    });
    const answer = await emit("start.now");
    const { body } = await rpc("SvcService", "ListRuns", { functionId: "started" }, tokenOf(answer));
    expect(body.runs.map(({ id }: { id: string }) => id)).toEqual(answer.body.runIds);
  });

  test("a restored log refuses the positions of before", async () => {
    const token = tokenOf(await emit());
    const { store } = server.running.domain;
    await store.write((session) => session.run(sql`UPDATE heads SET epoch = epoch + 1`));
    const fresh = `${partsOf(token).epoch + 1}.${partsOf(token).position}`;
    expect((await rpc("SvcService", "ListRuns", {}, fresh)).status).toBe(200);
    expect((await rpc("SvcService", "ListRuns", {}, token)).body.code).toBe("failed_precondition");
    expect(partsOf(tokenOf(await emit())).epoch).toBe(partsOf(fresh).epoch);
  });

  const subscribe = (body: object, token: string) =>
    openFrames(`${server.url}/svc.v1.PubSubService/Subscribe`, body, server.adminKey, { [least]: token });
});
