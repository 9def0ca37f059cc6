import { expect, test } from "bun:test";
import { outputBatchChars, outputIdleMs } from "../../src/domain/engine/runs/outputs/limits.ts";
import { type OutputFrames, openOutputReaders } from "../../src/domain/engine/runs/outputs/output-readers.ts";
import { testClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";

/** A run that goes on, and has written these chunks at once. */
function opened(chunks: readonly unknown[]) {
  const text = JSON.stringify(chunks);
  const row = { first: 0, source_first: 0, attempt: 1, count: chunks.length, total: text.length };
  let reads = 0;
  const store = {
    seams: { rowsFrom: () => sql.raw("i") },
    one: async () => ({ status: "active" }),
    async all() {
      reads++;
      return [{ ord: 1, status: "active", ...row, chunks: text, superseded_by: null }];
    },
  } as unknown as Store;
  const clock = testClock();
  const { read } = openOutputReaders({ store, clock, hearsAll: () => false, watchEnd: () => () => {} });
  const at = { environmentId: "env", runId: "run", name: "tokens", from: 0 };
  const open = () =>
    read({ id: "somebody", orgId: "org_a" }, { ...at, signal: new AbortController().signal });
  const settled = async <Value>(promise: Promise<Value>): Promise<Value> => {
    for (let turn = 0; turn < 20; turn++) await clock.advance(0);
    return promise;
  };
  return { clock, open, settled, reads: () => reads };
}

test("readers at one place share a query and what it found, and one that comes a little later does too", async () => {
  const { open, settled, reads } = opened(["a", "b"]);
  const [one, other, late] = await Promise.all([open(), open(), open()]);
  const [first, second] = await settled(Promise.all([one.next(), other.next()]));
  expect(first!.value).toMatchObject([
    { index: 0, data: "a" },
    { index: 1, data: "b" },
  ]);
  expect(second!.value).toBe(first!.value);
  expect((await settled(late.next())).value).toBe(first!.value);
  expect(reads()).toBe(1);
});

test("what is much is handed over in parts, in order", async () => {
  const { open, settled } = opened(Array.from({ length: 5 }, () => "x".repeat(outputBatchChars / 2 - 10)));
  const reader = await open();
  const parts: OutputFrames[] = [];
  for (let part = 0; part < 3; part++) parts.push((await settled(reader.next())).value as OutputFrames);
  expect(parts.map((frames) => frames.map(({ index }) => index))).toEqual([[0, 1], [2, 3], [4]]);
});

test("a reader that takes nothing is cut, and is told so when it comes again", async () => {
  const { clock, open, settled } = opened(["a"]);
  const reader = await open();
  await settled(reader.next());
  await clock.advance(outputIdleMs);
  expect(reader.next()).rejects.toMatchObject({ kind: "aborted" });
});
