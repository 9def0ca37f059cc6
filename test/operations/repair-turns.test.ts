import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { claimRepair, dueRepairs } from "../../src/domain/engine/repairs/rows.ts";
import { plant } from "../support/plant.ts";
import { engines } from "../support/server.ts";
import { greedy, modest, type SharedStore, sharedStore } from "../support/shares.ts";

describe.each(engines)("turns of repairs on %s", (engine) => {
  let shared: SharedStore;
  beforeAll(async () => {
    shared = await sharedStore(engine);
  });
  afterAll(() => shared.close());

  test("a repair whose turn was lost is due behind the others of its environment", async () => {
    for (const [environment, many] of [
      [greedy, 3],
      [modest, 1],
    ] as const)
      await plant(shared.bare, "repairs", many, {
        ...{ environment_id: `'${environment}'`, id: "'repair_' || n", status: "'running'" },
        ...{ phase: "'select'", due_at: "n", lease_until: "0" },
      });
    const inTurn: string[] = [];
    for (let now = 10; now < 50; now += 10) {
      const due = await dueRepairs(shared.bare, now, 10);
      expect(due.map((key) => key.environment_id).sort()).toEqual([greedy, modest].sort());
      const mine = due.find((key) => key.environment_id === greedy)!;
      inTurn.push(mine.id);
      // Nothing is saved: the turn failed, or its lease was over before.
      const lease = { holder: "node", now, until: now + 5 };
      expect(await shared.bare.write((session) => claimRepair(session, mine, lease))).toMatchObject(mine);
      expect(await shared.bare.write((session) => claimRepair(session, mine, lease))).toBeUndefined();
    }
    expect(inTurn).toEqual(["repair_1", "repair_2", "repair_3", "repair_1"]);
  });
});
