import { describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { until } from "../support/until.ts";
import { functionFields, type TopicBench } from "./topics-bench.ts";

const cronFields = ["functionId", "environmentId", "timestamp"] as const;

/** Functions and their schedules. */
export function functionTopics(bench: TopicBench): void {
  const { rpc, register, write, tick, framesAt, heard, countHeard, none, openAt } = bench;

  test("system.function.{function_id}.{registered|updated|deleted}, and nothing for what did not happen", async () => {
    const topicOf = (leaf: string) => `system.function.shown.${leaf}`;
    const expected = (leaf: string, name: string) =>
      heard({
        topic: topicOf(leaf),
        fields: functionFields,
        data: { id: "shown", name, status: "active", preferredMode: "pull" },
      });
    await register("shown", { name: "one" });
    await expected("registered", "one");
    await register("shown", { name: "one" });
    expect(await countHeard(topicOf("updated"))).toEqual(none());
    await register("shown", { name: "two" });
    await expected("updated", "two");
    await rpc("DeleteFunction", { id: "shown" });
    await expected("deleted", "two");
    expect((await bench.server().rpc("SvcService", "DeleteFunction", { id: "shown" })).status).toBe(404);
    expect(await countHeard(topicOf("deleted"))).toEqual(bench.sockets().map(() => 1));
  });

  test("a function's id with dots spans several segments: > hears of it, a leaf behind * does not", async () => {
    const narrow = await openAt(bench.server().adminKey, ["system.function.*.registered"]);
    await register("billing.invoice");
    await register("plain-marker");
    await heard({ topic: "system.function.billing.invoice.registered", fields: functionFields, data: {} });
    await heard(
      { topic: "system.function.plain-marker.registered", fields: functionFields, data: {} },
      narrow,
    );
    for (const socket of narrow) {
      expect(framesAt(socket, "system.function.billing.invoice.registered")).toEqual([]);
      socket.close();
    }
  });

  describe("system.cron.{function_id}", () => {
    const cron = async (id: string, expression: string | undefined) => {
      await register(id, {
        triggers: expression === undefined ? [{ event: "e" }] : [{ cron: expression }],
      });
      await tick("schedules.tick");
    };
    const expected = (id: string, leaf: string, extra: Record<string, unknown>) =>
      heard({
        topic: `system.cron.${id}.${leaf}`,
        fields: [...cronFields, ...Object.keys(extra)],
        data: { functionId: id, environmentId: "env_default", ...extra },
      });

    test("registered once an expression, removed with its trigger", async () => {
      const topic = "system.cron.nightly.registered";
      await cron("nightly", "0 3 * * *");
      const registered = { nextRun: expect.stringContaining("T03:00:00.000Z") };
      await expected("nightly", "registered", { expression: "0 3 * * *", replaced: false, ...registered });
      await cron("nightly", "0 3 * * *");
      expect(await countHeard(topic)).toEqual(bench.sockets().map(() => 1));
      await cron("nightly", "0 4 * * *");
      await until(() => bench.sockets().every((socket) => framesAt(socket, topic).length === 2), {
        about: "the change",
      });
      await expected("nightly", "registered", {
        expression: "0 4 * * *",
        replaced: true,
        nextRun: expect.stringContaining("T04:00:00.000Z"),
      });
      expect(await countHeard("system.cron.nightly.removed")).toEqual(none());
      await cron("nightly", undefined);
      await expected("nightly", "removed", { cause: "triggers_changed" });
    });

    test("removed with its function", async () => {
      await cron("doomed", "0 3 * * *");
      await rpc("DeleteFunction", { id: "doomed" });
      await tick("schedules.tick");
      await expected("doomed", "removed", { cause: "function_deleted" });
    });

    test("invalid, and registered as a function all the same", async () => {
      await cron("broken", "CRON_TZ=Mars/Phobos 0 6 * * *");
      await expected("broken", "invalid", {
        expression: "CRON_TZ=Mars/Phobos 0 6 * * *",
        error: expect.any(String),
      });
      expect((await rpc("GetFunction", { id: "broken" })).id).toBe("broken");
    });

    test.each(["downtime", "stall"])("missed by %s", async (cause) => {
      const id = `late-${cause}`;
      await cron(id, "0 * * * *");
      const by = cause === "downtime" ? sql`'somebody else'` : sql`moved_by`;
      await write(sql`UPDATE schedules SET next_at = next_at - ${5 * 3_600_000}, moved_by = ${by}
        WHERE function_id = ${id}`);
      await tick("schedules.tick");
      await expected(id, "missed", {
        count: expect.any(Number),
        cause,
        verified: true,
        windowStart: expect.any(String),
        windowEnd: expect.any(String),
      });
    });
  });
}
