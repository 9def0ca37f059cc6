import { expect, test } from "bun:test";
import { openIntegrity } from "../../src/domain/record/integrity/service.ts";
import { systemClock, testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { noMetrics } from "../../src/kit/metrics.ts";
import { sql } from "../../src/kit/sql.ts";
import { startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

// A loop rests longer after each failure: ten of them take half a minute. It is the same code on both engines.
test("a loop that fails ten times in a row is told by health, metrics and overview, until it works", async () => {
  const server = await startTestServer({ engine: "libsql", settings: { metricsEnabled: true } });
  try {
    const write = (text: string) =>
      server.running.domain.store.write((session) => session.run(sql.raw(text)));
    const health = async () => (await server.api("/health", { key: null })).body;
    expect((await health()).status).toBe("healthy");
    await write("ALTER TABLE debounces RENAME TO debounces_away");
    const degraded = await until(
      async () => {
        const answer = await server.api("/health", { key: null });
        return answer.body.status === "degraded" && answer;
      },
      { about: "the loop to have failed ten times", deadlineMs: 60_000 },
    );
    expect(degraded.status).toBe(200);
    const told = expect.stringMatching(/^loop debounce\.fire fails: .*no such table: debounces/);
    expect(degraded.body.warnings).toEqual(expect.arrayContaining([told]));
    expect((await server.api("/ready", { key: null })).status).toBe(200);
    await server.running.tick("cluster.nodes");
    const { body } = await server.api("/api/v1/overview");
    expect(body.cluster).toMatchObject({
      status: "degraded",
      issues: expect.arrayContaining([expect.stringMatching(/^loop debounce\.fire of node \S+ fails: /)]),
    });
    expect(await (await fetch(`${server.url}/metrics`)).text()).toMatch(
      /svc_loop_failed_rounds\{loop="debounce\.fire"\} [1-9]\d/,
    );
    await write("ALTER TABLE debounces_away RENAME TO debounces");
    await until(async () => (await health()).status === "healthy", { about: "the loop to work again" });
  } finally {
    await server.stop();
  }
}, 120_000);

test("a check that is out of balance for a minute is told by health, metrics and overview, until it is balanced", async () => {
  const real = systemClock();
  let aheadMs = 0;
  const clock = { ...real, elapsed: () => real.elapsed() + aheadMs };
  const server = await startTestServer({ engine: "libsql", clock, settings: { metricsEnabled: true } });
  try {
    const moveHead = async (by: number) => {
      const { store } = server.running.domain;
      await store.write((session) => session.run(sql`UPDATE heads SET position = position + ${by}`));
      await server.running.tick("integrity.look");
    };
    const health = async () => (await server.api("/health", { key: null })).body;
    const shown = async () => {
      await server.running.tick("cluster.nodes");
      const { cluster } = (await server.api("/api/v1/overview")).body;
      const metrics = await (await fetch(`${server.url}/metrics`)).text();
      const seconds = /svc_integrity_unbalanced_seconds\{check="events\.head"\} (\d+)/.exec(metrics)?.[1];
      return [(await health()).status, cluster.status, cluster.issues, Math.floor(Number(seconds) / 60)];
    };
    await server.rpc("SvcService", "Emit", { event: "counted" });
    await moveHead(1);
    expect(await shown()).toEqual(["healthy", "healthy", [], 0]);
    aheadMs = 61_000;
    await moveHead(0);
    const told = "events.head: 1 out of balance, see /api/v1/integrity";
    expect(await shown()).toEqual(["degraded", "degraded", [told], 1]);
    expect((await health()).warnings).toContain(told);
    await moveHead(-1);
    expect(await shown()).toEqual(["healthy", "healthy", [], 0]);
  } finally {
    await server.stop();
  }
});

test("an invariant is a trouble once it was broken for a minute", async () => {
  const clock = testClock(0);
  let count = 1;
  const integrity = openIntegrity({
    ...{ clock, log: silentLog, metrics: noMetrics },
    store: { all: async () => [{ id: "env_a" }] } as never,
    checks: [{ name: "things.due", about: "Late.", run: async () => ({ count, oldest: null }) }],
  });
  const look = async (afterMs: number) => {
    await clock.advance(afterMs);
    await integrity.lookOnce();
    return integrity.troubles();
  };
  expect([await look(0), integrity.warnings().length]).toEqual([[], 1]);
  expect(await look(59_000)).toEqual([]);
  expect(await look(1_000)).toEqual(["things.due: 1 out of balance, see /api/v1/integrity"]);
  count = 0;
  expect([await look(1_000), integrity.warnings()]).toEqual([[], []]);
  count = 2;
  expect(await look(30_000)).toEqual([]);
});

// The look stopped at the first check that threw: none after it counted anything, and health named no check.
test("a check that throws is named after a minute, and the checks after it look", async () => {
  const clock = testClock(0);
  let isBroken = true;
  const check = (name: string, run: () => number) => ({
    ...{ name, about: "Late." },
    run: async () => ({ count: run(), oldest: null }),
  });
  const integrity = openIntegrity({
    ...{ clock, log: silentLog, metrics: noMetrics },
    store: { all: async () => [{ id: "env_a" }] } as never,
    checks: [
      check("things.read", () => {
        if (isBroken) throw new Error("cannot be read");
        return 0;
      }),
      check("things.due", () => 1),
    ],
  });
  await integrity.lookOnce();
  expect((await integrity.report("env_a"))?.checks).toMatchObject([
    { name: "things.read", count: 0, isFailed: true },
    { name: "things.due", count: 1, isFailed: false },
  ]);
  await clock.advance(60_000);
  await integrity.lookOnce();
  const due = "things.due: 1 out of balance, see /api/v1/integrity";
  const failed = "things.read: the check fails, see integrity.check_failed in the log";
  expect(integrity.troubles()).toEqual([failed, due]);
  isBroken = false;
  await integrity.lookOnce();
  expect(integrity.troubles()).toEqual([due]);
});
