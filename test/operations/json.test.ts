import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect } from "node:net";
import { silentLog } from "../../src/kit/log.ts";
import { payloadLevelsMax } from "../../src/kit/payload-json.ts";
import { sql } from "../../src/kit/sql.ts";
import { createFunction, createWorker } from "../../src/sdk/index.ts";
import { everyWay, go } from "../support/every-route.ts";
import { listen } from "../support/raw-stream.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const lists = (levels: number) => "[".repeat(levels) + "]".repeat(levels);

describe.each(engines)("JSON on %s", (engine) => {
  let server: TestServer;
  const errors: string[] = [];
  beforeAll(async () => {
    const log = { ...silentLog, error: (event: string) => void errors.push(event) };
    server = await startTestServer({ engine, log, settings: { leaseMs: 60_000 } });
  }, 120_000);
  afterAll(() => server.stop());

  const post = async (path: string, body: string, method = "POST") => {
    const headers = { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" };
    const answer = await fetch(`${server.url}${path}`, { method, headers, body });
    return { status: answer.status, text: await answer.text() };
  };
  const svc = (method: string, body: string) => post(`/svc.v1.SvcService/${method}`, body);
  const rpc = async (method: string, body: object) => (await server.rpc("SvcService", method, body)).body;
  const runOf = (id: string) => rpc("GetRun", { id });
  const historyOf = async (runId: string) =>
    (
      await server.running.domain.store.all<{ type: string }>(
        sql`SELECT type FROM run_history WHERE run_id = ${runId}`,
      )
    ).length;

  test("a payload of more levels than any reader takes is refused at its door; one that was stored before fails its run alone", async () => {
    const refused = await svc("Emit", `{"event":"deep.ev","data":${lists(100)}}`);
    expect([refused.status, refused.text]).toEqual([
      400,
      expect.stringContaining(`${payloadLevelsMax} levels`),
    ]);

    for (const id of ["deep.planted", "deep.healthy"])
      await rpc("RegisterFunction", { id, triggers: [{ event: `${id}.ev` }] });
    const planted = (await rpc("Emit", { event: "deep.planted.ev", data: [1] })) as {
      eventId: string;
      runIds: string[];
    };
    const deep = lists(200);
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE events SET data = ${deep} WHERE id = ${planted.eventId}`),
    );
    const healthy = await rpc("Emit", { event: "deep.healthy.ev", data: [1] });
    const worker = createWorker({
      url: server.url,
      apiKey: server.adminKey,
      transport: "stream",
      handleSignals: false,
      functions: ["deep.planted", "deep.healthy"].map((id) =>
        createFunction({ id, triggers: [{ event: `${id}.ev` }] }, async () => "done"),
      ),
    });
    await worker.start();
    const ended = (id: string) =>
      until(
        async () => {
          const run = await runOf(id);
          return run.status === "RUN_STATUS_COMPLETED" || run.status === "RUN_STATUS_FAILED"
            ? run
            : undefined;
        },
        { about: `the end of ${id}` },
      );
    expect((await ended(healthy.runIds[0])).status).toBe("RUN_STATUS_COMPLETED");
    const failed = await ended(planted.runIds[0]!);
    expect(failed).toMatchObject({
      status: "RUN_STATUS_FAILED",
      error: { code: "JOB_NOT_SENDABLE", message: expect.stringContaining("event.data: nested deeper than") },
    });
    expect(failed.inputValue).toEqual(JSON.parse(deep));
    expect(await historyOf(planted.runIds[0]!)).toBeLessThan(6);
    expect((await rpc("ListRuns", {})).runs.length).toBeGreaterThanOrEqual(2);
    expect((await server.api(`/api/v1/events/${planted.eventId}`)).body.data).toEqual(JSON.parse(deep));
    // As bytes: the reader of messages that a client here would use stops at 100 of them.
    const headers = { authorization: `Bearer ${server.adminKey}` };
    const stream = listen(
      server.url,
      "Subscribe",
      { headers },
      { pattern: "events:deep.>", options: { replay: 10 } },
    );
    await until(() => stream.heard.over || stream.heard.text.includes(deep), { about: "the replay" });
    expect([stream.heard.over, stream.heard.text.includes("error")]).toEqual([false, false]);
    stream.cut();
    worker.stop();
    await worker.closed;
  });

  test("what is stored and nothing can write is shown as a text that says so", async () => {
    const { eventId } = await rpc("Emit", { event: "deeper.ev", data: [1] });
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE events SET data = ${lists(40_000)} WHERE id = ${eventId}`),
    );
    expect((await server.api(`/api/v1/events/${eventId}`)).body.data).toContain("nested deeper than");
  });

  test("JSON inside a text is looked over before it is parsed", async () => {
    const newOutput = lists(40_000);
    for (const text of [newOutput, Buffer.from(newOutput).toString("base64")]) {
      const { status, text: said } = await svc(
        "InjectStepOutput",
        JSON.stringify({ runId: "run_nope", stepId: "x", newOutput: text }),
      );
      expect([status, said]).toEqual([400, expect.stringContaining("new_output: must be JSON text")]);
    }
  });

  test("names that mean something to the runtime are unknown fields, and the audit sees what the handler sees", async () => {
    const inner = '{"name":"ghost","role_ids":["role_viewer"]}';
    for (const name of ["__proto__", "constructor", "prototype"]) {
      for (const [path, status] of [
        ["/api/v1/apikeys", 400],
        ["/api/v1/roles", 400],
        ["/api/v1/projects", 400],
      ] as const)
        expect([path, name, (await post(path, `{"${name}":${inner}}`)).status]).toEqual([path, name, status]);
      // Beside what is required, too.
      const beside = await post(
        "/api/v1/apikeys",
        `{"name":"k","role_ids":["role_viewer"],"${name}":{"a":1}}`,
      );
      expect([beside.status, beside.text]).toEqual([400, expect.stringContaining(`${name}: unknown field`)]);
    }
    expect(JSON.stringify((await server.api("/api/v1/apikeys")).body)).not.toContain("ghost");
  });

  test("no write over REST takes its fields by their prototype", async () => {
    const fields =
      '{"name":"ghost","role_ids":["role_viewer"],"value":"x","email":"g@example.com","password":"ghostghost"}';
    const taken: string[] = [];
    const writes = everyWay(server.running.registry).filter(
      ({ protocol, method }) => protocol === "rest" && method !== "GET" && method !== "DELETE",
    );
    expect(writes.length).toBeGreaterThan(30);
    for (const { operation, method, path } of writes) {
      const at = path.replace(/\{\w+(\.\.\.)?\}/g, "nobody");
      const { status, text } = await post(at, `{"__proto__":${fields}}`, method);
      // Reads nothing of its body.
      if (operation.name === "auth.logout") continue;
      // The body is the document, whatever its names: it is kept as it came.
      if (operation.name === "config.put") {
        const kept = await fetch(server.url + at, {
          headers: { authorization: `Bearer ${server.adminKey}` },
        });
        expect([status, await kept.text()]).toEqual([
          200,
          expect.stringContaining('{"__proto__":{"name":"ghost"'),
        ]);
        continue;
      }
      // Workers may send more than is known.
      const isWorkers = operation.name.startsWith("workers.") && status < 500;
      if (!isWorkers && (status < 400 || status >= 500)) taken.push(`${operation.name}: ${status} ${text}`);
    }
    expect(taken).toEqual([]);
  });

  test("null is a payload, over every spelling", async () => {
    for (const body of [
      '"data":null',
      '"dataValue":null',
      '"data_value":null',
      '"data":null,"data_value":null',
    ]) {
      const { text } = await svc("Emit", `{"event":"null.ev",${body}}`);
      const { eventId } = JSON.parse(text);
      expect((await server.api(`/api/v1/events/${eventId}`)).body.data).toBeNull();
    }
    const twin = JSON.parse((await svc("Emit", '{"event":"null.ev","data":null,"data_value":5}')).text);
    expect((await server.api(`/api/v1/events/${twin.eventId}`)).body.data).toBe(5);
  });

  test("bytes that are no UTF-8 are refused, not stored as another text", async () => {
    const body = Buffer.concat([
      Buffer.from('{"event":"bytes.ev","data":"'),
      Buffer.from([0xff, 0xc0]),
      Buffer.from('"}'),
    ]);
    const answer = await fetch(`${server.url}/svc.v1.SvcService/Emit`, {
      method: "POST",
      headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" },
      body,
    });
    expect([answer.status, await answer.text()]).toEqual([400, expect.stringContaining("not UTF-8")]);
  });

  test("a client that cuts its upload, or sends pieces that are none, is no defect of ours", async () => {
    const { hostname, port } = new URL(server.url);
    const before = errors.length;
    for (const path of ["/svc.v1.SvcService/Emit", "/api/v1/projects"])
      for (const rest of ['5\r\n{"eve\r\nzz\r\nnonsense\r\n\r\n', '5\r\n{"eve\r\n'])
        for (const type of ["application/json", "application/proto"]) {
          const socket = connect(Number(port), hostname);
          let said = "";
          socket.on("data", (bytes) => {
            said += String(bytes);
          });
          socket.on("error", () => {});
          const over = new Promise<void>((done) => socket.once("close", () => done()));
          socket.write(
            `POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${server.adminKey}\r\nContent-Type: ${type}\r\nTransfer-Encoding: chunked\r\n\r\n${rest}`,
          );
          // Half-closed, it ends as the server answers or gives up; either way it has read what there is.
          socket.end();
          await over;
          expect(said).not.toContain(" 500 ");
        }
    expect(errors.slice(before)).toEqual([]);
  });
});

describe("fields that the server does not know", () => {
  const unknown = (server: TestServer) => ({
    emit: () => server.rpc("SvcService", "Emit", { event: "odd.ev", colour: 1 }),
    batch: () => server.rpc("SvcService", "TriggerBatch", { events: [{ event: "odd.ev", colour: 1 }] }),
    list: () => server.rpc("SvcService", "ListRuns", { colour: 1 }),
    register: () =>
      server.api("/api/v1/workers/odd/register", {
        body: { function_ids: ["odd"], version: { sdk: "1", os: "x" } },
      }),
  });

  test("are passed over, counted, and named once in the debug log; writes of access refuse them", async () => {
    const told: unknown[] = [];
    const log = {
      ...silentLog,
      debug: (event: string, fields?: object) => event === "request.unknown_field" && void told.push(fields),
    };
    const server = await startTestServer({
      engine: "libsql",
      log: log as never,
      settings: { metricsEnabled: true },
    });
    try {
      for (let times = 0; times < 2; times++)
        for (const [name, call] of Object.entries(unknown(server)))
          expect([name, (await call()).status]).toEqual([name, 200]);
      expect(told).toEqual([
        { operation: "events.emit", field: "colour" },
        { operation: "events.emitBatch", field: "events[0].colour" },
        { operation: "runs.list", field: "colour" },
        { operation: "workers.register", field: "version.os" },
      ]);
      const metrics = await (await fetch(server.running.metricsUrl!)).text();
      expect(metrics).toContain('svc_unknown_fields_total{operation="events.emit"} 2');
      const body = { name: "k", role_ids: ["role_viewer"], expires_inn: "1h" };
      expect((await server.api("/api/v1/apikeys", { body })).body.message).toBe("expires_inn: unknown field");
    } finally {
      await server.stop();
    }
  });

  test("are neither the environment nor the token of a query, on any route", async () => {
    const server = await startTestServer({ engine: "libsql" });
    const ways = everyWay(server.running.registry).filter(
      ({ protocol, method }) => protocol === "rest" && method === "GET",
    );
    const query = `?env=${server.env}&token=${server.adminKey}`;
    try {
      const refused: string[] = [];
      let answered = 0;
      for (const way of ways) {
        const { status, text } = await go(server.url, way, { headers: {}, query });
        if (status === 200) answered++;
        if (text.includes("unknown field")) refused.push(`${way.path}: ${text}`);
      }
      expect(refused).toEqual([]);
      expect(answered).toBeGreaterThan(30);
    } finally {
      await server.stop();
    }
  });

  test("a misspelt field that would do more than was asked is refused on each protocol, and nothing is begun", async () => {
    const server = await startTestServer({ engine: "libsql" });
    const overWeb = async (service: string, method: string, body: object) => {
      const json = Buffer.from(JSON.stringify(body));
      const frame = Buffer.concat([Buffer.alloc(5), json]);
      frame.writeUInt32BE(json.length, 1);
      const headers = {
        authorization: `Bearer ${server.adminKey}`,
        "content-type": "application/grpc-web+json",
      };
      const path = `${server.url}/svc.v1.${service}/${method}`;
      const answer = await fetch(path, { method: "POST", headers, body: frame });
      return `${answer.headers.get("grpc-status")} ${answer.headers.get("grpc-message")} ${await answer.text()}`;
    };
    const repair = { action: "cancel", filter: { functionId: "odd", statusses: ["failed"] } };
    const endpoint = { name: "odd", url: "https://odd.example/", pattern: "odd.*", filters: "false" };
    const replay = { functionId: "odd", events: { pattern: "odd.ev", untill: "2026-01-01T00:00:00Z" } };
    try {
      for (const [service, method, asked, name] of [
        ["RepairService", "PreviewRepair", repair, "filter.statusses"],
        ["RepairService", "StartRepair", repair, "filter.statusses"],
        ["RepairService", "PreviewReplay", replay, "events.untill"],
        ["RepairService", "StartReplay", replay, "events.untill"],
        ["ProjectionService", "RebuildProjection", { name: "odd", partitionKey: "one" }, "partitionKey"],
        ["WebhookService", "CreateWebhookSource", { eventPrefix: "odd", secret: "one" }, "secret"],
        ["WebhookEndpointService", "CreateWebhookEndpoint", endpoint, "filters"],
        ["EntityStreamService", "DeleteStream", { entityId: "odd", purged: true }, "purged"],
      ] as const) {
        const { status, body } = await server.rpc(service, method, asked);
        expect([method, status, body.message]).toEqual([method, 400, `${name}: unknown field`]);
        expect(await overWeb(service, method, asked)).toMatch(
          new RegExp(`3.*${name.split(".").at(-1)}`, "s"),
        );
      }
      expect((await server.rpc("RepairService", "ListRepairs", { colour: 1 })).status).toBe(400);
      expect((await server.rpc("RepairService", "ListRepairs", {})).body.repairs ?? []).toEqual([]);
    } finally {
      await server.stop();
    }
  });

  test("are refused where the server is told to; our own worker sends none", async () => {
    const server = await startTestServer({
      engine: "libsql",
      settings: { strictInput: true, leaseMs: 60_000 },
    });
    try {
      for (const [name, call] of Object.entries(unknown(server))) {
        const { status, body } = await call();
        expect([name, status, body.message]).toEqual([
          name,
          400,
          expect.stringMatching(/(colour|os): unknown field$/),
        ]);
      }
      for (const transport of ["rest", "stream"] as const) {
        const id = `strict.${transport}`;
        const one = createFunction({ id, triggers: [{ event: `${id}.ev` }] }, async ({ step }) => {
          await step.run("one", () => 1);
          await step.sleep("nap", 10);
          return "done";
        });
        const worker = createWorker({
          url: server.url,
          apiKey: server.adminKey,
          transport,
          handleSignals: false,
          functions: [one],
        });
        await worker.start();
        const { runIds } = (await server.rpc("SvcService", "Emit", { event: `${id}.ev` })).body;
        await until(
          async () =>
            (await server.rpc("SvcService", "GetRun", { id: runIds[0] })).body.status ===
            "RUN_STATUS_COMPLETED",
          {
            about: `the end over ${transport}`,
          },
        );
        worker.stop();
        await worker.closed;
      }
    } finally {
      await server.stop();
    }
  });
});
