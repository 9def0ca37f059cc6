import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { pullWorker, stepIdOf } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { lookerKey } from "../support/thing-doors.ts";
import { until } from "../support/until.ts";

interface ListedRun {
  eventName: string;
  attributes?: { name: string }[];
}

/** What `test/contract/thing-doors.test.ts` does not walk: what becomes of a thing that a door keeps back. */
describe.each(engines)("what a policy hides, on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 300 } });
  });
  afterAll(() => server.stop());

  const ofStream = { actions: "streams:read", resources: "stream:*:vip" };
  const append = (entityId: string, eventName: string, key?: string) =>
    server.rpc(
      "EntityStreamService",
      "AppendEvent",
      { entityId, entityType: "customer", eventName, expectedVersion: -1, data: { n: 1 } },
      key === undefined ? {} : { key },
    );
  const workerAs = (key: string, id: string) =>
    pullWorker({ api: (path, options) => server.api(path, { ...options, key }) }, id);
  const runOf = async (id: string) => (await server.rpc("SvcService", "GetRun", { id })).body;

  test("a job goes to another worker; while there is none the run says that a policy is the cause", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "greets", triggers: [{ event: "vip.came" }] });
    const { key } = await lookerKey(server, "job", ofStream);
    const denied = workerAs(key, "denied");
    expect((await denied.register("greets")).status).toBe(200);
    await append("open", "vip.came");
    const [open] = await denied.poll(5);
    expect(open?.function_id).toBe("greets");
    const { eventId } = (await append("vip", "vip.came")).body;
    expect(await denied.poll(5)).toEqual([]);
    const { runs } = (await server.rpc("SvcService", "ListRuns", { eventId })).body;
    await until(async () => (await runOf(runs[0].id)).blockingCause === "policy", { about: "the cause" });
    expect(await runOf(runs[0].id)).toMatchObject({ blockingReason: "no_worker", blockingCause: "policy" });
    const allowed = workerAs(server.adminKey!, "allowed");
    await allowed.register("greets");
    const got = await until(async () => (await allowed.poll(1))[0], { about: "the job elsewhere" });
    expect(got.run_id).toBe(runs[0].id);
    expect((await runOf(runs[0].id)).blockingCause ?? "").toBe("");
  });

  test("an event is not waited for: what ends a wait is handed over, and may be of any stream", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "waits", triggers: [] });
    for (const [name, policy] of [
      ["wait-stream", ofStream],
      ["wait-event", { actions: "events:subscribe", resources: "event:*:secret.*" }],
    ] as const) {
      const { key } = await lookerKey(server, name, policy);
      const worker = workerAs(key, name);
      await worker.register("waits");
      const { body } = await server.rpc("SvcService", "InvokeFunction", { functionId: "waits" });
      const [job] = await worker.poll();
      const event_filter = { event: "secret.told", match: "true" };
      await worker.leave(job!, "wait", { type: "wait_for_event", event_filter });
      const run = await runOf(body.runId);
      expect(run.error).toMatchObject({ code: "WAIT_REFUSED" });
    }
  });

  test("frames of runs end with a policy that is made meanwhile, and go on for others", async () => {
    const looker = await lookerKey(server, "late");
    const socket = await openSocket(server.url, { key: looker.key });
    const other = await openSocket(server.url, { key: server.adminKey! });
    for (const each of [socket, other]) expect((await each.subscribe("system.run.>")).status).toBe("ok");
    await server.rpc("SvcService", "RegisterFunction", { id: "told", triggers: [] });
    const invoke = async () =>
      (await server.rpc("SvcService", "InvokeFunction", { functionId: "told" })).body.runId as string;
    const before = await invoke();
    await until(() => [socket, other].every(({ texts }) => texts.some((text) => text.includes(before))), {
      about: "both are told",
    });
    await looker.deny({ actions: "runs:*", resources: "*:*:*" });
    for (let tick = 0; tick < 2; tick++) await server.running.tick("edge.standing");
    const after = await invoke();
    await until(() => other.texts.some((text) => text.includes(after)), { about: "the other is told" });
    expect(await socket.subscribe(`system.run.${after}.>`)).toMatchObject({ code: "PERMISSION_DENIED" });
    expect(socket.texts.filter((text) => text.includes(after) && text.includes('"event"'))).toEqual([]);
    for (const each of [socket, other]) each.close();
  });

  test("names of events keep no count, and a pattern that names the stream is refused", async () => {
    const { key } = await lookerKey(server, "names", ofStream);
    await append("vip", "vip.went");
    const { body } = await server.api("/api/v1/events/names", { key });
    expect(body.names.find(({ name }: { name: string }) => name === "vip.went")).toMatchObject({ count: 0 });
    const socket = await openSocket(server.url, { key });
    expect(await socket.subscribe("entity:customer.vip.>")).toMatchObject({ code: "PERMISSION_DENIED" });
    expect((await socket.subscribe("entity:customer.*.>")).status).toBe("ok");
    socket.close();
  });

  test("runs are not found by what a hidden event gave them", async () => {
    const { key } = await lookerKey(server, "pay", {
      actions: "events:subscribe",
      resources: "event:*:pay.*",
    });
    const id = "tagged";
    const attributes = [{ name: "amount", type: "number" }];
    const triggers = [{ event: "pay.due" }, { event: "bill.due" }];
    await server.rpc("SvcService", "RegisterFunction", { id, triggers, attributes });
    for (const { event } of triggers) await server.rpc("SvcService", "Emit", { event, data: { amount: 7 } });
    const list = async (more: object, asked = {}) => {
      const { body } = await server.rpc("SvcService", "ListRuns", { functionId: id, ...more }, asked);
      const runs = (body.runs as ListedRun[]).map(({ eventName, attributes: [found] = [] }) => [
        eventName,
        found,
      ]);
      return { runs, totalCount: body.totalCount };
    };
    const byAmount = { attributes: [{ name: "amount", op: "gte", number: 5 }] };
    expect((await list(byAmount)).runs).toHaveLength(2);
    const open = [["bill.due", { name: "amount", number: 7 }]];
    for (const more of [byAmount, { orderBy: { name: "amount" } }])
      expect(await list(more, { key })).toEqual({ runs: open, totalCount: 1 });
    expect((await list({}, { key })).runs).toEqual([...open, ["pay.due", undefined]]);
    const preview = async (filter: object) =>
      (await server.api("/api/v1/repairs/preview", { body: { action: "cancel", filter }, key })).status;
    expect([await preview(byAmount), await preview({ function_id: id })]).toEqual([403, 200]);
  });

  test("one run is left out of the trail, and none of its steps is patched", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "steps", triggers: [] });
    const worker = workerAs(server.adminKey!, "steps");
    await worker.register("steps");
    for (let count = 0; count < 2; count++)
      await server.rpc("SvcService", "InvokeFunction", { functionId: "steps" });
    const jobs = await worker.poll(2);
    for (const job of jobs) {
      const step = { id: stepIdOf(job, "one"), name: "one", type: "invoke", status: "completed", output: 1 };
      await worker.report(job, { status: "completed", steps: [step], step_offset: 0, output: null });
    }
    const [hidden, open] = jobs.map((job) => job.run_id) as [string, string];
    const { key } = await lookerKey(server, "run", { actions: "runs:*", resources: `run:*:${hidden}` });
    const trail = async (query: string, asked = {}) => {
      const { body } = await server.api(`/api/v1/audit?limit=200${query}`, asked);
      const ids = body.events.map(({ run_id }: { run_id: string }) => run_id) as string[];
      return { has: [hidden, open].map((id) => ids.includes(id)), cursor: body.next_cursor };
    };
    expect((await trail("")).has).toEqual([true, true]);
    expect(await trail("", { key })).toEqual({ has: [false, true], cursor: "" });
    expect((await trail(`&run_id=${hidden}`, { key })).has).toEqual([false, false]);
    const patch = async (run_id: string) =>
      (
        await server.rpc(
          "SvcService",
          "PatchStep",
          { stepId: stepIdOf({ run_id }, "one"), output: 2 },
          { key },
        )
      ).status;
    expect([await patch(hidden), await patch(open)]).toEqual([403, 200]);
  });

  test("an export of sections that would show anything of it is refused, in whatever environment", async () => {
    const { key } = await lookerKey(
      server,
      "export",
      { ...ofStream, resources: "stream:production:vip" },
      "admin",
    );
    const statusOf = async (query: string) => {
      const headers = { authorization: `Bearer ${key}` };
      const answer = await fetch(`${server.url}/api/v1/export${query}`, { headers });
      await answer.text();
      return answer.status;
    };
    expect(await statusOf("")).toBe(403);
    expect(await statusOf("?include=events")).toBe(403);
    expect(await statusOf("?include=functions,roles")).toBe(200);
  });
});
