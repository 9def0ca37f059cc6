import { expect, test } from "bun:test";
import { FlowCounts } from "../../src/domain/record/flow/counts.ts";
import { flowEdgesMax, publishesMax } from "../../src/domain/record/flow/limits.ts";
import { lastMinute, type Rate } from "../../src/domain/record/flow/rules.ts";

const environmentId = "env_a";

test("counts what happened until it is taken, and keeps what is put back", () => {
  const counts = new FlowCounts();
  const told = (count: number) => counts.edges(environmentId, "emit").add("fn", "told", count);
  told(1);
  told(2);
  counts.happened(environmentId, "events", 3);
  counts.publishes(environmentId).add("run_1", "news", 1);
  const taken = counts.take();
  const edge = { environmentId, kind: "emit", source: "fn", target: "told", count: 3 };
  expect(taken).toMatchObject({ edges: [edge], minutes: [{ environmentId, events: 3 }] });
  expect(counts.take()).toEqual({ edges: [], minutes: [] });
  told(1);
  counts.putBack(taken);
  expect(counts.take()).toMatchObject({ edges: [{ count: 4 }], minutes: [{ events: 3, failed: 0 }] });
  expect(counts.takePublishes()).toEqual([{ environmentId, runId: "run_1", topic: "news", count: 1 }]);
});

test("keeps a bounded number of different ones, and counts the others together", () => {
  const counts = new FlowCounts();
  for (let at = 0; at < flowEdgesMax + 5; at++)
    counts.edges(environmentId, "wait").add("fn", `event.${at}`, 2);
  for (let at = 0; at < publishesMax + 7; at++) counts.publishes(environmentId).add(`run_${at}`, "news", 1);
  expect(counts.takePublishes()).toHaveLength(publishesMax);
  const { edges } = counts.take();
  expect(edges).toHaveLength(flowEdgesMax + 2);
  expect(edges.filter(({ source }) => source === "")).toEqual([
    { environmentId, kind: "wait", source: "", target: "", count: 10 },
    { environmentId, kind: "topic", source: "", target: "", count: 7 },
  ]);
});

test("the last minute takes of the minute before the share that is still within", () => {
  const rate = (events: number): Rate => ({ events, started: 0, completed: 0, failed: 0, cancelled: 0 });
  for (const [second, events] of [
    [0, 64],
    [15, 49],
    [59, 5],
  ] as const)
    expect(lastMinute(60_000 * 7 + second * 1_000, rate(4), rate(60)).events).toBe(events);
});
