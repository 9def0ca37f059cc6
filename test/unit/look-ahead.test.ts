import { expect, test } from "bun:test";
import { LookAhead } from "../../src/domain/realtime/groups/look-ahead.ts";
import type { GroupRow } from "../../src/domain/realtime/groups/rows.ts";
import { systemClock } from "../../src/kit/clock.ts";

test("what a group has passed at another node is not read here", async () => {
  const after: number[] = [];
  const source = {
    async between(_: string, range: { after: number }) {
      after.push(range.after);
      return [];
    },
    at: async () => [],
  };
  const group = { environment_id: "env", pattern: "topic:t", filter_expr: null, position: 10 };
  const ahead = new LookAhead({ clock: systemClock(), source }, group as GroupRow);
  ahead.passTo(1_000);
  expect(ahead.reached).toBe(1_000);
  await ahead.readTo(() => 1_010);
  ahead.passTo(500);
  expect([after, ahead.reached]).toEqual([[1_000], 1_010]);
});
