import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { startAlertReceiver } from "../support/alert-receiver.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { isNight } from "../support/night.ts";
import { type Home, makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** By day as often as it takes to kill each node twice. */
const killed = isNight ? 20 : 4;

describe("alerts of two nodes", () => {
  let home: Home;
  let nats: NatsServer;
  const nodes: SpawnedServer[] = [];
  const receiver = startAlertReceiver();

  beforeAll(async () => {
    nats = await startNats();
    home = await makeHome("postgres");
    for (const nodeId of ["a", "b"])
      nodes.push(
        await spawnServer({
          ...{ engine: "postgres", nats: nats.url, home },
          settings: {
            ...{ nodeId, pushAllowPrivate: "127.0.0.0/8", webhookRetryMs: 50, webhookTimeoutMs: 1_000 },
            ...{ alertLookMs: 100, alertAttempts: 50 },
          },
        }),
      );
  }, 120_000);
  afterAll(async () => {
    for (const node of nodes) await node.stop();
    await nats.stop();
    await home.remove();
    receiver.stop();
  });

  const ask = async (node: SpawnedServer, method: string, body: object) => {
    const answer = await node.rpc("AlertService", method, body);
    expect([method, answer.status]).toEqual([method, 200]);
    return answer.body;
  };

  test(
    "one state is one alert while the leader is killed over and over",
    async () => {
      const [first, second] = nodes as [SpawnedServer, SpawnedServer];
      await first.rpc("SvcService", "RegisterFunction", { id: "lonely" });
      const targets = [{ type: "webhook", url: receiver.url("/two") }];
      const rule = { name: "two", condition: "no_worker", functionId: "lonely", targets, repeatAfterMs: 0 };
      await ask(first, "PutAlertRule", rule);
      let epoch = 0;
      /** The node that looks and sends, once it is another than the one that was killed last. */
      const leader = async () => {
        const { leaders } = (await first.api("/api/v1/cluster/health")).body as {
          leaders: { duty: string; node_id: string; epoch: number }[];
        };
        const lead = leaders.find(({ duty }) => duty === "alerts");
        if (!lead || lead.epoch <= epoch) return undefined;
        epoch = lead.epoch;
        return { a: first, b: second }[lead.node_id];
      };
      const found = (node: SpawnedServer) =>
        until(async () => ((await ask(node, "ListAlerts", {})).alerts ?? []).length === 1, {
          ...{ about: "the alert", deadlineMs: 60_000, everyMs: 100 },
        });
      for (let time = 0; time < killed; time++) {
        const gone = await until(leader, { about: "a leader", deadlineMs: 60_000, everyMs: 100 });
        // The first one dies while it looks for the first time, the others while the alert lasts.
        await gone.kill9();
        await found(gone === first ? second : first);
        await gone.restart();
      }
      await until(async () => receiver.at("/two").length > 0, { about: "the message", deadlineMs: 60_000 });
      const { alerts } = await ask(first, "ListAlerts", {});
      expect(alerts).toEqual([expect.objectContaining({ rule: "two", subject: "lonely", state: "open" })]);
      // A node that dies between the message and its note repeats the message, under its id.
      const ids = new Set(receiver.at("/two").map(({ headers }) => headers.get("webhook-id")));
      expect([...ids]).toHaveLength(1);
      await first.api("/api/v1/workers/w1/register", { body: { function_ids: ["lonely"] } });
      await until(async () => (await ask(first, "ListAlerts", { state: "resolved" })).alerts?.length === 1, {
        about: "its end",
        deadlineMs: 60_000,
        everyMs: 100,
      });
      await until(async () => receiver.at("/two").some(({ body }) => body.type === "alert.resolved"), {
        ...{ about: "the message of its end", deadlineMs: 60_000 },
      });
      expect(receiver.at("/two").filter(({ body }) => body.type === "alert.opened").length).toBeGreaterThan(
        0,
      );
      expect((await ask(first, "ListAlerts", {})).alerts).toHaveLength(1);
    },
    isNight ? 900_000 : 180_000,
  );
});
