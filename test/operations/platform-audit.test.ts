import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  openPlatformAudit,
  type PlatformAudit,
  platformAuditKeptMs,
  platformAuditWaitingMax,
} from "../../src/domain/access/platform/audit.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import type { Store } from "../../src/store/store.ts";
import { engines, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { keptLog } from "../support/who.ts";

const caller = {
  kind: "platform" as const,
  id: "ak_1",
  orgId: "org_1",
  roles: [],
  impersonates: true,
};
const call = { caller, environmentId: "env_1", operation: "runs.list", requestId: "req_1", outcome: "ok" };

describe.each(engines)("the platform's audit on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  });
  afterAll(() => server.stop());

  /** Of an org of its own, at a time of its own: one that the server's own duty does not find long past. */
  function open(at = Date.UTC(2126, 0, 1)) {
    const { store } = server.running.domain;
    const kept = keptLog();
    const clock = { ...systemClock(), now: () => at };
    let isDown = false;
    const failing: Store = {
      ...store,
      one: store.one.bind(store),
      all: store.all.bind(store),
      write: (work) => (isDown ? Promise.reject(new Error("no database")) : store.write(work)),
    };
    const audit = openPlatformAudit({
      ...{ store: failing, clock, ids: systemIds(clock), log: kept.log },
      onWritten: () => {},
    });
    const down = (value: boolean) => {
      isDown = value;
    };
    return { audit, kept, down };
  }

  const totalOf = async (audit: PlatformAudit, impersonatedOrgId: string) =>
    (await audit.list({ impersonatedOrgId }, { cursor: undefined, limit: 1 })).total;
  const inOrg = (orgId: string) => ({ ...call, caller: { ...caller, orgId } });

  test("calls wait for a database that is away, and are written once", async () => {
    const { audit, down } = open();
    const mine = inOrg(`org_away_${engine}`);
    down(true);
    for (let at = 0; at < 1_200; at++) audit.impersonated(mine);
    await expect(audit.writeOnce()).rejects.toThrow("no database");
    audit.impersonated(mine);
    down(false);
    await audit.writeOnce();
    await audit.writeOnce();
    expect(await totalOf(audit, mine.caller.orgId)).toBe(1_201);
  });

  test("what finds no room is told in a line of its own", async () => {
    const { audit, kept } = open(Date.UTC(2126, 1, 1));
    const mine = inOrg(`org_full_${engine}`);
    for (let at = 0; at < platformAuditWaitingMax + 7; at++) audit.impersonated(mine);
    await audit.writeOnce();
    expect(await totalOf(audit, mine.caller.orgId)).toBe(platformAuditWaitingMax);
    const { events } = await audit.list({ impersonatedOrgId: "" }, { cursor: undefined, limit: 1 });
    expect(events[0]!.payload).toEqual({ unwritten_calls: 7 });
    expect(kept.of("platform.audit_unwritten").length).toBe(1);
  });

  test("old lines are forgotten, younger ones stay", async () => {
    const old = Date.UTC(2120, 0, 1);
    const mine = inOrg(`org_old_${engine}`);
    for (const at of [old, old + 1_000]) {
      const { audit } = open(at);
      audit.impersonated(mine);
      await audit.writeOnce();
    }
    const { audit } = open(old + platformAuditKeptMs + 500);
    await audit.duty.tick(server.running.domain.store.write.bind(server.running.domain.store));
    expect(await totalOf(audit, mine.caller.orgId)).toBe(1);
  });

  test("a change that fails leaves no line", async () => {
    const { audit } = open(Date.UTC(2126, 2, 1));
    const { store } = server.running.domain;
    const failed = store.write(async (session) => {
      await audit.record(session, { type: "platform.key.created", by: caller, payload: {} });
      throw new Error("the change failed");
    });
    await expect(failed).rejects.toThrow("the change failed");
    const page = await audit.list({ type: "platform.key.created" }, { cursor: undefined, limit: 1 });
    expect(page.total).toBe(0);
  });

  test("a server that stops has written what waited", async () => {
    const home = await makeHome(engine);
    try {
      const root = { email: "root@example.com", password: "correct horse battery" };
      const first = await startTestServer({ engine, home });
      await first.api("/api/v1/platform/bootstrap", { body: { ...root, name: "Root" } });
      const login = await first.api("/api/v1/platform/auth/login", { body: root, key: null });
      const key = login.body.token;
      await first.api("/api/v1/events", { key, headers: { "x-svc-org": "org_default" } });
      await first.stop();
      const second = await startTestServer({ engine, home });
      const query = "event_type=platform.impersonated&impersonated_org_id=org_default";
      const { body } = await second.api(`/api/v1/platform/audit?${query}`, { key });
      await second.stop();
      expect(body.total).toBe(1);
    } finally {
      await home.remove();
    }
  }, 120_000);
});
