import { expect } from "bun:test";
import { createFunction, NonRetryableError } from "../../src/sdk/index.ts";
import { until } from "../support/until.ts";
import type { Inside } from "../support/worlds.ts";
import type { Promises } from "./worlds.ts";

const effects = new Map<string, number>();
/** How often something outside was done for this run. */
const counted = (key: string) => {
  effects.set(key, (effects.get(key) ?? 0) + 1);
  return effects.get(key)!;
};
const dataOf = <Data>(event: { data: unknown }) => event.data as Data;

const child = createFunction({ id: "run-child" }, async ({ event, step }) => {
  const { of, fails } = dataOf<{ of: string; fails?: boolean }>(event);
  await step.sleep("a moment", 5);
  if (fails) throw new NonRetryableError(`${of} is broken`, { code: "BROKEN" });
  return `${of} of a child`;
});
const steps = createFunction({ id: "run-steps" }, async ({ run, step }) => {
  const first = await step.run("first", () => counted(`${run.id} first`));
  await step.sleep("pause", 20);
  const second = await step.run("second", () => counted(`${run.id} second`));
  return { first, second, at: await step.run("at", () => new Date(0)) };
});
const retried = createFunction(
  { id: "run-retried", retry: { maxAttempts: 3, initialDelayMs: 10 } },
  async ({ run, step }) => {
    const of = await step.run("of", () => counted(`${run.id} of`));
    const tries = await step.run(
      "tried",
      ({ attempt }) => {
        if (attempt < 3) throw new Error("not yet");
        return attempt;
      },
      { retry: { maxAttempts: 3, delay: 10 } },
    );
    if (run.attempt < 2) throw new Error("again");
    return [of, tries, run.attempt];
  },
);
const sleeper = createFunction({ id: "run-sleeper" }, async ({ event, step }) => {
  const { until: instant } = dataOf<{ until: string }>(event);
  await step.sleepUntil("then", instant);
  return step.run("woken at", () => Date.now());
});
const waiter = createFunction({ id: "run-waiter" }, async ({ event, step }) => {
  const { kind, of } = dataOf<{ kind: string; of: string }>(event);
  if (kind === "event")
    return (await step.waitForEvent("run.awaited", { match: "of", timeout: "1h" }))?.data ?? null;
  if (kind === "none")
    return step.waitForEvent("run.never", { match: "of", timeout: 50 }).then((met) => met ?? "late");
  if (kind === "stream") return (await step.waitForStream(of, { version: 2 }))?.version;
  if (kind === "key") return (await step.waitForKey("run-waits", of, { equals: { is: "free" } }))?.exists;
  const { runId } = await step.invokeAsync("run-child", { input: { of, fails: kind === "failed" } });
  const met = await step.waitForRun(runId, { name: "child" });
  return [met?.status, met?.output ?? met?.error?.code];
});
const chooser = createFunction({ id: "run-chooser" }, async ({ event, step }) => {
  const { of } = dataOf<{ of: string }>(event);
  const any = await step.waitForAny("any", {
    paid: { event: "run.chosen", match: "of", matchValue: of },
    stock: { stream: of, version: 1 },
    lock: { bucket: "run-waits", key: of, exists: true },
  });
  const all = await step.waitForAll("all", {
    paid: { event: "run.chosen", match: "of", matchValue: of },
    stock: { stream: of, version: 1 },
  });
  const none = await step.waitForNone("none", { stock: { stream: of, version: 2 } }, { timeout: 30 });
  return [any?.name, all?.stock.version, none];
});
const parent = createFunction({ id: "run-parent" }, async ({ step }) => {
  const left = await step.invoke(child, { input: { of: "left" } });
  const right = await step
    .invoke(child, { input: { of: "right", fails: true } })
    .catch((error: Error) => error.message);
  const both = await step.map("each", ["ı", "I"], (item) => step.run("one", () => item.toLowerCase()));
  return [left, right, both];
});
const undone = createFunction(
  {
    id: "run-undone",
    onFailure: ({ run, error, step }) => step.run("tell", () => counted(`${run.id} ${error.message}`)),
  },
  async ({ event, run, step }) => {
    await step.run("take", () => 1, { compensate: () => counted(`${run.id} given back`) });
    if (dataOf<{ fails?: boolean }>(event).fails) throw new NonRetryableError("out of stock");
    await step.waitForEvent("run.never", { timeout: "1h" });
  },
);
const found = createFunction({ id: "run-found", event: "run.found" }, ({ event, run }) => {
  const { name, total, at } = dataOf<{ name: string; total: number; at: string }>(event);
  run.set({ runName: name, runTotal: total, runAt: new Date(at) });
});
const failing = createFunction(
  { id: "run-failing", retry: { maxAttempts: 1 } },
  async ({ event, run, step }) => {
    await step.run("before", () => counted(`${run.id} before`));
    const { text } = dataOf<{ text: string }>(event);
    if (effects.get(text) !== 1) throw Object.assign(new Error(text), { code: "DECLINED" });
    return "whole";
  },
);

export const functionsOfRuns = [
  ...[child, steps, retried, sleeper, waiter, chooser, parent, undone, found, failing],
];

const patience = { timeoutMs: 25_000 };
const start = async ({ client }: Inside, id: string, input: object = {}) =>
  (await client.invokeFunction(id, input)).runId;
const ended = ({ client }: Inside, runId: string) => client.waitForRun(runId, patience);
const outputOf = async (inside: Inside, id: string, input: object = {}) => {
  const { output, status, error } = await ended(inside, await start(inside, id, input));
  expect([status, error]).toEqual(["completed", undefined]);
  return output;
};
const rests = ({ client }: Inside, runId: string, at: string) =>
  until(
    async () =>
      (await client.getRunSteps(runId)).some(({ name, status }) => name === at && status !== "completed"),
    {
      about: `${runId} to rest at ${at}`,
    },
  );
const append = ({ client }: Inside, entityId: string) =>
  client.streams.append({ entityId, entityType: "run", event: "run.moved", data: {}, expectedVersion: -1 });
const bucket = ({ client }: Inside) =>
  client.kv.createBucket("run-waits").catch(({ code }) => expect(code).toBe("already_exists"));

export const promisesOfRuns: Promises = {
  async "a run does each step once, over its sleeps"(inside) {
    expect(await outputOf(inside, "run-steps")).toEqual({ first: 1, second: 1, at: new Date(0).toJSON() });
  },
  async "what fails is tried again: the step alone, and the run"(inside) {
    expect(await outputOf(inside, "run-retried")).toEqual([1, 3, 2]);
  },
  async "a run sleeps until an instant, wherever clocks stand"(inside) {
    // One after the other: a clock that steps each second is met at every step.
    for (let n = 0; n < 5; n++) {
      const until = new Date(Date.now() + 600).toISOString();
      const woken = (await outputOf(inside, "run-sleeper", { until })) as number;
      expect(woken - Date.parse(until)).toBeGreaterThanOrEqual(-50);
    }
  },
  async "a run waits for an event that matches"(inside) {
    const runId = await start(inside, "run-waiter", { kind: "event", of: "İ-1" });
    await rests(inside, runId, "run.awaited");
    for (const of of ["i-1", "İ-1"]) await inside.client.emit("run.awaited", { of });
    expect((await ended(inside, runId)).output).toEqual({ of: "İ-1" });
  },
  async "a wait for an event ends at its time"(inside) {
    expect(await outputOf(inside, "run-waiter", { kind: "none", of: "x" })).toBe("late");
  },
  async "a run waits for a version of a stream"(inside) {
    const runId = await start(inside, "run-waiter", { kind: "stream", of: "run-stream" });
    await rests(inside, runId, "run-stream");
    for (let version = 1; version <= 2; version++) await append(inside, "run-stream");
    expect((await ended(inside, runId)).output).toBe(2);
  },
  async "a run waits for the value of a key"(inside) {
    await bucket(inside);
    const runId = await start(inside, "run-waiter", { kind: "key", of: "run-key" });
    await rests(inside, runId, "run-waits/run-key");
    for (const is of ["taken", "free"]) await inside.client.kv.put("run-waits", "run-key", { is });
    expect((await ended(inside, runId)).output).toBe(true);
  },
  async "a run waits for runs that it started, however they end"(inside) {
    const ends = await Promise.all(
      ["good", "failed"].map((kind) => outputOf(inside, "run-waiter", { kind, of: kind })),
    );
    expect(ends).toEqual([
      ["completed", "good of a child"],
      ["failed", "BROKEN"],
    ]);
  },
  async "a run waits for the first of several things, for all, and for none"(inside) {
    await bucket(inside);
    const runId = await start(inside, "run-chooser", { of: "run-choice" });
    await rests(inside, runId, "any");
    await append(inside, "run-choice");
    await rests(inside, runId, "all");
    await inside.client.emit("run.chosen", { of: "run-choice" });
    expect((await ended(inside, runId)).output).toEqual(["stock", 1, null]);
  },
  async "a run has the outputs of its children, and branches side by side"(inside) {
    const [left, right, both] = (await outputOf(inside, "run-parent")) as [string, string, string[]];
    expect([left, both]).toEqual(["left of a child", ["ı", "i"]]);
    expect(right).toContain("right is broken");
  },
  async "a cancelled run is undone, and ends as cancelled"(inside) {
    const runId = await start(inside, "run-undone");
    await rests(inside, runId, "run.never");
    await inside.client.cancelRun(runId, { reason: "a change of mind" });
    expect((await ended(inside, runId)).status).toBe("cancelled");
    expect(effects.get(`${runId} given back`)).toBe(1);
  },
  async "a failed run is undone, and its failure told"(inside) {
    const runId = await start(inside, "run-undone", { fails: true });
    expect(await ended(inside, runId)).toMatchObject({
      status: "failed",
      error: { message: "out of stock" },
    });
    expect([effects.get(`${runId} given back`), effects.get(`${runId} out of stock`)]).toEqual([1, 1]);
  },
  async "a paused run rests until it is resumed"(inside) {
    const { client } = inside;
    const runId = await start(inside, "run-waiter", { kind: "event", of: "paused" });
    await rests(inside, runId, "run.awaited");
    await client.pauseRun(runId);
    expect((await client.getRun(runId)).status).toBe("paused");
    await client.resumeRun(runId);
    await client.emit("run.awaited", { of: "paused" });
    expect((await ended(inside, runId)).output).toEqual({ of: "paused" });
  },
  async "a failed run is resumed at the step that failed"(inside) {
    const text = `run-failing ${crypto.randomUUID()}`;
    const runId = await start(inside, "run-failing", { text });
    expect((await ended(inside, runId)).status).toBe("failed");
    counted(text);
    await inside.client.resumeRun(runId);
    const run = await until(
      async () => {
        const now = await inside.client.getRun(runId);
        return now.status === "completed" && now;
      },
      { about: "the resumed run to end" },
    );
    expect([run.output, effects.get(`${runId} before`)]).toEqual(["whole", 1]);
  },
  async "runs are found by attributes, and sorted by them"(inside) {
    const { client } = inside;
    const names = ["run-I", "run-i", "run-ı", "run-B", "run-a", "run-_"];
    const runIds = await Promise.all(
      names.map(async (name, at) => {
        const data = { name, total: 10 * at + 0.5, at: `2026-0${at + 1}-01T00:30:00Z` };
        return (await client.emit("run.found", data)).runIds[0]!;
      }),
    );
    for (const runId of runIds) await ended(inside, runId);
    const of = async (asked: Parameters<typeof client.listRuns>[0]) =>
      (await client.listRuns({ functionId: "run-found", ...asked })).runs.map(
        ({ attributes }) => attributes?.runName,
      );
    const sorted = names.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    expect(await of({ orderBy: { name: "runName", ascending: true } })).toEqual(sorted);
    expect(await of({ attributes: { runName: "run-i" } })).toEqual(["run-i"]);
    expect(
      await of({ attributes: { runTotal: { gte: 20.5, lt: 40 } }, orderBy: { name: "runTotal" } }),
    ).toEqual(["run-B", "run-ı"]);
    const march = { gte: new Date("2026-03-01T00:00:00Z"), lt: new Date("2026-04-01T00:00:00Z") };
    expect(await of({ attributes: { runAt: march } })).toEqual(["run-ı"]);
    expect((await of({ attributes: { runName: { prefix: "run-i" } } })).length).toBe(1);
  },
  async "failures are found by their text in either case, and stand in one group"(inside) {
    const { client } = inside;
    const runs = await Promise.all(
      [1, 2].map((n) => start(inside, "run-failing", { text: `DECLINED BY THE BANK OF I ${n}` })),
    );
    for (const runId of runs) await ended(inside, runId);
    const { runs: listed } = await client.listRuns({ errorText: "declined by the bank of i" });
    expect(listed.map(({ id }) => id).toSorted()).toEqual(runs.toSorted());
    const groups = await until(
      async () => {
        const all = (await client.errors.list({ functionId: "run-failing" })).groups;
        const one = all.filter(({ message }) => message.startsWith("DECLINED BY"));
        return one.some(({ count }) => count === 2) && one;
      },
      { about: "the group of both failures" },
    );
    expect(groups).toHaveLength(1);
  },
  async "pages of runs have each once, the newest first"(inside) {
    const { client } = inside;
    const runIds: string[] = [];
    for (let n = 0; n < 7; n++) runIds.unshift(await start(inside, "run-sleeper", { until: new Date(0) }));
    const seen: string[] = [];
    for (let cursor: string | undefined = ""; cursor !== undefined; ) {
      const page = await client.listRuns({ functionId: "run-sleeper", limit: 2, ...(cursor && { cursor }) });
      seen.push(...page.runs.map(({ id }) => id));
      cursor = page.nextCursor || undefined;
    }
    expect(seen.filter((id) => runIds.includes(id))).toEqual(runIds);
    expect(new Set(seen).size).toBe(seen.length);
  },
  async "what led to a run, and what it led to, is answered"(inside) {
    const runId = await start(inside, "run-parent");
    await ended(inside, runId);
    const { links } = await inside.client.causality.get("run", runId);
    expect(links.length).toBeGreaterThanOrEqual(3);
  },
  async "failed runs are repaired together"(inside) {
    const { client } = inside;
    const text = `of a repair ${crypto.randomUUID()}`;
    const runs = await Promise.all([1, 2, 3].map(() => start(inside, "run-failing", { text })));
    for (const runId of runs) await ended(inside, runId);
    counted(text);
    const broken = { functionId: "run-failing", errorText: text };
    expect((await client.repairs.preview("resume", broken)).totalCount).toBe(3);
    const { id } = await client.repairs.start("resume", { filter: broken, reason: "mended" });
    await until(async () => (await client.repairs.get(id)).counts.done === 3, { about: "the repair" });
    for (const runId of runs)
      await until(async () => (await client.getRun(runId)).status === "completed", { about: runId });
  },
};
