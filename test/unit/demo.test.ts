import { describe, expect, test } from "bun:test";
import { type Commit, classify, parseSubject } from "../../src/demo/classify.ts";
import { type JournalEntry, summarize } from "../../src/demo/journal.ts";
import { percentile } from "../../src/demo/verify.ts";

const commit = (paths: string[], lines = 1): Commit => ({
  hash: "h",
  author: "a",
  date: "2026-01-01T00:00:00Z",
  subject: "s",
  paths,
  filesChanged: paths.length,
  insertions: lines,
  deletions: 0,
});

describe("a commit is understood", () => {
  test("by the parts of its subject", () => {
    expect(parseSubject("fix(store)!: keep order (#12, #7)")).toEqual({
      type: "fix",
      scope: "store",
      breaking: true,
      refs: ["#12", "#7"],
    });
    expect(parseSubject("The kit: store, bus")).toEqual({ breaking: false, refs: [] });
  });

  test("by its type, else by most of its paths", () => {
    expect(classify(commit(["a.md"]), { type: "feat", breaking: false, refs: [] }).kind).toBe("feature");
    const plain = { breaking: false, refs: [] };
    expect(classify(commit(["README.md", "docs/x.md", "src/a.ts"]), plain).kind).toBe("docs");
    expect(classify(commit(["test/unit/a.test.ts"]), plain).kind).toBe("test");
    expect(classify(commit(["package.json", "tsconfig.json"]), plain).kind).toBe("build");
    expect(classify(commit([]), plain).kind).toBe("code");
  });

  test("by its size", () => {
    const sizes = [20, 21, 201].map(
      (lines) => classify(commit([], lines), { breaking: false, refs: [] }).size,
    );
    expect(sizes).toEqual(["small", "medium", "large"]);
  });
});

test("the journal tells a repeated acknowledged step from one that was only under way", () => {
  const entry = (what: JournalEntry["what"], step: string, pid: number): JournalEntry => ({
    what,
    runId: "r",
    step,
    pid,
  });
  const summary = summarize([
    entry("enter", "", 1),
    entry("start", "a", 1),
    entry("stored", "a", 1),
    entry("start", "b", 1),
    entry("enter", "", 2),
    entry("start", "b", 2),
    entry("start", "a", 2),
  ]);
  expect(summary.repeatedAfterStored).toEqual(["r a"]);
  expect(summary.repeatedInFlight).toBe(1);
  expect(summary.runs.get("r")).toEqual({ entries: 2, pids: new Set([1, 2]) });
});

test("percentiles are values that occurred", () => {
  expect([percentile([3, 1, 2], 0.5), percentile([1, 2], 0.95), percentile([], 0.5)]).toEqual([2, 2, 0]);
});
