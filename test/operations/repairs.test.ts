import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { createClient, createFunction, createWorker, type Worker } from "../../src/sdk/index.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

interface Counts {
  pending: number;
  done: number;
  over: number;
  refused: number;
  failed: number;
  undone: number;
}
interface Repair {
  id: string;
  status: string;
  phase: string;
  note: string;
  counts: Counts;
  started_by: string;
  reason: string;
}

const none: Counts = { pending: 0, done: 0, over: 0, refused: 0, failed: 0, undone: 0 };

describe.each(engines)("repairs on %s", (engine) => {
  let server: TestServer;
  let worker: Worker;
  let isBroken = true;
  const handled = new Map<string, number>();

  const charge = createFunction(
    { id: "repair-charge", triggers: [{ event: "repair.charge" }], retry: { maxAttempts: 1 } },
    async ({ step, run }) => {
      const price = await step.run("price", () => 5);
      if (isBroken) throw new Error("the provider is away");
      handled.set(run.id, (handled.get(run.id) ?? 0) + 1);
      return price;
    },
  );
  const sleeper = createFunction(
    { id: "repair-sleeper", triggers: [{ event: "repair.sleep" }] },
    async ({ step }) => {
      await step.sleep("long", "1h");
    },
  );

  beforeAll(async () => {
    server = await startTestServer({ engine });
    worker = createWorker({ url: server.url, apiKey: server.adminKey, functions: [charge, sleeper] });
    await worker.start();
  }, 120_000);
  afterAll(async () => {
    await worker?.stop();
    await server?.stop();
  });

  const emitted = async (event: string, many: number): Promise<string[]> => {
    const client = createClient({ url: server.url, apiKey: server.adminKey });
    const answers = await Promise.all(Array.from({ length: many }, () => client.emit(event, {})));
    return answers.flatMap(({ runIds }) => runIds);
  };
  const statusOf = async (runId: string) =>
    (await server.rpc("SvcService", "GetRun", { id: runId })).body.status as string;
  const all = (runIds: readonly string[], status: string) =>
    until(
      async () =>
        (await Promise.all(runIds.map(statusOf))).every((one) => one === `RUN_STATUS_${status}`) || undefined,
      { about: `every run ${status}`, deadlineMs: 20_000 },
    );
  const failedRuns = async (many: number) => {
    isBroken = true;
    const runIds = await emitted("repair.charge", many);
    await all(runIds, "FAILED");
    isBroken = false;
    return runIds;
  };
  const start = async (body: object, key?: string) => {
    const answer = await server.api("/api/v1/repairs", { body, ...(key !== undefined && { key }) });
    expect(answer).toMatchObject({ status: 201 });
    return answer.body as Repair;
  };
  const over = (id: string) =>
    until(
      async () => {
        const { body } = await server.api(`/api/v1/repairs/${id}`);
        return body.ended_at !== undefined && (body as Repair);
      },
      // It rests after each run for as long as that took.
      { about: "the end of the repair", deadlineMs: 55_000 },
    );

  test("failed runs are counted beforehand and go on once each, and the record adds up", async () => {
    const runIds = await failedRuns(25);
    const filter = { function_id: "repair-charge" };
    const preview = await server.api("/api/v1/repairs/preview", { body: { action: "resume", filter } });
    expect(preview.body).toMatchObject({ total_count: 25, truncated: false, by_status: { failed: 25 } });
    expect(preview.body.samples).toHaveLength(10);
    expect(preview.body.samples[0]).toMatchObject({ function_id: "repair-charge", status: "failed" });

    const begun = await start({ action: "resume", filter, reason: "the provider is back" });
    expect(begun).toMatchObject({ status: "running", phase: "select", reason: "the provider is back" });
    expect(await over(begun.id)).toMatchObject({ status: "completed", counts: { ...none, done: 25 } });
    await all(runIds, "COMPLETED");
    expect(runIds.map((id) => handled.get(id))).toEqual(runIds.map(() => 1));

    const seen: string[] = [];
    let cursor = "";
    do {
      const { body } = await server.api(
        `/api/v1/repairs/${begun.id}/items?outcome=done&limit=10&cursor=${cursor}`,
      );
      seen.push(...body.items.map(({ run_id }: { run_id: string }) => run_id));
      cursor = body.next_cursor;
    } while (cursor !== "");
    expect(seen.toSorted()).toEqual(runIds.toSorted());
    const history = await server.running.domain.store.all<{ detail: string }>(
      sql`SELECT detail FROM run_history WHERE run_id = ${runIds[0]!} AND type = 'run.resumed'`,
    );
    expect(history.map(({ detail }) => JSON.parse(detail).actor_id)).toEqual([begun.id]);
    const { body: page } = await server.api("/api/v1/repairs?limit=1");
    expect(page.repairs).toHaveLength(1);
  });

  test("a repair is paused, goes on and is stopped; what ended by itself and what had not begun is told", async () => {
    const runIds = await emitted("repair.sleep", 60);
    await all(runIds, "PAUSED");
    const begun = await start({ action: "cancel", filter: { function_id: "repair-sleeper" } });
    await until(
      async () => {
        const { counts } = (await server.api(`/api/v1/repairs/${begun.id}`)).body as Repair;
        return counts.done > 0;
      },
      { about: "the first cancelled run", everyMs: 5 },
    );
    const paused = (await server.api(`/api/v1/repairs/${begun.id}/pause`, { body: {} })).body as Repair;
    expect(paused.status).toBe("paused");
    const left = (await server.api(`/api/v1/repairs/${begun.id}/items?outcome=pending&limit=200`)).body.items;
    expect(left.length).toBeGreaterThan(4);
    // Up to four were under way when it was paused.
    const alone = (left as { run_id: string }[])[4];
    await server.rpc("SvcService", "CancelRun", { id: alone!.run_id });
    expect((await server.api(`/api/v1/repairs/${begun.id}/continue`, { body: {} })).body.status).toBe(
      "running",
    );
    await until(
      async () => ((await server.api(`/api/v1/repairs/${begun.id}`)).body as Repair).counts.over === 1,
      { about: "the run that ended by itself", everyMs: 5 },
    );
    await server.api(`/api/v1/repairs/${begun.id}/stop`, { body: {} });
    const ended = await over(begun.id);
    expect(ended.counts).toMatchObject({ pending: 0, over: 1, failed: 0, refused: 0 });
    expect(ended.counts.done + ended.counts.undone).toBe(59);
    const undone = (await server.api(`/api/v1/repairs/${begun.id}/items?outcome=undone&limit=200`)).body
      .items;
    expect(undone).toHaveLength(ended.counts.undone);
    const cancelled = await server.running.domain.store.all<{ detail: string }>(
      sql`SELECT h.detail FROM run_history h JOIN repair_items i ON i.run_id = h.run_id
        WHERE h.type = 'run.cancelled' AND i.repair_id = ${begun.id} AND i.outcome = 'done'`,
    );
    expect(new Set(cancelled.map(({ detail }) => JSON.parse(detail).actor_id))).toEqual(new Set([begun.id]));
    for (const { run_id } of undone) expect(await statusOf(run_id)).toBe("RUN_STATUS_PAUSED");
    const again = await server.api(`/api/v1/repairs/${begun.id}/continue`, { body: {} });
    expect(again.status).toBe(409);
    await over((await start({ action: "cancel", filter: { function_id: "repair-sleeper" } })).id);
    await all(runIds, "CANCELLED");
  });

  test("outputs are patched and runs begin again at a step by its name; a step that no run has is told", async () => {
    const runIds = await failedRuns(3);
    const filter = { function_id: "repair-charge", statuses: ["failed"] };
    const patch = { action: "patch", filter, step: "price", output_json: "7" };
    expect((await over((await start(patch)).id)).counts).toEqual({ ...none, done: 3 });
    const absent = await over((await start({ action: "rerun", filter, step: "ship" })).id);
    expect(absent.counts).toEqual({ ...none, failed: 3 });
    const { body } = await server.api(`/api/v1/repairs/${absent.id}/items`);
    expect(body.items[0]).toMatchObject({ outcome: "failed", error: expect.stringContaining("ship") });
    const resumed = await start({ action: "resume", filter: { ...filter, search: runIds[0]! } });
    expect((await over(resumed.id)).counts).toEqual({ ...none, done: 1 });
    await all([runIds[0]!], "COMPLETED");
    const client = createClient({ url: server.url, apiKey: server.adminKey });
    expect((await client.waitForRun(runIds[0]!)).output).toBe(7);
    const rerun = await over((await start({ action: "rerun", filter, step: "price" })).id);
    expect(rerun.counts).toEqual({ ...none, done: 2 });
    expect((await client.waitForRun(runIds[1]!)).output).toBe(5);
    // The other one would fail again where the next test begins before it.
    await all(runIds, "COMPLETED");
  });

  test("policies are asked for each run, and a starter who lost the right stops", async () => {
    const runIds = await failedRuns(2);
    const role = (await server.api("/api/v1/roles", { body: { name: "mender", base: "developer" } })).body;
    const policy = { name: "hands-off", effect: "deny", actions: "runs:cancel" };
    const resources = `irn:svc:*:*:run:*:${runIds[0]}`;
    const { id: policyId } = (await server.api("/api/v1/policies", { body: { ...policy, resources } })).body;
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policyId } });
    const mender = (await server.api("/api/v1/apikeys", { body: { name: "mender", role_ids: [role.id] } }))
      .body;
    const filter = { function_id: "repair-charge", statuses: ["failed"] };
    const refused = await over((await start({ action: "resume", filter }, mender.key)).id);
    expect(refused).toMatchObject({ started_by: mender.id, counts: { ...none, done: 1, refused: 1 } });

    const unseen = { name: "unseen", effect: "deny", actions: "runs:read", resources };
    const { id: unseenId } = (await server.api("/api/v1/policies", { body: unseen })).body;
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: unseenId } });
    const { key } = mender;
    const seen = (await server.api(`/api/v1/repairs/${refused.id}`, { key })).body;
    expect(seen).toMatchObject({ counts: none, note: expect.stringContaining("deny policy") });
    const { items } = (await server.api(`/api/v1/repairs/${refused.id}/items`, { key })).body;
    expect(items.map(({ run_id }: { run_id: string }) => run_id)).toEqual([runIds[1]]);

    const paused = await start({ action: "resume", filter }, mender.key);
    await server.api(`/api/v1/repairs/${paused.id}/pause`, { body: {} });
    await server.api(`/api/v1/apikeys/${mender.id}`, { method: "DELETE" });
    await server.api(`/api/v1/repairs/${paused.id}/continue`, { body: {} });
    const stopped = await over(paused.id);
    expect(stopped).toMatchObject({ status: "stopped", note: "who started it may not do this any more" });
    expect(stopped.counts.done).toBe(0);
    expect(await statusOf(runIds[0]!)).toBe("RUN_STATUS_FAILED");
  });

  test("repairs.work gives a small environment its turn beside one with much to do", async () => {
    const runIds = await emitted("repair.sleep", 60);
    await all(runIds, "PAUSED");
    const { id: small } = (await server.api("/api/v1/environments", { body: { name: "small" } })).body;
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "small", env_id: small } })).body;
    const filter = { function_id: "repair-sleeper" };
    const large = await start({ action: "cancel", filter });
    const { id } = await start({ action: "cancel", filter }, key);
    const isOver = async () =>
      (await server.api(`/api/v1/repairs/${id}`, { key })).body.ended_at !== undefined;
    await until(isOver, { about: "the small one's repair", everyMs: 5, deadlineMs: 20_000 });
    expect((await over(large.id)).counts).toEqual({ ...none, done: 60 });
    const ended = async (repair: string, who?: string) =>
      (await server.api(`/api/v1/repairs/${repair}`, { ...(who !== undefined && { key: who }) })).body
        .ended_at;
    expect((await ended(id, key)) < (await ended(large.id))).toBe(true);
  });

  test("what is wrong is named, and what is foreign is missing", async () => {
    const filter = { function_id: "repair-charge" };
    for (const [body, field] of [
      [{ action: "mend", filter }, "action"],
      [{ action: "cancel" }, "filter"],
      [{ action: "cancel", filter: {} }, "filter"],
      [{ action: "cancel", filter: { functionid: "x" } }, "functionid"],
      [{ action: "cancel", filter: { statuses: ["dreaming"] } }, "statuses"],
      [{ action: "cancel", filter: { since: "yesterday" } }, "since"],
      [{ action: "cancel", filter, step: "price" }, "step"],
      [{ action: "rerun", filter }, "step"],
      [{ action: "patch", filter, step: "price" }, "output_json"],
      [{ action: "patch", filter, step: "price", output_json: "{" }, "output_json"],
      [{ action: "cancel", filter, reason: "x".repeat(1_025) }, "reason"],
    ] as const) {
      const answer = await server.api("/api/v1/repairs", { body });
      expect({ status: answer.status, body: answer.body, field }).toMatchObject({ status: 400 });
      expect(answer.body.error).toContain(field);
    }
    // A variable that is not set must not take the runs of all functions.
    for (const [name, camel, value] of [
      ["function_id", "functionId", ""],
      ["error_group", "errorGroup", ""],
      ["since", "since", ""],
      ["event_id", "eventId", null],
      ["attributes", "attributes", []],
    ] as const) {
      const empty = { [name]: value, statuses: ["running"] };
      const answer = await server.api("/api/v1/repairs", { body: { action: "cancel", filter: empty } });
      expect(answer).toMatchObject({ status: 400, body: { field: `filter.${name}` } });
      for (const method of ["StartRepair", "PreviewRepair"]) {
        const sent = { action: "cancel", filter: { [camel]: value, statuses: ["running"] } };
        expect((await server.rpc("RepairService", method, sent)).status).toBe(400);
      }
    }
    const { body: list } = await server.api("/api/v1/repairs");
    const { id } = list.repairs[0] as Repair;
    expect((await server.api(`/api/v1/repairs/${id}/items?outcome=lost`)).status).toBe(400);
    const elsewhere = (await server.api("/api/v1/environments", { body: { name: "elsewhere" } })).body.id;
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "elsewhere", env_id: elsewhere } }))
      .body;
    for (const path of [id, `${id}/items`, "rep_unknown"])
      expect((await server.api(`/api/v1/repairs/${path}`, { key })).status).toBe(404);
    expect((await server.api(`/api/v1/repairs/${id}/stop`, { body: {}, key })).status).toBe(404);
    expect((await server.api("/api/v1/repairs", { key })).body.repairs).toEqual([]);
  });
});
