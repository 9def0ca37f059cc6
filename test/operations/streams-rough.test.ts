import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { streamsCheck } from "../../src/domain/log/streams/service.ts";
import { sql } from "../../src/kit/sql.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("appends that meet trouble on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server?.stop());

  const call = (method: string, body: object, options = {}) =>
    server.rpc("EntityStreamService", method, body, options);
  const append = (entityId: string, more: object = {}, options = {}) =>
    call(
      "AppendEvent",
      { entityId, entityType: "t", eventName: "t.done", expectedVersion: -1, ...more },
      options,
    );
  const versionOf = async (entityId: string) =>
    Number((await call("GetStreamInfo", { entityId })).body.version ?? 0);
  const versions = (answer: { body: { results?: { entityVersion: string }[] } }) =>
    answer.body.results?.map(({ entityVersion }) => Number(entityVersion));

  test("who loses holds none of its keys", async () => {
    for (let round = 0; round < 25; round++) {
      const entityId = `loser.${round}`;
      await append(entityId);
      const own = { idempotencyKey: `loser-${round}` };
      const [loser, winner] = await Promise.all([
        append(entityId, { expectedVersion: 9, ...own }),
        append(entityId, own),
        append(`${entityId}.else`),
      ]);
      expect(winner).toMatchObject({ status: 200, body: { entityVersion: "2" } });
      expect([200, 409]).toContain(loser.status);
      expect(await versionOf(entityId)).toBe(2);

      const other = { idempotencyKey: `loser-${round}-other` };
      const [, elsewhere, emitted] = await Promise.all([
        append(entityId, { expectedVersion: 9, ...other }),
        append(`${entityId}.there`, other),
        server.rpc("SvcService", "Emit", { event: "t.emitted", idempotencyKey: `free-${round}` }),
      ]);
      expect(elsewhere).toMatchObject({ status: 200, body: { entityVersion: "1" } });
      expect(emitted.status).toBe(200);
    }
  });

  test("a batch that repeats some of its keys appends the rest only where it expected to", async () => {
    await append("part", { idempotencyKey: "part-1" });
    const batch = (expectedVersion: number, last: object = {}) =>
      call("AppendEvents", {
        streams: [
          {
            ...{ entityId: "part", entityType: "t", expectedVersion },
            events: [
              { eventName: "t.done", idempotencyKey: "part-1" },
              { eventName: "t.more", ...last },
            ],
          },
        ],
      });
    const refused = await batch(0);
    expect(refused).toMatchObject({ status: 409 });
    expect(refused.body.message).toBe(
      "streams[0].events[1]: stream part: version conflict: expected 0, got 1",
    );
    const keyed = { idempotencyKey: "part-2" };
    expect(versions(await batch(1, keyed))).toEqual([1, 2]);
    expect(versions(await batch(1, keyed))).toEqual([1, 2]);
    expect((await batch(1)).status).toBe(409);
    expect(await versionOf("part")).toBe(2);
    const twice = { eventName: "t.done", idempotencyKey: "part-3" };
    const twins = await call("AppendEvents", {
      streams: [{ entityId: "part", entityType: "t", expectedVersion: 2, events: [twice, twice] }],
    });
    expect(versions(twins)).toEqual([3, 3]);
  });

  test("a type that only a loser named is not fixed", async () => {
    const lost = await call("AppendEvents", {
      streams: [
        { entityId: "typed", entityType: "wrong", events: [{ eventName: "t.done" }] },
        { entityId: "typed.2", entityType: "t", expectedVersion: 5, events: [{ eventName: "t.done" }] },
      ],
    });
    expect(lost.status).toBe(409);
    expect((await call("GetStreamInfo", { entityId: "typed" })).status).toBe(404);
    expect((await append("typed")).status).toBe(200);
  });

  test("expectations beyond what a number holds, below -1, and in text", async () => {
    for (const expectedVersion of ["9007199254740993", "9223372036854775807", 2 ** 53]) {
      const answer = await append("beyond", { expectedVersion });
      expect([400, 409]).toContain(answer.status);
    }
    for (const expectedVersion of [-2, "-9", "9223372036854775808", 1.5, "x"])
      expect((await append("beyond", { expectedVersion })).status).toBe(400);
    expect(await versionOf("beyond")).toBe(0);
  });

  test("as many events and streams as one batch may have, and one more", async () => {
    const many = (streams: number, events: number) =>
      call("AppendEvents", {
        streams: Array.from({ length: streams }, (_, at) => ({
          ...{ entityId: `full.${streams}.${at}`, entityType: "t" },
          events: Array.from({ length: events }, () => ({ eventName: "t.done", data: { at } })),
        })),
      });
    const full = await many(20, 5);
    expect(versions(full)).toEqual(Array.from({ length: 100 }, (_, at) => (at % 5) + 1));
    expect((await many(21, 1)).body.message).toBe("streams: at most 20 in one batch");
    expect((await many(20, 6)).body.message).toBe("streams: at most 100 events in one batch");
    expect((await many(0, 1)).status).toBe(400);
  });

  test("a run is linked with streams while it lives, in its own environment alone", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "linked", triggers: [{ event: "link.now" }] });
    const worker = pullWorker(server, "w-linked");
    await worker.register("linked");
    await server.rpc("SvcService", "Emit", { event: "link.now" });
    const [job] = await worker.poll();
    const runId = job!.run_id;
    const streamsOf = async () => (await server.api(`/api/v1/runs/${runId}/streams`)).body.entity_ids;
    const headers = { "x-svc-run-id": runId };
    await append("linked.read");
    await append("linked.written", {}, { headers });
    await call("ReadStream", { entityId: "linked.read" }, { headers });
    await call("ReadStream", { entityId: "linked.never" }, { headers });
    // Who could be no worker of it leaves nothing at a run, whatever its header says.
    const viewer = (await server.api("/api/v1/apikeys", { body: { name: "v", role_ids: ["role_viewer"] } }))
      .body;
    await append("linked.looked-at");
    for (const entityId of ["linked.looked-at", "linked.read"])
      expect((await call("ReadStream", { entityId }, { headers, key: viewer.key })).status).toBe(200);
    expect(await streamsOf()).toEqual(["linked.read", "linked.written"]);

    const { body: other } = await server.api("/api/v1/environments", { body: { name: "foreign" } });
    const { body: theirs } = await server.api("/api/v1/apikeys", {
      body: { name: "o", env_id: other.id, role_ids: ["role_admin"] },
    });
    const { key } = theirs;
    expect((await append("linked.foreign", {}, { headers, key })).status).toBe(200);
    await call("ReadStream", { entityId: "linked.foreign" }, { headers, key });
    const { body: page } = await call("ReadStream", { entityId: "linked.foreign" }, { key });
    expect(page.events[0].runId).toBeUndefined();
    expect((await server.api(`/api/v1/runs/${runId}/streams`, { key })).status).toBe(404);

    await worker.report(job!, { status: "completed", output: {} });
    await append("linked.late", {}, { headers });
    await call("ReadStream", { entityId: "linked.late" }, { headers });
    expect(await streamsOf()).toEqual(["linked.read", "linked.written"]);
  });

  test("a policy that denies one stream denies its batch, and hides the stream from lists and counts", async () => {
    const { body: role } = await server.api("/api/v1/roles", { body: { name: "half", base: "admin" } });
    const { body: policy } = await server.api("/api/v1/policies", {
      body: { name: "p", effect: "deny", actions: "*", resources: "irn:svc:*:*:stream:*:denied.*" },
    });
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.id } });
    const { body: made } = await server.api("/api/v1/apikeys", {
      body: { name: "half", role_ids: [role.id], env_id: "env_default" },
    });
    const { key } = made;
    const batch = (...ids: string[]) => ({
      streams: ids.map((entityId) => ({ entityId, entityType: "half", events: [{ eventName: "t.done" }] })),
    });
    const refused = await call("AppendEvents", batch("allowed.1", "denied.1"), { key });
    expect(refused.status).toBe(403);
    expect(await versionOf("allowed.1")).toBe(0);
    expect((await call("AppendEvents", batch("allowed.1", "denied.1"))).status).toBe(200);
    const { body: list } = await call("ListStreams", { entityType: "half" }, { key });
    expect(list).toMatchObject({ streams: [{ entityId: "allowed.1" }], totalCount: 1 });
    for (const method of ["ReadStream", "GetStreamInfo", "GetEntityHistory", "GetSnapshot"])
      expect((await call(method, { entityId: "denied.1" }, { key })).status).toBe(403);
    for (const [method, more] of [
      ["CreateSnapshot", { entityType: "half", entityVersion: 1, state: {} }],
      ["DeleteStream", {}],
      ["RedactEvent", { eventId: "evt_x" }],
    ] as const)
      expect((await call(method, { entityId: "denied.1", ...more }, { key })).status).toBe(403);
  });

  test("versions that the store lost are forgotten", async () => {
    for (let at = 0; at < 3; at++) await append("restored");
    await server.running.domain.store.write(async (session) => {
      await session.run(sql`DELETE FROM events WHERE entity_id = 'restored' AND entity_version > 1`);
      await session.run(sql`UPDATE streams SET version = 1 WHERE entity_id = 'restored'`);
    });
    expect((await append("restored", { expectedVersion: 3 })).body.message).toBe(
      "version conflict: expected 3, got 1",
    );
    expect((await append("restored", { expectedVersion: 1 })).body.entityVersion).toBe("2");
  });

  test("a stream that is deleted under appends takes none after it", async () => {
    for (let round = 0; round < 15; round++) {
      const entityId = `ending.${round}`;
      await append(entityId);
      const [deleted, ...answers] = await Promise.all([
        call("DeleteStream", { entityId, purge: round % 2 === 0 }),
        ...Array.from({ length: 8 }, () => append(entityId)),
      ]);
      const taken = answers.filter(({ status }) => status === 200);
      const refused = answers.filter(({ body }) => body.code === "failed_precondition");
      expect(taken.length + refused.length).toBe(8);
      expect(Number(deleted.body.version)).toBe(1 + taken.length);
      expect((await append(entityId)).body.code).toBe("failed_precondition");
    }
  });

  test("the check of streams walks over all of them, and stays where one is broken", async () => {
    const { store } = server.running.domain;
    const { body: environment } = await server.api("/api/v1/environments", { body: { name: "checked" } });
    const { key } = (
      await server.api("/api/v1/apikeys", {
        body: { name: "c", env_id: environment.id, role_ids: ["role_admin"] },
      })
    ).body;
    const ids = Array.from({ length: 230 }, (_, at) => `checked.${at}`);
    await Promise.all(ids.map((id) => append(id, {}, { key })));
    const check = streamsCheck(store);
    const counts = async () => {
      const found: number[] = [];
      for (let look = 0; look < 3; look++) found.push((await check.run(environment.id)).count);
      return found;
    };
    expect(await counts()).toEqual([0, 0, 0]);
    await store.write((session) =>
      session.run(sql`UPDATE streams SET version = 2 WHERE entity_id = 'checked.99'
        AND environment_id = ${environment.id}`),
    );
    const found = await counts();
    expect(found.at(-1)).toBe(1);
    expect((await check.run(environment.id)).oldest?.id).toBe("checked.99");
  });

  test("an environment that is deleted under appends takes none after it", async () => {
    const { body: environment } = await server.api("/api/v1/environments", { body: { name: "leaving" } });
    const { key } = (
      await server.api("/api/v1/apikeys", {
        body: { name: "l", env_id: environment.id, role_ids: ["role_admin"] },
      })
    ).body;
    const statuses = new Set<number>();
    let isGone = false;
    const callers = Array.from({ length: 16 }, async (_, at) => {
      for (let after = 0; after < 10; ) {
        const wasGone = isGone;
        const { status } = await append(`leaving.${at % 4}`, {}, { key });
        statuses.add(status);
        if (!wasGone) continue;
        expect(status).not.toBe(200);
        after++;
      }
    });
    await until(() => statuses.size > 0, { about: "the first append" });
    await server.api(`/api/v1/environments/${environment.id}`, { method: "DELETE" });
    isGone = true;
    await Promise.all(callers);
    expect([...statuses].filter((status) => status >= 500)).toEqual([]);
    expect(statuses.size).toBeGreaterThan(1);
  });
});
