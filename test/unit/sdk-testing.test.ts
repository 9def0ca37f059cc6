import { expect, test } from "bun:test";
import { createClient, createFunction, type Handler, testFunction } from "../../src/sdk/index.ts";

const make = <Output>(handler: Handler<{ n: number }, "go", { go: { n: number } }, Output>) =>
  createFunction<{ go: { n: number } }, "go", Output>({ id: "f", event: "go" }, handler);

test("mocks and failures by attempt; crashes cost no attempt", async () => {
  let ran = 0;
  const flow = make(async ({ step }) => {
    const a = await step.run("a", () => ++ran);
    const b = await step.run("b", () => "real");
    return [a, b];
  });
  const result = await testFunction(flow)
    .mockStep("b", "mocked")
    .failStep("a", { attempt: 1 })
    .crashAfter(2)
    .run({ n: 1 });
  expect(result).toMatchObject({ status: "completed", attempts: 2, executions: 3, output: [1, "mocked"] });
  expect(ran).toBe(1);
});

test("publish and emit happen once, though the step runs again", async () => {
  const result = await testFunction(
    make(async ({ step }) => {
      const { sequence } = await step.publish("news", "plain");
      const { eventId } = await step.emit("go", { n: 2 });
      return { sequence, eventId };
    }),
  )
    .crashAfter("publish:news", { stored: false })
    .crashAfter("emit.go", { stored: false })
    .run({ n: 1 });
  expect(result.executions).toBe(3);
  expect(result.output).toEqual({ sequence: 1, eventId: "evt_emitted1" });
  expect(result.published).toEqual([
    { topic: "news", data: "plain", idempotencyKey: expect.stringMatching(/:publish:news:0$/) },
  ]);
  expect(result.emitted).toHaveLength(1);
});

test("wherever the worker dies, the result is the same and no stored step runs twice", async () => {
  const ran = new Map<string, number>();
  const flow = make(async ({ step, event }) => {
    const counted = (what: string, value: number) => {
      ran.set(what, (ran.get(what) ?? 0) + 1);
      return value;
    };
    let sum = await step.run("first", () => counted("first", event.data.n));
    const each = await step.map("m", [1, 2, 3], async (n) => {
      const one = await step.run("a", () => counted(`a${n}`, n));
      await step.sleep("nap", n * 1_000);
      return step.run("b", () => counted(`b${n}`, one * 10));
    });
    for (const n of each) sum += n;
    const { n } = (await step.waitForEvent("go", { onTimeout: "throw" })).data;
    await step.emit("go", { n: sum });
    return step.run("last", () => counted("last", sum + n));
  });
  const run = (crash?: number, stored = true) => {
    ran.clear();
    const plan = testFunction(flow).deliver("go", { n: 1_000 });
    return (crash === undefined ? plan : plan.crashAfter(crash, { stored })).run({ n: 5 });
  };
  const plain = await run();
  expect(plain.output).toBe(1_065);
  const stepCount = plain.steps.filter((step) => step.type === "invoke").length;
  for (let crash = 1; crash <= stepCount; crash++) {
    for (const stored of [true, false]) {
      const result = await run(crash, stored);
      expect(result).toMatchObject({ output: 1_065, attempts: 1, executions: plain.executions + 1 });
      expect(result.emitted).toHaveLength(1);
      const twice = [...ran.values()].filter((times) => times > 1).length;
      // Steps under way beside the one that died are lost with the worker.
      if (stored) expect(twice).toBeLessThanOrEqual(2);
    }
  }
  await testFunction(flow).deliver("go", { n: 1_000 }).crashAfter("every").run({ n: 5 });
});

test("what the test lacks is said, and what the function looks at is there", async () => {
  const lines: unknown[][] = [];
  const line = (...said: unknown[]) => void lines.push(said);
  const looks = make(({ event, secrets, run, log, signal }) => {
    log.info("looked", { a: 1 });
    return [event.name, event.idempotencyKey, event.version, secrets.TOKEN, run.attempt, signal.aborted];
  });
  const result = await testFunction({ ...looks, definition: { ...looks.definition, secrets: ["TOKEN"] } })
    .secrets({ TOKEN: "t" })
    .log({ debug: line, info: line, warn: line, error: line })
    .run({ n: 1 }, { idempotencyKey: "k", version: 2 });
  expect(result.output).toEqual(["go", "k", 2, "t", 1, false]);
  expect(lines).toEqual([["looked", { runId: expect.any(String), functionId: "f", attempt: 1, a: 1 }]]);
  await expect(testFunction(make(({ step }) => step.invoke("nobody"))).run()).rejects.toThrow("mockInvoke");
});

test("a name that matches nothing fails the test, with the names that there are", async () => {
  const flow = make(async ({ step }) => {
    await step.run("charge", () => 1);
    await step.waitForEvent("go", { timeout: "1d" });
  });
  const plan = () => testFunction(flow);
  const there = "matches nothing that the run came by (there: charge)";
  for (const [test, message] of [
    [plan().mockStep("chrage", 1), `mockStep("chrage") ${there}`],
    [plan().failStep("chrage"), `failStep("chrage") ${there}`],
    [plan().crashAfter("chrage"), `crashAfter("chrage") ${there}`],
    [plan().crashAfter(2), "crashAfter(2) matches nothing: 1 steps were executed"],
    [plan().mockInvoke("bill", 1), 'mockInvoke("bill") matches nothing that the run came by (there: none)'],
    [plan().mockTool("a.b", 1), 'mockTool("a.b") matches nothing'],
    [plan().deliver("gone", {}), 'deliver("gone") matches nothing that the run came by (there: go)'],
    [plan().on("gone", () => ({})), 'on("gone") matches nothing'],
    [plan().secrets({ KEY: "k" }), 'secrets("KEY") matches nothing'],
  ] as const)
    await expect(test.run({ n: 1 })).rejects.toThrow(message);
  await expect(plan().run({ n: 1 }, { name: "went" })).rejects.toThrow(
    "no trigger for the event went (there: go)",
  );
  // An event that comes too late for its wait matches it all the same.
  expect((await plan().deliver("go", { n: 1 }, { after: "2d" }).run({ n: 1 })).status).toBe("completed");
});

test("appends to streams are kept in memory, whatever client the function uses", async () => {
  const { streams } = createClient({ url: "http://127.0.0.1:9", environment: "nowhere" });
  const cart = (event: string, expectedVersion: number) =>
    streams.append({ entityId: "c1", entityType: "cart", event, data: { event }, expectedVersion });
  const fill = createFunction({ id: "fill", event: "go" }, async ({ step }) => {
    await step.run("first", () => cart("cart.filled", 0));
    await step.run("second", async () => (await cart("cart.sent", 1)).version);
    const { state, version } = await streams.fold("c1", (names, { name }) => [...names, name], {
      initial: [] as string[],
      fromSnapshot: false,
    });
    const lost = await cart("cart.sent", 1).catch((error: Error) => error.message);
    return { state, version, lost, other: await streams.info("c2") };
  });
  const result = await testFunction(fill).run({});
  expect(result.output).toEqual({
    ...{ state: ["cart.filled", "cart.sent"], version: 2, lost: "version conflict: expected 1, got 2" },
  } as never);
  const one = { entityId: "c1", entityType: "cart" };
  expect(result.appended).toEqual([
    { ...one, event: "cart.filled", data: { event: "cart.filled" }, version: 1 },
    { ...one, event: "cart.sent", data: { event: "cart.sent" }, version: 2 },
  ]);
  expect((await testFunction(fill).run({})).appended).toHaveLength(2);
});

test("attributes are shown as the server would have them after each crash and attempt", async () => {
  const at = new Date("2026-01-02T03:04:05Z");
  const found = make(async ({ run, step }) => {
    run.set({ state: "begun", at, gone: 1 });
    await step.run("a", () => 1);
    run.set({ state: "half", count: 2, gone: null });
    await step.sleep("nap", 1_000);
    run.set({ state: "whole" });
  });
  const { attributes } = await testFunction(found).crashAfter("every").run({ n: 1 });
  expect(attributes).toEqual({ state: "whole", at, count: 2 });
  for (const wrong of [
    { n: Number.NaN },
    { "": 1 },
    { a: new Date(Number.NaN) },
    { a: undefined },
    { a: "x".repeat(257) },
  ]) {
    const refused = await testFunction(make(({ run }) => run.set(wrong as never))).run({ n: 1 });
    expect(refused).toMatchObject({ attempts: 1, error: { code: "ATTRIBUTE_REFUSED", retryable: false } });
  }
});

test("values at a wait's path are compared as on the server, and one that the run's own event lacks fails it", async () => {
  const waiting = make(({ step }) => step.waitForEvent("go", { match: "größe", timeout: "1d" }));
  const own = { größe: { a: 1, b: [2] } };
  const { output } = await testFunction(waiting)
    .deliver("go", { größe: { b: [2], a: 2 } }, { after: "1h" })
    .deliver("go", { größe: { b: [2], a: 1 } }, { after: "2h" })
    .run(own as never);
  expect(output).toMatchObject({ timestamp: expect.any(String), data: { größe: { b: [2], a: 1 } } });
  const lacking = make(({ step }) =>
    step.waitForAny("one", { go: { event: "go", match: "data.order.id" } }).catch(() => "caught"),
  );
  expect(await testFunction(lacking).run({ n: 1 })).toMatchObject({
    ...{ status: "failed", attempts: 1 },
    error: {
      message: "wait_for_event: the triggering event has nothing at data.order.id",
      ...{ code: "WAIT_MATCH_UNRESOLVED", retryable: false },
    },
  });
});

test("a child that takes longer than it may has the server's error", async () => {
  const child = createFunction({ id: "child", event: "go" }, ({ step }) => step.sleep("long", "1h"));
  const hurried = make(({ step }) => step.invoke(child, { input: { n: 1 }, timeout: "2s" }));
  expect(await testFunction(hurried).mockInvoke(child, child).run({ n: 4 })).toMatchObject({
    ...{ status: "failed", elapsedMs: 2_000 },
    error: {
      message: 'step child failed: timed out waiting for the function "child"',
      ...{ code: "INVOKE_TIMEOUT", retryable: false },
    },
  });
});
