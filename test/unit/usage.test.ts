import { expect, test } from "bun:test";
import { UsageCounts } from "../../src/domain/record/usage/counts.ts";
import { usageFunctionsMax, usageUnnamedMax } from "../../src/domain/record/usage/limits.ts";
import { dayMs, dayOf, daysAsked, dayText, groupingOf } from "../../src/domain/record/usage/rules.ts";
import { openUsage } from "../../src/domain/record/usage/service.ts";
import { csv, sheet } from "../../src/kit/csv.ts";
import { type Store, StoreError, type StoreTrouble } from "../../src/store/store.ts";

const environmentId = "env_a";
const now = Date.parse("2026-11-28T13:00:00Z");
const today = dayOf(now);

test("counts by the day on which something happened until it is taken, and keeps what is put back", () => {
  const counts = new UsageCounts();
  counts.of(environmentId, now, "pay").started += 2;
  counts.of(environmentId, today - 1, "pay").started += 1;
  counts.of(environmentId, now).events += 3;
  const taken = counts.take();
  const row = { environmentId, day: today, functionId: "pay", started: 2, events: 0 };
  expect(taken).toHaveLength(3);
  expect(taken).toContainEqual(expect.objectContaining(row));
  expect(taken).toContainEqual(expect.objectContaining({ ...row, day: today - dayMs, started: 1 }));
  expect(taken).toContainEqual(
    expect.objectContaining({ environmentId, day: today, functionId: "", events: 3 }),
  );
  expect(counts.take()).toEqual([]);
  counts.of(environmentId, now, "pay").started += 1;
  counts.putBack(taken);
  expect(counts.take()).toContainEqual(expect.objectContaining({ ...row, started: 3 }));
});

test("tells a bounded number of functions apart, and counts the others together", () => {
  const counts = new UsageCounts();
  for (let at = 0; at < usageFunctionsMax + 5; at++) counts.of(environmentId, now, `fn-${at}`).steps += 2;
  const rows = counts.take();
  expect(rows).toHaveLength(usageFunctionsMax + 1);
  expect(rows.find(({ functionId }) => functionId === "")?.steps).toBe(10);
});

test("remembers a bounded number of ends without a function, of each environment apart", () => {
  const counts = new UsageCounts();
  for (let at = 0; at < usageUnnamedMax + 7; at++)
    counts.endedUnnamed(environmentId, now, { runId: `run_${at}`, ends: "cancelled" });
  counts.endedUnnamed("env_b", now, { runId: "run_b", ends: "failed" });
  expect(counts.takeUnnamed()).toHaveLength(usageUnnamedMax + 1);
  expect(counts.take()).toMatchObject([{ environmentId, functionId: "", cancelled: 7, failed: 0 }]);
});

test("a write that the store refused is repeated; one that it may have done is not", async () => {
  let trouble: StoreTrouble | undefined;
  let written = 0;
  const write = async () => {
    written++;
    if (trouble !== undefined) throw new StoreError(trouble, "test");
  };
  const clock = { now: () => now } as never;
  const usage = openUsage({ store: { write } as unknown as Store, clock });
  const start = () => usage.started([{ environmentId, functionId: "pay" }], now);
  start();
  trouble = "lock_timeout";
  await expect(usage.writeOnce()).rejects.toThrow("lock_timeout");
  trouble = "unavailable";
  await usage.writeOnce().catch(() => {});
  trouble = undefined;
  expect(written).toBe(2);
  await usage.writeOnce();
  expect(written).toBe(2);
  start();
  await usage.writeOnce();
  expect(written).toBe(3);
});

test("days are read as days of UTC, the last 30 when left out", () => {
  const { from, to } = daysAsked({}, now);
  expect([dayText(from), dayText(to)]).toEqual(["2026-10-30", "2026-11-28"]);
  expect(dayText(daysAsked({ to: "2024-03-01" }, now).from)).toBe("2024-02-01");
  for (const [asked, field] of [
    [{ from: "2026-02-30" }, "from"],
    [{ to: "yesterday" }, "to"],
    [{ to: "2026-11-28T00:00:00Z" }, "to"],
    [{ from: "2026-11-29" }, "not be later"],
    [{ from: "2026-08-01", to: "2026-11-01" }, "91 days"],
  ] as const)
    expect(() => daysAsked(asked, now)).toThrow(field);
  expect([groupingOf(), groupingOf(""), groupingOf("function")]).toEqual(["day", "day", "function"]);
  expect(() => groupingOf("hour")).toThrow("group_by");
});

test("CSV quotes what needs quotes, and a sheet takes no text for a formula", () => {
  expect(
    csv([
      ["a", 'b"c'],
      ["1,2", "=1"],
    ]),
  ).toBe('a,"b""c"\r\n"1,2",=1\r\n');
  expect(sheet([["=1+1", "12"]])).toBe("'=1+1,12\r\n");
});
