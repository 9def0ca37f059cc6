import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import {
  type AttributeValue,
  createClient,
  createFunction,
  createWorker,
  type Run,
  type Worker,
} from "../../src/sdk/index.ts";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { badDeclarations, badLists, badReports } from "./finding-input.ts";

interface Order {
  orderId: string;
  total: number;
  paidAt?: string;
  isGift?: boolean;
}

describe.each(engines)("finding runs on %s", (engine) => {
  let server: TestServer;
  let worker: Worker;
  const clientOf = (apiKey: string | null = server.adminKey) =>
    createClient({ url: server.url, apiKey: apiKey! });

  const order = createFunction<{ "find.order": Order }>(
    {
      id: "find-order",
      event: "find.order",
      attributes: { orderId: "orderId", total: { path: "total", type: "number" } },
    },
    async ({ event, run, step }) => {
      run.set({
        state: "begun",
        gone: true,
        ...(event.data.isGift !== undefined && { isGift: event.data.isGift }),
      });
      await step.sleep("pause", 1);
      if (event.data.paidAt) run.set({ paidAt: new Date(event.data.paidAt) });
      await step.run("ship", () => 1);
      run.set({ state: "shipped", gone: null, never: null });
    },
  );
  const setter = createFunction<{
    "find.set": { attributes: Record<string, AttributeValue>; many?: number };
  }>(
    { id: "find-set", event: "find.set", retry: { maxAttempts: 3, initialDelayMs: 1 } },
    async ({ event, run, step }) => {
      const { attributes, many = 0 } = event.data;
      run.set(attributes);
      await step.run("one", () => 1);
      run.set(Object.fromEntries(Array.from({ length: many }, (_, place) => [`many${place}`, place])));
    },
  );
  const failing = createFunction<{ "find.fail": { message: string; code?: string } }>(
    { id: "find-fail", event: "find.fail", retry: { maxAttempts: 1 } },
    ({ event }) => {
      throw Object.assign(new Error(event.data.message), { code: event.data.code });
    },
  );

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 200 } });
    worker = createWorker({
      ...{ url: server.url, apiKey: server.adminKey, functions: [order, setter, failing] },
      log: { debug() {}, info() {}, warn() {}, error() {} },
    });
    await worker.start();
  }, 120_000);
  afterAll(async () => {
    await worker?.stop();
    await server?.stop();
  });

  const ended = async (runId: string): Promise<Run> => clientOf().waitForRun(runId, { timeoutMs: 20_000 });
  const begin = async (event: string, data: unknown) => {
    const { runIds } = await clientOf().emit(event, data);
    return runIds[0]!;
  };
  const list = async (body: object, options: CallOptions = {}) =>
    server.rpc("SvcService", "ListRuns", body, options);
  const found = async (options: object): Promise<string[]> =>
    (await clientOf().listRuns({ functionId: "find-order", ...options })).runs.map(({ id }) => id);

  test("attributes of events and of handlers find runs, by value, range, prefix and order", async () => {
    const orders: Order[] = [
      { orderId: "a-1", total: 10, paidAt: "2026-01-01T00:00:00Z", isGift: true },
      { orderId: "a-2", total: -2.5, paidAt: "2026-02-01T00:00:00Z" },
      { orderId: "b-1", total: 1e300, isGift: false },
      { orderId: "\u202eb", total: 0 },
    ];
    const ids: string[] = [];
    for (const one of orders) ids.push(await begin("find.order", one));
    for (const id of ids) expect((await ended(id)).status).toBe("completed");
    const [first, second, third, last] = ids as [string, string, string, string];
    const run = await clientOf().getRun(first);
    expect(run.attributes).toEqual({
      orderId: "a-1",
      total: 10,
      state: "shipped",
      isGift: true,
      paidAt: new Date("2026-01-01T00:00:00Z"),
    });
    const cases: [object, string[]][] = [
      [{ attributes: { orderId: "a-1" } }, [first]],
      [{ attributes: { orderId: "\u202eb" } }, [last]],
      [{ attributes: { orderId: { prefix: "a-" } } }, [second, first]],
      [{ attributes: { total: { lt: 10 } } }, [last, second]],
      [{ attributes: { total: { gte: -2.5, lte: 10 }, orderId: { prefix: "a" } } }, [second, first]],
      [{ attributes: { paidAt: { gt: new Date("2026-01-15T00:00:00Z") } } }, [second]],
      [{ attributes: { isGift: { exists: true } } }, [third, first]],
      [{ attributes: { isGift: false } }, [third]],
      [{ attributes: { state: "shipped" } }, [...ids].reverse()],
      [{ attributes: { state: "begun" } }, []],
      [{ attributes: { gone: true } }, []],
      [{ attributes: { never: "set" } }, []],
      [{ orderBy: { name: "total" } }, [third, first, last, second]],
      [
        { orderBy: { name: "total", ascending: true }, attributes: { total: { gt: -1 } } },
        [last, first, third],
      ],
      [
        { orderBy: { name: "orderId", ascending: true }, attributes: { paidAt: { exists: true } } },
        [first, second],
      ],
      [{ attributes: { state: "shipped" }, statuses: ["failed"] }, []],
    ];
    for (const [options, expected] of cases)
      expect([options, await found(options)]).toEqual([options, expected]);

    // Page by page.
    for (const options of [
      { orderBy: { name: "total" } },
      { orderBy: { name: "total", ascending: true } },
      { attributes: { state: "shipped" } },
      { attributes: { total: { gt: -100 }, state: { exists: true } as const } },
    ]) {
      const whole = await found(options);
      const pages: string[] = [];
      let cursor: string | undefined;
      do {
        const page = await clientOf().listRuns({
          ...{ functionId: "find-order", limit: 1, ...options },
          ...(cursor !== undefined && { cursor }),
        });
        expect(page.totalCount).toBe(4);
        pages.push(...page.runs.map(({ id }) => id));
        cursor = page.nextCursor;
      } while (cursor !== undefined && pages.length < 10);
      expect(pages).toEqual(whole);
    }
  });

  test("a value of another type is told, and its run begins", async () => {
    const emitted = await clientOf().emit("find.order", { orderId: "c-1", total: "much" });
    expect(emitted.notices).toEqual([
      {
        functionId: "find-order",
        option: "attributes",
        outcome: "failed",
        message: "attribute total: the value at total must be a number",
      },
    ]);
    expect((await ended(emitted.runIds[0]!)).attributes).toEqual({ orderId: "c-1", state: "shipped" });
    const { body } = await server.rpc("SvcService", "RegisterFunction", {
      id: "find-other",
      attributes: [{ name: "total", path: "x", type: "text" }],
    });
    expect(body).toMatchObject({
      code: "invalid_argument",
      message: "attributes.total: attribute total is a number in this environment, not a text",
    });
  });

  test("what a handler cannot set fails its run at once, with the reason", async () => {
    const failed = async (attributes: object, many?: number) => {
      const run = await ended(await begin("find.set", { attributes, ...(many !== undefined && { many }) }));
      expect([attributes, run.status, run.attempt]).toEqual([attributes, "failed", 1]);
      expect(run.error!.code).toBe("ATTRIBUTE_REFUSED");
      return run.error!.message;
    };
    expect(await failed({ total: "text" })).toContain("is a number in this environment, not a text");
    expect(await failed({ "no name": 1 })).toContain("letters, digits");
    expect(await failed({ list: [1] })).toContain("must be a text");
    expect(await failed({ long: "x".repeat(257) })).toContain("256 bytes");
    expect(await failed({ zero: "a\0b" })).toContain("NUL");
    expect(await failed({ fits: 1 }, 32)).toContain("at most 32");
    expect((await ended(await begin("find.set", { attributes: { constructor: "x", fits: 2 } }))).status).toBe(
      "completed",
    );
  });

  test("a report with attributes that no SDK would send is refused by its field", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "find-raw", triggers: [{ event: "find.raw" }] });
    const api = (path: string, body: unknown, method = "POST") =>
      server.api(`/api/v1/workers/raw${path}`, { method, body });
    await api("/register", { function_ids: ["find-raw"] });
    const runId = await begin("find.raw", {});
    const job = (await server.api("/api/v1/workers/raw/jobs?available=1")).body.jobs[0];
    const report = (attributes: unknown) => {
      const { execution_seq, lease_token } = job;
      return api(
        `/jobs/${job.job_id}`,
        { execution_seq, lease_token, status: "progress", attributes },
        "PUT",
      );
    };
    for (const attributes of badReports) {
      const answer = await report(attributes);
      expect([attributes, answer.status]).toEqual([attributes, 400]);
      expect(JSON.stringify(answer.body)).toContain("attributes");
    }
    // Two reports, one after the other: together they are too many.
    const twenty = (letter: string) =>
      Object.fromEntries(
        Array(20)
          .fill(0)
          .map((_, at) => [`${letter}${at}`, at]),
      );
    expect((await report(twenty("x"))).status).toBe(200);
    expect((await report(twenty("x"))).status).toBe(200);
    await report(twenty("y"));
    const run = await ended(runId);
    expect([run.status, run.error?.code]).toEqual(["failed", "ATTRIBUTE_REFUSED"]);
    expect(Object.keys(run.attributes!).length).toBe(20);
  });

  test("what is wrong in a list is named", async () => {
    for (const [body, said] of badLists) {
      const answer = await list(body);
      expect([body, answer.status]).toEqual([body, 400]);
      expect(answer.body.message).toContain(said);
    }
    for (const attributes of badDeclarations) {
      const { status, body } = await server.rpc("SvcService", "RegisterFunction", {
        id: "find-bad",
        attributes,
      });
      expect([attributes, status]).toEqual([attributes, 400]);
      expect(body.message).toContain("attributes");
    }
  });

  test("failures that look alike are one group, counted exactly", async () => {
    const client = clientOf();
    const messages = [
      'order "a-1" of run_01jabcdefgh has 3 items, charged 12.50',
      'order "b-22" of run_01jqrstuvwx has 40 items, charged 7',
      "order 'c' of run_01jqrst1234 has 1 items, charged 0",
      "the provider is away",
    ];
    const ids: string[] = [];
    for (const message of messages) ids.push(await begin("find.fail", { message, code: "CHARGE" }));
    const runs = await Promise.all(ids.map(ended));
    const { groups } = await client.errors.list({ functionId: "find-fail" });
    const alike = groups.find(({ count }) => count === 3)!;
    expect(groups.map(({ count }) => count).sort()).toEqual([1, 3]);
    expect(alike).toMatchObject({ code: "CHARGE", message: 'order "…" of # has # items, charged #' });
    expect(alike.frame).toContain("finding.test.ts");
    expect(runs.map(({ errorGroup }) => errorGroup)).toEqual([
      ...Array(3).fill(alike.id),
      groups.find(({ count }) => count === 1)!.id,
    ]);
    expect(ids.slice(0, 3)).toContain(alike.sampleRunId);
    expect((await client.listRuns({ errorGroup: alike.id })).runs.map(({ id }) => id)).toEqual(
      ids.slice(0, 3).reverse(),
    );
    expect(await client.errors.get(alike.id)).toEqual(alike);
    const page = await client.errors.list({ functionId: "find-fail", limit: 1 });
    const next = await client.errors.list({ functionId: "find-fail", cursor: page.nextCursor });
    expect([...page.groups, ...next.groups]).toEqual(groups);

    // Resumed, it belongs to no group until it fails again: the count says how often it failed.
    await client.resumeRun(ids[0]!);
    await until(async () => ((await client.errors.get(alike.id)).count === 4 ? true : undefined), {
      about: "the second failure",
      deadlineMs: 20_000,
    });
    // A run that its timeout ends is counted too.
    await server.rpc("SvcService", "RegisterFunction", {
      id: "find-slow",
      triggers: [{ event: "find.slow" }],
      timeoutMs: 1,
    });
    const slow = await ended(await begin("find.slow", {}));
    expect((await client.errors.get(slow.errorGroup!)).count).toBe(1);
    const { body } = await server.api("/api/v1/integrity");
    expect(JSON.stringify(body)).toContain("errors.miscounted");
    await server.running.tick("integrity.look");
    expect((await server.api("/api/v1/errors/err_unknown")).status).toBe(404);
  });

  test("a repair selects by attributes, by a group of failures and by what was not undone", async () => {
    const ids = [
      await begin("find.fail", { message: "for repair" }),
      await begin("find.fail", { message: "other" }),
    ];
    const [run] = await Promise.all(ids.map(ended));
    const preview = (filter: object) =>
      server.api("/api/v1/repairs/preview", { body: { action: "resume", filter } });
    expect((await preview({ error_group: run!.errorGroup })).body).toMatchObject({
      total_count: 1,
      samples: [{ run_id: ids[0] }],
    });
    expect((await preview({ function_id: "find-fail", compensation_failed: true })).body.total_count).toBe(0);
    const byOrder = { attributes: [{ name: "orderId", text: "a-1" }], statuses: ["completed"] };
    expect((await preview(byOrder)).body.total_count).toBe(1);
    const byTotal = { attributes: [{ name: "total", op: "gte", number: 0 }], statuses: ["completed"] };
    expect((await preview(byTotal)).body.total_count).toBe(3);
    const wrong = await preview({ attributes: [{ name: "total", text: "x" }] });
    expect([wrong.status, wrong.body.error]).toEqual([
      400,
      "attributes: attribute total is a number in this environment, not a text",
    ]);
    const { repairs } = clientOf();
    const begun = await repairs.start("cancel", {
      filter: { attributes: { orderId: { prefix: "nothing" } } },
    });
    const over = await until(
      async () => {
        const { endedAt, counts } = await repairs.get(begun.id);
        return endedAt === undefined ? undefined : counts;
      },
      { about: "the repair", deadlineMs: 20_000 },
    );
    expect(over.done).toBe(0);
  });

  test("who may not see a run sees neither its attributes nor its failures; another environment sees none", async () => {
    const runId = await begin("find.fail", { message: "hidden from some" });
    const group = (await ended(runId)).errorGroup!;
    const role = (await server.api("/api/v1/roles", { body: { name: "find-role", base: "viewer" } })).body;
    const policy = { name: "find-hides", effect: "deny", actions: "runs:read" };
    const resources = `irn:svc:*:*:run:*:${runId}`;
    const { id: policyId } = (await server.api("/api/v1/policies", { body: { ...policy, resources } })).body;
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policyId } });
    const { key } = (
      await server.api("/api/v1/apikeys", { body: { name: "find-seer", role_ids: [role.id] } })
    ).body;
    await until(
      async () => ((await server.api(`/api/v1/errors/${group}`, { key })).status === 404 ? true : undefined),
      { about: "the policy", deadlineMs: 20_000 },
    );
    const client = clientOf(key);
    expect((await client.listRuns({ errorGroup: group })).runs).toEqual([]);
    const { groups } = await client.errors.list({ functionId: "find-fail" });
    expect(groups.length).toBeGreaterThan(0);
    expect(groups.some(({ id, count }) => id === group || count > 0)).toBe(false);

    const { id } = (await server.api("/api/v1/environments", { body: { name: "find-elsewhere" } })).body;
    const other = (await server.api("/api/v1/apikeys", { body: { name: "find-elsewhere", env_id: id } })).body
      .key;
    expect((await server.api("/api/v1/errors", { key: other })).body.groups).toEqual([]);
    expect((await server.api(`/api/v1/errors/${group}`, { key: other })).status).toBe(404);
    const elsewhere = await list({ attributes: [{ name: "orderId", text: "a-1" }] }, { key: other });
    expect(elsewhere.body.runs ?? []).toEqual([]);
    // The same name may have another type there.
    const registered = await server.rpc(
      "SvcService",
      "RegisterFunction",
      { id: "find-order", attributes: [{ name: "total", type: "text" }] },
      { key: other },
    );
    expect(registered.status).toBe(200);
    const many = (part: number) =>
      server.rpc(
        "SvcService",
        "RegisterFunction",
        {
          id: `find-${part}`,
          attributes: Array.from({ length: 32 }, (_, at) => ({ name: `a${part}.${at}` })),
        },
        { key: other },
      );
    for (let part = 0; part < 6; part++) expect((await many(part)).status).toBe(200);
    expect((await many(6)).body.message).toBe("at most 200 names of attributes in one environment");
    expect((await many(5)).status).toBe(200);
  });

  test("a run takes its attributes and the last of a group takes the group", async () => {
    const { store } = server.running.domain;
    const day = 86_400_000;
    const past = sql.bigint(Date.now() - 200 * day);
    await store.write(async (session) => {
      await session.run(
        sql`UPDATE runs SET created_at = ${past}, ended_at = ${past} WHERE status <> 'active'`,
      );
      await session.run(sql`UPDATE error_groups SET last_seen_at = ${past}`);
    });
    await server.running.tick("runs.expire");
    const left = async (table: string) =>
      (await store.one<{ n: number }>(sql`SELECT count(*) AS n FROM ${sql.raw(table)}`))!.n;
    expect(Number(await left("run_attributes"))).toBe(0);
    expect(Number(await left("error_groups"))).toBe(0);
  });
});
