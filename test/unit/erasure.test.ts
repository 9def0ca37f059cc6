import { expect, test } from "bun:test";
import { redactedDetail, redactedLines } from "../../src/domain/record/erasure/rules.ts";
import { tablesOfRuns } from "../../src/domain/record/retention/rows.ts";
import { tables } from "../../src/store/tables/index.ts";

/** Tables that name a run, and keep their rows when it is deleted. */
const beside: Record<string, string> = {
  executions: "only of runs that are not over",
  waits: "only of runs that are not over",
  runs: "the run itself; its children keep its id",
  events: "events stay, with the id of the run that emitted them",
  topic_messages: "messages stay, likewise",
  delayed_events: "they are still to be emitted",
  start_gates: "counts of a function, which its period ends",
  idempotency_keys: "answers of a day, which name ids alone",
  error_groups: "of many runs: the deletion takes the run out of its group",
  repair_items: "of their repair, which names ids alone",
};

test("no table of runs is forgotten when a run is deleted", () => {
  const going = new Set(tablesOfRuns.map(({ table }) => table));
  const named = Object.entries(tables)
    .filter(([, { columns }]) => /\brun_ids?\b|_run_ids?\b/.test(columns))
    .map(([name]) => name);
  expect(named.filter((name) => !going.has(name) && !(name in beside))).toEqual([]);
  expect(
    Object.keys(beside).filter((name) => going.has(name) || (name !== "runs" && !named.includes(name))),
  ).toEqual([]);
  for (const { table, ofRun } of tablesOfRuns) expect(tables[table]!.columns).toContain(`${ofRun} TEXT`);
});

test("no text of a run is forgotten when it is redacted", async () => {
  const file = Bun.file(`${import.meta.dir}/../../src/domain/record/erasure/rows.ts`);
  const written = await file.text();
  const named: Record<string, string> = { batch_events: "the event's, which has a call of its own" };
  const kept = tablesOfRuns
    .map(({ table }) => table)
    .filter((table) => {
      const { exported } = tables[table]!;
      return typeof exported === "object" && exported.json !== undefined;
    })
    .filter((table) => !(table in named) && !written.includes(`UPDATE ${table} SET`));
  expect(kept).toEqual([]);
});

const redaction = { at: Date.parse("2026-01-02T03:04:05Z"), by: "user_1" };
const secret = "ann@example.com";
const detail = (value: object, stepId?: string) => {
  const made = redactedDetail(JSON.stringify(value), redaction, stepId);
  return made === undefined ? undefined : JSON.parse(made);
};
const mark = { $redacted: true, at: "2026-01-02T03:04:05.000Z", by: "user_1" };

test("of a note ids, names, counts and times stay", () => {
  const noted = { attempt: 2, worker_id: "w", steps: [{ step_id: "a", status: "failed" }], retry_in_ms: 5 };
  expect(detail(noted)).toBeUndefined();
  expect(
    detail({
      ...noted,
      error: { message: secret, retryable: true },
      reason: secret,
      unknown: [secret],
      output: 5,
    }),
  ).toEqual({
    ...noted,
    error: { message: JSON.stringify(mark), code: "REDACTED", retryable: false },
    reason: mark,
    ...{ unknown: mark, output: mark },
  });
  expect(detail({ error: null, cause: "user" })).toBeUndefined();
});

test("tries, discarded steps, outputs and endings lose their values", () => {
  const written = {
    failed: [{ step_id: "a", started_at: 1, error: { message: secret } }],
    discarded: [
      { step_id: "a", name: "a", output: secret, original_output: null, error: secret, sequence: 1 },
    ],
    ending: { status: "failed", error: { message: secret }, tries: 1, reason: secret },
    previous_output: { mail: secret },
    output: secret,
  };
  expect(JSON.stringify(detail(written))).not.toContain(secret);
  expect(detail(written)).toMatchObject({
    failed: [{ step_id: "a", started_at: 1, error: { code: "REDACTED" } }],
    discarded: [{ step_id: "a", name: "a", sequence: 1 }],
    ending: { status: "failed", error: { code: "REDACTED" }, tries: 1 },
    ...{ previous_output: mark, output: mark },
  });
});

test("of one step the others keep theirs", () => {
  const written = {
    failed: [
      { step_id: "a", error: { message: secret } },
      { step_id: "b", error: { message: "b failed" } },
    ],
    error: { message: "the run's" },
  };
  expect(detail(written, "a")).toMatchObject({
    failed: [{ error: { code: "REDACTED" } }, { error: { message: "b failed" } }],
    error: { message: "the run's" },
  });
  expect(detail({ step_id: "b", output: 1 }, "a")).toBeUndefined();
  expect(redactedDetail("no JSON", redaction)).toBe("{}");
});

test("a line says when and where it was written, and is redacted once", () => {
  const lines = [
    { at: "t", level: "warn", text: secret, fields: { mail: secret }, step: "a" },
    { at: "t", level: "info", text: "plain" },
  ];
  const one = redactedLines(JSON.stringify(lines), redaction, "a")!;
  expect(JSON.parse(one)).toEqual([
    { at: "t", level: "warn", text: JSON.stringify(mark), step: "a" },
    lines[1],
  ]);
  const whole = redactedLines(one, redaction)!;
  expect(whole).not.toContain("plain");
  expect(redactedLines(whole, redaction)).toBeUndefined();
  expect(redactedLines("{}", redaction)).toBe("[]");
});
