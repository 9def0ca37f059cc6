import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { startTestServer, type TestServer } from "../support/server.ts";

/** Loops that take work of many environments from the store, each with the test that one of them does not wait for another. */
const shared: Record<string, string> = {
  "schedules.tick": "shares-runs",
  "runs.wake": "shares-runs",
  "runs.deadlines": "shares-runs",
  "runs.matcher": "shares-runs",
  "runs.states": "shares-runs",
  "runs.children": "shares-runs",
  "debounce.fire": "shares-runs",
  "batches.close": "shares-runs",
  "outbox.relay": "shares-upkeep",
  "outbox.mirror": "shares-upkeep",
  "groups.look": "shares-upkeep",
  "groups.forget": "shares-upkeep",
  "events.delayed": "shares-upkeep",
  "runs.failures": "shares-upkeep",
  "events.expire": "shares-upkeep",
  "runs.expire": "shares-upkeep",
  "topics.expire": "shares-upkeep",
  "streams.purge": "shares-upkeep",
  "tenancy.purge": "shares-upkeep",
  "push.look": "shares-upkeep",
  "webhooks.deliver": "webhook-endpoints",
  "repairs.work": "repairs",
  "attributes.purge": "attribute-names",
};

const toItsEnd = "a tick deletes what is old to its end, a slice a transaction, and nobody waits for it";
const ofThisNode = "looks after what this node serves, all of it in one query or one of a few hundred each";

/** The others, and why nobody of many can hold them up. */
const notShared: Record<string, string> = {
  "audit.flush": "writes what this node has gathered, in the order in which it came, to its end",
  "audit.forget": toItsEnd,
  "breakers.forget": toItsEnd,
  "events.keys": toItsEnd,
  "flow.forget": toItsEnd,
  "flow.write": "writes what this node has counted, to its end, at most a thousand rows a statement",
  "usage.forget": toItsEnd,
  "usage.write": "as flow.write",
  "kv.expire": toItsEnd,
  "outbox.forget": toItsEnd,
  "runs.lanes": toItsEnd,
  "runs.pins": toItsEnd,
  "runs.resumes": toItsEnd,
  "workers.forget": toItsEnd,
  "projections.sweep": toItsEnd,
  "query.sweep": toItsEnd,
  "platform.forget": toItsEnd,
  "webhooks.forget": toItsEnd,
  "alerts.forget": toItsEnd,
  "alerts.look":
    "a rule once a minute, who waited longest first, some queries each; one that fails is put off",
  "alerts.deliver": "begins a few messages of each environment, and waits for none",
  "repairs.forget": toItsEnd,
  "sessions.attempts": toItsEnd,
  "breakers.look": "one query for all that are in trouble",
  "cluster.forget": "of the installation, of no environment",
  "cluster.lead": "of the installation, of no environment",
  "cluster.nodes": "of the installation, of no environment",
  "cluster.time": "of the installation, of no environment",
  "keyring.follow": "of the installation, of no environment",
  "platform.audit": "of the installation, of no environment",
  "keys.used": "one statement for the keys that this node saw",
  "sessions.used": "one statement for the sessions that this node saw",
  "edge.connections": ofThisNode,
  "edge.standing": ofThisNode,
  "store.watch": ofThisNode,
  "store.primary": ofThisNode,
  "groups.refresh": ofThisNode,
  "workers.serving": ofThisNode,
  "kv.watches": ofThisNode,
  "projections.waits": ofThisNode,
  "projections.fold":
    "each projection that is due has its turn of a quarter of a second, longest waiting first",
  "log.feeds": ofThisNode,
  "topics.feeds": ofThisNode,
  "pubsub.interest": ofThisNode,
  "pubsub.positions": ofThisNode,
  "pubsub.runs": ofThisNode,
  "runs.ends": ofThisNode,
  "workers.heartbeats": ofThisNode,
  "workers.streams": ofThisNode,
  "workers.dispatch": "lanes share, the least served first (lanes.test.ts, unit/dispatcher-lanes.test.ts)",
  "integrity.look": "walks over the environments, twenty a tick, each with bounded checks",
  "runs.sweep": "walks over all runs, a slice a tick; what is overdue is moved by the work of runs.wake",
  "tenancy.follow": "one query for the environments that went since the last look",
};

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({ engine: "libsql" });
});
afterAll(() => server.stop());

test("every loop of a server shares by environment, or it is said why it need not", async () => {
  const { loops } = (await server.api("/api/v1/cluster/health")).body.nodes[0] as {
    loops: { name: string }[];
  };
  const known = [...Object.keys(shared), ...Object.keys(notShared)];
  // Only run where there is a bus to mirror to, and a PostgreSQL that may have a standby.
  const running = [...loops.map(({ name }) => name), "outbox.mirror", "store.primary"];
  expect(known.toSorted()).toEqual(running.toSorted());
});

test("every loop begins often enough for health and dashboard, to which one that is still for longer is stuck", () => {
  const slow = server.running.loops.filter(({ everyMs }) => everyMs > 10 * 60_000);
  expect(slow.map(({ name }) => name)).toEqual([]);
});

test("every loop says what it does in a sentence", () => {
  for (const { name, about } of server.running.loops) expect(`${name}: ${about}`).toMatch(/: [A-Z][^\n]+\.$/);
});

test.each(Object.entries(shared))("%s has a test in %s", (name, file) => {
  const text = readFileSync(join(import.meta.dir, `${file}.test.ts`), "utf8");
  expect(text).toMatch(new RegExp(`test(\\.each\\(.*\\))?\\("([^"]* and )?${name.replace(".", "\\.")}\\b`));
});
