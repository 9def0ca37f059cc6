import { expect, test } from "bun:test";
import { engines } from "../support/engines.ts";
import { isNight } from "../support/night.ts";
import { isSoak, seed } from "../support/soak.ts";
import { runHooksIn } from "./hooks-in.ts";
import { runHooksOut } from "./hooks-out.ts";

// The short mode of `bun run faults:webhooks`.
test.each(engines.filter((engine) => isNight || isSoak || engine === "postgres"))(
  "on %s each webhook that was accepted is one event, whatever dies meanwhile",
  async (engine) => {
    const deliveries = isSoak ? 20_000 : 1_000;
    const kills = isSoak ? 4 : engine === "postgres" ? 2 : 1;
    const found = await runHooksIn({ engine, deliveries, kills, seed: `${seed}` });
    expect(found.breaches).toEqual([]);
    // And that there was something to be found in.
    expect(found.accepted).toBeGreaterThan(deliveries * 0.75);
    expect(found.repeated).toBeGreaterThan(deliveries * 0.05);
    expect(found.forged).toBeGreaterThan(deliveries * 0.02);
  },
  isSoak ? 600_000 : 120_000,
);

test.each(engines.filter((engine) => isNight || isSoak || engine === "libsql"))(
  "on %s an endpoint that failed for long gets all in order, as do the others meanwhile, though nodes die",
  async (engine) => {
    // On PostgreSQL `operations/webhook-endpoints` kills one of two nodes.
    const kills = engine === "libsql" ? 1 : 0;
    const size = isSoak
      ? { events: 3_000, failsMs: 30_000, kills: 3 }
      : { events: 150, failsMs: 1_500, kills };
    const found = await runHooksOut({ engine, ...size, isHurried: !isSoak });
    expect(found.breaches).toEqual([]);
    expect([found.events, found.refused > 2]).toEqual([size.events, true]);
  },
  isSoak ? 900_000 : 120_000,
);

test("an accepted webhook that is lost, and an event that is left out, would be found", async () => {
  const lost = await runHooksIn({ engine: "libsql", deliveries: 100, kills: 0, seed: "1", isPlanted: true });
  expect(lost.breaches).toHaveLength(2);
  const skipped = { engine: "libsql", events: 20, failsMs: 500, kills: 0, isHurried: true } as const;
  expect((await runHooksOut({ ...skipped, isPlanted: true })).breaches.join()).toContain("of 20 came");
}, 120_000);
