import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { createClient, createFunction, createWorker, type Worker } from "../../src/sdk/index.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

interface Thing {
  kind: string;
  id: string;
  name: string;
  status: string;
  depth: number;
  entity_id?: string;
}
interface Link {
  cause_kind: string;
  cause_id: string;
  effect_kind: string;
  effect_id: string;
  relation: string;
}
interface Answer {
  things: Thing[];
  links: Link[];
  truncated: boolean;
  hidden: number;
}

describe.each(engines)("what caused what, on %s", (engine) => {
  let server: TestServer;
  let worker: Worker;

  const explain = async (query: Record<string, string | number>, status = 200, headers = {}) => {
    const params = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
    const answer = await server.api(`/api/v1/causality?${params}`, { headers });
    expect({ status: answer.status, query }).toEqual({ status, query });
    return answer.body as Answer & { error: string };
  };
  const shown = ({ things }: Answer) =>
    things.map(({ kind, name, depth }) => `${depth} ${kind} ${name}`).sort();
  const relations = ({ links }: Answer) =>
    links.map(({ cause_kind, relation, effect_kind }) => `${cause_kind} ${relation} ${effect_kind}`).sort();

  const child = createFunction({ id: "cause-child", triggers: [] }, async ({ step }) => {
    await step.emit("cause.child.done", { from: "child" });
    return "child";
  });
  const parent = createFunction(
    { id: "cause-parent", triggers: [{ event: "cause.asked" }] },
    async ({ step }) => {
      await step.invoke(child);
      await step.publish("cause-topic", { from: "parent" });
      return "parent";
    },
  );
  const last = createFunction(
    { id: "cause-last", triggers: [{ event: "cause.child.done" }] },
    async ({ step }) => {
      await step.sleep("long", "1h");
    },
  );

  beforeAll(async () => {
    server = await startTestServer({ engine });
    worker = createWorker({ url: server.url, apiKey: server.adminKey, functions: [child, parent, last] });
    await worker.start();
  });
  afterAll(async () => {
    await worker?.stop();
    await server?.stop();
  });

  /** An event whose run has invoked a child, published, and set off a run that sleeps. */
  async function chain() {
    const client = createClient({ url: server.url, apiKey: server.adminKey });
    const { eventId, runIds } = await client.emit("cause.asked", {});
    const runId = runIds[0]!;
    await client.waitForRun(runId);
    const grown = await until(
      async () => {
        const answer = await explain({ kind: "event", id: eventId, direction: "effects" });
        return (
          answer.things.some(({ name, status }) => name === "cause-last" && status === "paused") && answer
        );
      },
      { about: "the whole tree" },
    );
    return { eventId, runId, grown };
  }

  test("is told from either end, with each thing once", async () => {
    const { eventId, runId, grown } = await chain();
    const names = ["0 event cause.asked", "1 run cause-parent", "2 message cause-topic", "2 run cause-child"];
    expect(shown(grown)).toEqual(expect.arrayContaining(names));
    expect(shown(grown).filter((line) => line.endsWith("cause-last"))).toHaveLength(1);
    expect(relations(grown)).toEqual(
      expect.arrayContaining([
        "event started run",
        "run emitted event",
        "run invoked run",
        "run published message",
      ]),
    );
    expect(grown.truncated).toBe(false);

    const leaf = grown.things.find(({ name }) => name === "cause-last")!;
    const back = await explain({ kind: "run", id: leaf.id, direction: "causes" });
    expect(back.things.map(({ id }) => id)).toEqual(expect.arrayContaining([eventId, runId]));
    expect(back.things.every(({ depth }) => depth <= 0)).toBe(true);
    const message = grown.things.find(({ kind }) => kind === "message")!;
    const ofMessage = await explain({ kind: "message", id: message.id });
    expect(ofMessage.things.map(({ id }) => id)).toContain(runId);

    const invoking = (
      await server.running.domain.store.all<{ step_id: string }>(
        sql`SELECT step_id FROM steps WHERE run_id = ${runId} AND child_run_id IS NOT NULL`,
      )
    )[0]!;
    const ofStep = await explain({ kind: "step", id: `${runId}/${invoking.step_id}` });
    expect(shown(ofStep)).toEqual(expect.arrayContaining(["-1 run cause-parent", "1 run cause-child"]));
  });

  test("appends stand with their stream, and the answer says when there is more", async () => {
    const append = { entityId: "cart-9", entityType: "cart", eventName: "cause.asked", expectedVersion: -1 };
    const appended = await server.rpc("EntityStreamService", "AppendEvent", append);
    const { eventId } = appended.body as { eventId: string };
    const near = await until(
      async () => {
        const answer = await explain({ kind: "event", id: eventId, depth: 1 });
        return answer.truncated && answer;
      },
      { about: "effects beyond the first level" },
    );
    expect(near.things.find(({ kind }) => kind === "event")!.entity_id).toBe("cart-9");
    expect(near.things.every(({ depth }) => Math.abs(depth) <= 1)).toBe(true);
    const few = await explain({ kind: "event", id: eventId, limit: 2 });
    expect(few.things).toHaveLength(2);
    expect(few.truncated).toBe(true);
  });

  test("what is wrong is named, and what is foreign is missing", async () => {
    const { eventId } = await chain();
    for (const [query, field] of [
      [{ kind: "dream", id: eventId }, "kind"],
      [{ kind: "event", id: eventId, direction: "sideways" }, "direction"],
      [{ kind: "event", id: eventId, depth: 51 }, "depth"],
      [{ kind: "event", id: eventId, limit: 1_001 }, "limit"],
      [{ kind: "message", id: "abc" }, "id"],
      [{ kind: "step", id: "run_x" }, "id"],
      [{ kind: "letter", id: "/x" }, "id"],
    ] as const)
      expect((await explain(query, 400)).error).toContain(field);
    for (const kind of ["event", "run", "delivery"]) await explain({ kind, id: "evt_unknown" }, 404);
    const elsewhere = (await server.api("/api/v1/environments", { body: { name: "elsewhere" } })).body.id;
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "elsewhere", env_id: elsewhere } }))
      .body;
    await explain({ kind: "event", id: eventId }, 404, { authorization: `Bearer ${key}` });
  });

  test("a run that names no run is passed over, however long it is", async () => {
    for (const run of ["run_".padEnd(4_000, "x"), "run of nobody"]) {
      const headers = { "X-Svc-Run-ID": run };
      const emitted = await server.rpc("SvcService", "Emit", { event: "cause.lone" }, { headers });
      expect(emitted.status).toBe(200);
      const { things } = await explain({ kind: "event", id: emitted.body.eventId });
      expect(things).toHaveLength(1);
      const published = { topic: "cause-lone", data: {} };
      expect((await server.rpc("PubSubService", "Publish", published, { headers })).status).toBe(200);
    }
  });

  test("a tree is cancelled from its root, and says what was over", async () => {
    const { runId, grown } = await chain();
    const leaf = grown.things.find(({ name }) => name === "cause-last")!;
    const { causality } = createClient({ url: server.url, apiKey: server.adminKey });
    const { things, links } = await causality.get("run", runId, { direction: "effects", depth: 2 });
    expect(things[0]).toMatchObject({ kind: "run", id: runId, name: "cause-parent", depth: 0 });
    expect(links.every(({ cause }) => things.some(({ id }) => id === cause.id))).toBe(true);
    // What else a run did must not hide the runs that it led to.
    for (let batch = 0; batch < 22; batch++) {
      const events = Array.from({ length: 100 }, () => ({ event: "cause.noise", data: {} }));
      const headers = { "X-Svc-Run-ID": runId };
      expect((await server.rpc("SvcService", "TriggerBatch", { events }, { headers })).status).toBe(200);
    }
    const cancelled = await causality.cancelSubtree(runId, { reason: "enough" });
    expect(cancelled).toEqual({ cancelled: [leaf.id], over: 2, hidden: 0, truncated: false });
    const again = await server.rpc("CausalityService", "CancelSubtree", { runId });
    expect(again.body).toEqual({ over: 3 });
    const unknown = await server.rpc("CausalityService", "CancelSubtree", { runId: "run_unknown" });
    expect(unknown.status).toBe(404);
  });
});
