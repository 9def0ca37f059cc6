import { expect, test } from "bun:test";
import { exportLeaseMs, exportPaceMin, exportsAtOnceMax } from "../../src/domain/record/export/limits.ts";
import { ExportPlaces } from "../../src/domain/record/export/service.ts";

const minute = exportLeaseMs;

test("each org has a place; what stands still, or goes too slowly to end, gives way", () => {
  let now = 0;
  const places = new ExportPlaces(() => now);
  const orgs = Array.from({ length: exportsAtOnceMax }, (_, place) => `org_${place}`);
  const taken = orgs.map((org) => places.take(org, `holder of ${org}`));
  const [trickle, steady] = taken;
  expect(() => places.take("org_0", "second")).toThrow("the org is exported already");
  expect(() => places.take("late", "late")).toThrow("this node exports as many orgs as it may");
  // One takes a letter a second, another as much as it must.
  for (now = 1_000; now <= minute; now += 1_000) {
    for (const one of taken) one.note(one === trickle ? 1 : exportPaceMin);
  }
  expect(() => places.take("late", "late")).not.toThrow();
  expect([places.has("org_0", trickle!), places.has("org_1", steady!)]).toEqual([false, true]);
  now += minute;
  expect(() => places.take("org_1", "again")).not.toThrow();
  expect(places.has("org_1", steady!)).toBe(false);
});
