import { expect, test } from "bun:test";
import {
  checkDebounced,
  checkEverySlot,
  checkLedgers,
  checkResults,
  overfullLanes,
} from "../support/engine-checkers.ts";

/** A reader that answers these rows, whatever it is asked: the judgement alone is tried here. */
const rows = (...found: object[]) => ({ all: async <Row>() => found as Row[] });

test("each checker of the engine is seen to fail, and leaves alone what is right", async () => {
  const programs = new Map([
    ["f", { id: "f", lines: [], endsBadly: false, maxAttempts: 1, concurrency: undefined }],
  ]);
  const run = {
    id: "r",
    function_id: "f",
    status: "completed",
    output: "[]",
    error: null,
    data: '{"input":"a"}',
    parent_run_id: null,
  };
  const results = (changes: object) =>
    checkResults(rows({ ...run, ...changes }), { programs, steered: new Map() });
  expect(await results({})).toEqual([]);
  for (const changes of [
    { output: "[1]" },
    { status: "failed" },
    { status: "cancelled" },
    { status: "active" },
  ])
    expect(await results(changes)).toHaveLength(1);
  expect(await checkResults(rows(run, { ...run, id: "s" }), { programs, steered: new Map() })).toHaveLength(
    1,
  );

  const ledger = { function_id: "t", expected: 3, fired: 2, missed: 1, runs: 2 };
  expect(await checkLedgers(rows(ledger))).toEqual([]);
  expect(await checkLedgers(rows({ ...ledger, expected: 4 }))).toHaveLength(1);
  expect(await checkLedgers(rows({ ...ledger, runs: 3 }))).toHaveLength(1);
  expect(await checkEverySlot(rows({ created_at: 500, next_at: 4_000, expected: 3 }), "t")).toEqual([]);
  expect(await checkEverySlot(rows({ created_at: 500, next_at: 9_000, expected: 3 }), "t")).toHaveLength(1);
  expect(await overfullLanes(rows({ lane_id: "l", count: 3, lane_limit: 2 }))).toHaveLength(1);

  const event = (id: string, at: number, fired: string | null) => ({ id, at, fired, data: '{"burst":"b"}' });
  const burst = (...events: object[]) =>
    checkDebounced(rows(...events), {
      functionId: "d",
      event: "burst",
      periodMs: 100,
      bursts: new Map([["b", ["1", "2"]]]),
    });
  expect(await burst(event("1", 0, null), event("2", 10, "r"))).toEqual([]);
  expect(await burst(event("1", 0, "q"), event("2", 10, "r"))).toHaveLength(1);
  expect(await burst(event("1", 0, "q"), event("2", 200, "r"))).toEqual([]);
  expect(await burst(event("1", 0, "q"), event("2", 10, null))).toHaveLength(1);
  expect((await burst(event("1", 0, "q"))).join()).toContain("is not there");
});
