import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { openPlatformAudit } from "../../src/domain/access/platform/audit.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { plant } from "../support/plant.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const looksMax = 10_000;
const planted = 12_050;
const rare = 3;
const hour = 3_600_000;

// What matches lies behind the first 10,000 rows: a page that looks no further is empty, says so, and goes on.
describe.each(engines)("lists with a filter that no index serves on %s", (engine) => {
  let server: TestServer;
  let sourceId: string;
  /** When the oldest row was written. */
  const since = Date.now() - hour;

  beforeAll(async () => {
    server = await startTestServer({ engine });
    const { store } = server.running.domain;
    const found = await store.one<{ org_id: string }>(
      sql`SELECT org_id FROM environments WHERE id = 'env_default'`,
    );
    const org = `'${found!.org_id}'`;
    const padded = (prefix: string) => `'${prefix}' || substr(CAST(100000000 + n AS TEXT), 2)`;
    const isRare = `n <= ${rare}`;
    const at = `${since} + n`;
    const own = { environment_id: "'env_default'" };
    await plant(store, "events", planted, {
      ...{ ...own, position: "1000000 + n", id: padded("evt_0"), version: "1", data: "'{}'", at },
      ...{ name: "'busy.event'", source: `CASE WHEN ${isRare} THEN 'cron' ELSE 'api' END` },
    });
    await plant(store, "auth_audit", planted, {
      ...{ ...own, org_id: org, sequence: "1000000 + n", id: padded("aud_0"), at, allowed: "1" },
      ...{ event_type: "'call'", caller_id: "'ak_busy'", roles: "'[]'" },
      action: `CASE WHEN ${isRare} THEN 'rare:done' ELSE 'busy:done' END`,
    });
    await plant(store, "platform_audit", planted, {
      ...{ id: padded("pae_0"), platform_key_id: "'ak_busy'", payload: "'{}'", created_at: at },
      event_type: `CASE WHEN ${isRare} THEN 'platform.key.created' ELSE 'platform.impersonated' END`,
    });
    const source = await rpc("WebhookService", "CreateWebhookSource", { event_prefix: "hook", name: "hook" });
    sourceId = source.id;
    await plant(store, "webhook_deliveries", planted, {
      ...{ ...own, id: padded("whd_0"), source_id: `'${sourceId}'`, created_at: at, request_headers: "'{}'" },
      ...{ status: `CASE WHEN ${isRare} THEN 'failed' ELSE 'accepted' END`, body_whole: "1" },
    });
    await plant(store, "streams", planted, {
      ...{ ...own, entity_type: "'order'", version: "1", created_at: at, updated_at: at },
      // Streams are listed by their ids, so the last ones are rare.
      entity_id: `CASE WHEN n > ${planted - rare} THEN ${padded("rare.")} ELSE ${padded("busy.")} END`,
    });
    await plant(store, "streams", 1, {
      ...{ ...own, entity_id: "'long'", entity_type: "'log'", created_at: at, updated_at: at },
      version: `${planted}`,
    });
    await plant(store, "events", planted, {
      ...{ ...own, position: "2000000 + n", id: padded("evt_1"), version: "1", data: "'{}'", at },
      ...{ name: "'long.event'", source: "'api'", entity_id: "'long'", entity_type: "'log'" },
      entity_version: "n",
    });
    await plant(store, "runs", planted, {
      ...{ ...own, id: padded("run_0"), function_id: "'busy'", function_version: "1", attempt: "1" },
      ...{ event_id: "''", event_name: "'e'", mode: "'pull'", status: "'completed'", max_attempts: "3" },
      ...{ created_at: at, ended_at: at, execution_seq: "1" },
      updated_at: `CASE WHEN ${isRare} THEN ${since + hour / 2} ELSE ${at} END`,
    });
    await plant(store, "run_history", rare, {
      ...{ ...own, run_id: padded("run_0"), sequence: "1", type: "'run.started'", at: `${since + hour / 2}` },
      detail: `'{"attempt":1,"execution_seq":1}'`,
    });
  }, 120_000);
  afterAll(() => server?.stop());

  const api = async (path: string) => {
    const { status, body } = await server.api(path);
    expect([path, status]).toEqual([path, 200]);
    return body;
  };
  const rpc = async (service: string, method: string, body: object) => {
    const answer = await server.rpc(service, method, body);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };

  test("names of the newest matching events are counted, however many others came since", async () => {
    const whole = { truncated: false, scan_cap: looksMax };
    expect(await api("/api/v1/events/names?source=nothing")).toEqual({ names: [], scanned: 0, ...whole });
    const names = [{ name: "busy.event", count: rare }];
    expect(await api("/api/v1/events/names?source=cron")).toEqual({ names, scanned: rare, ...whole });
    expect(await api("/api/v1/events/names")).toMatchObject({ scanned: looksMax, truncated: true });
    const until = new Date(since + 100).toISOString();
    expect(await api(`/api/v1/events/names?source=cron&until=${until}`)).toMatchObject({
      ...{ names: [{ name: "busy.event", count: rare }], truncated: false },
    });
  });

  test("the audit of calls goes on behind the rows that it looked at", async () => {
    const page = (cursor: string, more = {}) =>
      rpc("AuditService", "GetAuthAuditTrail", { action: "rare:done", limit: 2, cursor, ...more });
    const first = await page("");
    expect(first).toMatchObject({ events: [], total_count: 0, total_count_capped: true });
    expect(first).toMatchObject({ truncated: true, scanned: looksMax });
    const second = await page(first.nextCursor);
    expect(second.events.map((row: { id: string }) => row.id)).toEqual(["aud_000000003", "aud_000000002"]);
    expect(second.truncated).toBe(false);
    const last = await page(second.nextCursor);
    expect(last).toMatchObject({ events: [{ id: "aud_000000001" }], nextCursor: "", truncated: false });
    const inEnvironment = await api("/api/v1/audit?action=rare:done");
    expect(inEnvironment).toMatchObject({ events: [], truncated: true, scanned: looksMax });
    expect(
      (await api(`/api/v1/audit?action=rare:done&cursor=${inEnvironment.next_cursor}`)).events.length,
    ).toBe(rare);
  });

  test("the trail of runs goes on behind the runs that it looked at", async () => {
    const from = new Date(since + hour / 4).toISOString();
    const first = await api(`/api/v1/audit?from=${from}&limit=2`);
    expect(first).toMatchObject({ events: [], truncated: true, scanned: looksMax });
    const second = await api(`/api/v1/audit?from=${from}&limit=2&cursor=${first.next_cursor}`);
    expect(second.events.map((row: { run_id: string }) => row.run_id)).toEqual([
      "run_000000003",
      "run_000000002",
    ]);
    const last = await api(`/api/v1/audit?from=${from}&limit=2&cursor=${second.next_cursor}`);
    expect(last).toMatchObject({ events: [{ run_id: "run_000000001" }], next_cursor: "", truncated: false });
  });

  test("the platform's audit looks by one index, and asks the rest of so many rows", async () => {
    const { store } = server.running.domain;
    const clock = systemClock();
    const audit = openPlatformAudit({
      ...{ store, clock, ids: systemIds(clock), log: silentLog, onWritten: () => {} },
    });
    const filter = { keyId: "ak_busy", type: "platform.key.created" as const };
    const first = await audit.list(filter, { cursor: undefined, limit: 2 });
    expect(first).toMatchObject({ events: [], total: 0, isTotalCut: true, scanned: looksMax });
    const second = await audit.list(filter, { cursor: first.nextCursor, limit: 2 });
    expect(second.events.map(({ id }) => id)).toEqual(["pae_000000003", "pae_000000002"]);
    const last = await audit.list(filter, { cursor: second.nextCursor, limit: 2 });
    expect(last).toMatchObject({ events: [{ id: "pae_000000001" }], nextCursor: undefined, scanned: 0 });
    const ofType = await audit.list({ type: filter.type }, { cursor: undefined, limit: 2 });
    expect(ofType).toMatchObject({ total: rare, isTotalCut: false, scanned: 0 });
  });

  test("deliveries of a status go on behind those that were looked at", async () => {
    const page = (more: object) =>
      rpc("WebhookService", "ListWebhookDeliveries", { sourceId, limit: 2, ...more });
    // Clients that know of no cursor find more with their first page.
    expect(await page({ status: "failed" })).toMatchObject({ deliveries: [{}, {}], totalCount: rare });
    const { nextCursor: cursor } = await page({ limit: 1 });
    const first = await page({ status: "failed", cursor });
    expect(first).toMatchObject({ truncated: true, scanned: looksMax });
    expect(first.deliveries ?? []).toEqual([]);
    const second = await page({ status: "failed", cursor: first.nextCursor });
    expect(second.deliveries.map((row: { id: string }) => row.id)).toEqual([
      "whd_000000003",
      "whd_000000002",
    ]);
    const last = await page({ status: "failed", cursor: second.nextCursor });
    expect(last).toMatchObject({ deliveries: [{ id: "whd_000000001" }] });
    expect(last).not.toHaveProperty("nextCursor");
    expect((await page({ offset: 5 })).deliveries[0].id).toBe(`whd_0000${planted - 5}`);
    const both = { sourceId: "", limit: 2, offset: 1, cursor: first.nextCursor };
    expect((await server.rpc("WebhookService", "ListWebhookDeliveries", both)).status).toBe(400);
  });

  test("streams go on behind those that were looked at", async () => {
    const page = (more: object) => rpc("EntityStreamService", "ListStreams", { limit: 2, ...more });
    expect(await page({ search: "rare" })).toMatchObject({ streams: [{}, {}], totalCount: rare });
    const { nextCursor: cursor } = await page({ limit: 1 });
    const first = await page({ search: "rare", cursor });
    expect(first).toMatchObject({ truncated: true, scanned: looksMax });
    expect(first.streams ?? []).toEqual([]);
    const second = await page({ search: "rare", cursor: first.nextCursor });
    expect(second.streams.map((row: { entityId: string }) => row.entityId)).toEqual([
      `rare.000${planted - 2}`,
      `rare.000${planted - 1}`,
    ]);
    const last = await page({ search: "rare", cursor: second.nextCursor });
    expect(last).toMatchObject({ streams: [{ entityId: `rare.000${planted}` }] });
    expect(last).not.toHaveProperty("nextCursor");
    // An offset is passed over beside the rows that are looked at.
    expect((await page({ offset: planted })).streams.length).toBe(1);
  });

  test("who may not see some streams learns by no cursor that a search has found them", async () => {
    const { body: role } = await server.api("/api/v1/roles", { body: { name: "half", base: "admin" } });
    const { body: policy } = await server.api("/api/v1/policies", {
      body: { name: "p", effect: "deny", actions: "*", resources: "irn:svc:*:*:stream:*:busy.*" },
    });
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.id } });
    const { body: made } = await server.api("/api/v1/apikeys", {
      body: { name: "half", role_ids: [role.id], env_id: "env_default" },
    });
    for (const search of ["busy.0000000", "no such stream"]) {
      const asked = { limit: 1, search };
      const answer = await server.rpc("EntityStreamService", "ListStreams", asked, { key: made.key });
      expect(answer).toMatchObject({ status: 200, body: {} });
      expect(answer.body).toEqual({});
    }
  });

  test("the history of a stream goes on behind the versions that it looked at", async () => {
    const page = (more: object) =>
      rpc("EntityStreamService", "GetEntityHistory", { entityId: "long", ...more });
    const fromTimestamp = new Date(since + planted).toISOString();
    const first = await page({ fromTimestamp });
    expect(first.entries ?? []).toEqual([]);
    expect(Number(first.nextCursor)).toBe(looksMax + 1);
    const second = await page({ fromTimestamp, fromVersion: first.nextCursor });
    expect(second.entries.length).toBe(1);
    expect(Number(second.nextCursor ?? 0)).toBe(0);
    const toTimestamp = new Date(since + 1).toISOString();
    const back = await page({ toTimestamp, direction: "backward" });
    expect(back.entries ?? []).toEqual([]);
    const rest = await page({ toTimestamp, direction: "backward", fromVersion: back.nextCursor });
    expect(rest.entries.length).toBe(1);
  });
});
