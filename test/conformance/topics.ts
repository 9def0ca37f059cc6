import { describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { until } from "../support/until.ts";
import { type TopicHouse, topicBench } from "./topics-bench.ts";
import { entityTopics } from "./topics-of-entities.ts";
import { functionTopics } from "./topics-of-functions.ts";
import { projectionTopics } from "./topics-of-projections.ts";
import { runTopics } from "./topics-of-runs.ts";

const told = ["event_id", "environment_id", "result", "timestamp"] as const;

/** The topics of the specification row by row over real sockets, at every node of a house. */
export function topicConformance(name: string, open: () => Promise<TopicHouse>): void {
  describe(`topics: ${name}`, () => {
    const bench = topicBench(open);
    const { rpc, write, tick, begin, framesAt, heard, countHeard, none, openAt } = bench;

    test("events:{event_name}", async () => {
      const { eventId } = await rpc("Emit", {
        event: "order.placed",
        data: { total: 3 },
        metadata: { by: "ada" },
      });
      const frame = await heard({ topic: "events:order.placed", fields: ["total"], data: { total: 3 } });
      expect(frame.eventId).toBe(eventId);
      expect(structuredClone(frame.meta)).toEqual({
        timestamp: expect.any(String),
        sequence: expect.any(Number),
        sequenceExact: expect.any(String),
        custom: { by: "ada" },
      });
    });

    runTopics(bench);
    functionTopics(bench);
    entityTopics(bench);
    projectionTopics(bench);

    describe("system.environment.{environment_id}.deleted", () => {
      const orgId = "org_default";
      const { keys, tenancy } = {
        keys: () => bench.server().running.domain.keys,
        tenancy: () => bench.server().running.domain.tenancy,
      };
      const heardAt = async (id: string, name: string, projectId: unknown, remove: () => Promise<void>) => {
        const made = { orgId, environmentId: id, name, roleIds: ["role_admin"] };
        const { key } = await keys().create(made);
        const inside = await openAt(key, ["system.environment.>"]);
        await remove();
        await heard(
          {
            topic: `system.environment.${id}.deleted`,
            fields: ["id", "name", "projectId", "timestamp"],
            data: { id, name, projectId },
          },
          inside,
        );
        for (const socket of inside)
          expect(framesAt(socket, `system.environment.${id}.deleted`)).toHaveLength(1);
        for (const socket of inside) socket.close();
      };
      const remove = async (path: string) => {
        const { status } = await bench.server().api(path, { method: "DELETE" });
        expect([200, 204]).toContain(status);
      };

      test("of its own, and with its project; a refused delete publishes nothing", async () => {
        const alone = await tenancy().createEnvironment({ orgId, name: "alone" });
        await heardAt(alone.id, "alone", "proj_default", () => remove(`/api/v1/environments/${alone.id}`));
        const { body: project } = await bench.server().api("/api/v1/projects", { body: { name: "falls" } });
        const inside = await bench.server().api("/api/v1/environments", {
          body: { name: "inside", project_id: project.id },
        });
        await heardAt(inside.body.id, "inside", project.id, () => remove(`/api/v1/projects/${project.id}`));
        expect(
          (await bench.server().api("/api/v1/environments/env_default", { method: "DELETE" })).status,
        ).toBe(400);
        expect(await countHeard("system.environment.env_default.deleted")).toEqual(none());
      });
    });

    test("system.secret.{name}.{created|updated|deleted}, without its value", async () => {
      const value = "never-told-7f3a";
      const expected = (secret: string, leaf: string) =>
        heard({
          topic: `system.secret.${secret}.${leaf}`,
          fields: ["name", "timestamp"],
          data: { name: secret },
        });
      const secrets = "/api/v1/secrets";
      expect((await bench.server().api(secrets, { body: { name: "TOKEN", value } })).status).toBe(201);
      await expected("TOKEN", "created");
      await bench.server().api(`${secrets}/TOKEN`, { method: "PUT", body: { value: `${value}-2` } });
      await expected("TOKEN", "updated");
      await bench.server().api(`${secrets}/TOKEN`, { method: "PATCH", body: { name: "KEY" } });
      await expected("TOKEN", "deleted");
      await expected("KEY", "created");
      await bench.server().api(`${secrets}/KEY`, { method: "DELETE" });
      await expected("KEY", "deleted");
      expect((await bench.server().api(`${secrets}/KEY`, { method: "DELETE" })).status).toBe(404);
      expect(await countHeard("system.secret.KEY.deleted")).toEqual(bench.sockets().map(() => 1));
      for (const socket of bench.sockets())
        expect(socket.texts.some((text) => text.includes(value))).toBe(false);
    });

    describe("system.outbox.{event_id}", () => {
      /** A cancel whose message no bus of this house takes. */
      test("dead_lettered, requeued, discarded", async () => {
        const { runId } = await begin("held");
        await rpc("CancelRun", { id: runId, reason: "🙂".repeat(1_024) });
        const event_id = `cancel-${runId}`;
        const topicOf = (leaf: string) => `system.outbox.${event_id}.${leaf}`;
        await until(
          async () => {
            await write(sql`UPDATE outbox SET due_at = 0 WHERE event_id = ${event_id}`);
            await tick("outbox.relay");
            return framesAt(bench.sockets()[0]!, topicOf("dead_lettered")).length > 0;
          },
          { about: "the dead letter", deadlineMs: 30_000, everyMs: 10 },
        );
        const environment_id = "env_default";
        await heard({
          topic: topicOf("dead_lettered"),
          fields: [
            ...["event_id", "outbox_id", "entity_id", "topic", "kind", "environment_id", "attempts"],
            ...["last_error", "timestamp"],
          ],
          data: { event_id, entity_id: "", kind: "control", environment_id, attempts: 10 },
        });
        const path = `/api/v1/outbox/dead-letter/${event_id}`;
        expect((await bench.server().api(`${path}/requeue`, { method: "POST" })).status).toBe(200);
        await heard({
          topic: topicOf("requeued"),
          fields: told,
          data: { event_id, environment_id, result: "requeued" },
        });
        await until(
          async () => {
            await write(sql`UPDATE outbox SET due_at = 0 WHERE event_id = ${event_id}`);
            await tick("outbox.relay");
            return framesAt(bench.sockets()[0]!, topicOf("dead_lettered")).length > 1;
          },
          { about: "the dead letter again", deadlineMs: 30_000, everyMs: 10 },
        );
        expect((await bench.server().api(path, { method: "DELETE" })).status).toBe(200);
        await heard({
          topic: topicOf("discarded"),
          fields: told,
          data: { event_id, environment_id, result: "discarded" },
        });
        expect((await bench.server().api(path, { method: "DELETE" })).status).toBe(404);
        expect(await countHeard(topicOf("discarded"))).toEqual(bench.sockets().map(() => 1));
      }, 60_000);
    });
  });
}
