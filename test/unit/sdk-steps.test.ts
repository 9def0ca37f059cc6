import { expect, test } from "bun:test";
import {
  createFunction,
  type Handler,
  type HandlerContext,
  NonRetryableError,
  testFunction,
} from "../../src/sdk/index.ts";

const make = <Output>(handler: Handler<{ n: number }, "go", { go: { n: number } }, Output>, retry?: object) =>
  createFunction<{ go: { n: number } }, "go", Output>(
    { id: "f", event: "go", ...(retry && { retry }) },
    handler,
  );
type Context = HandlerContext<{ n: number }, "go", { go: { n: number } }>;
const named = (steps: { name: string; status: string }[]) => steps.map((step) => [step.name, step.status]);

test("ids: counted by name, escaped, scoped by branch, nested; a second parallel of a name counts on", async () => {
  const result = await testFunction(
    make(async ({ step }) => {
      await step.run("a:b\\c", () => 1);
      await step.run("a:b\\c", () => 2);
      for (const _ of [1, 2]) {
        await step.parallel("both", {
          left: () => step.run("x", () => 1),
          right: () => step.map("inner:", [1, 2], (n) => step.run("y", () => n)),
        });
      }
      await step.publish("topic", { a: 1 });
    }),
  ).run({ n: 1 });
  const ids = result.steps.map((one) => one.id.replace(/^run_\w+?(?=:)/, "R"));
  expect(ids.sort()).toEqual(
    [
      "R:a\\:b\\\\c:0",
      "R:a\\:b\\\\c:1",
      "R:both:0:x:0",
      "R:both:0:x:1",
      "R:both:1:inner\\::0:y:0",
      "R:both:1:inner\\::0:y:1",
      "R:both:1:inner\\::1:y:0",
      "R:both:1:inner\\::1:y:1",
      "R:publish:topic:0",
    ].sort(),
  );
});

test("what a step gives is what is stored, the first time too", async () => {
  const seen: unknown[] = [];
  await testFunction(
    make(async ({ step }) => {
      seen.push(
        await step.run("date", () => new Date(0)),
        await step.run("nothing", () => undefined),
        await step.run("number", () => Number.NaN),
        await step.run("list", () => [1, undefined]),
        await step.run("false", () => false),
      );
    }),
  ).run({ n: 1 });
  expect(seen).toEqual(["1970-01-01T00:00:00.000Z", null, null, [1, null], false]);
});

test("branches all run until they end or wait, and sleep at the same time", async () => {
  const seen: string[] = [];
  const result = await testFunction(
    make(({ step }) =>
      step.parallel("all", {
        a: async () => {
          await step.sleep("nap", "1h");
          return step.run("after", () => seen.push("a"));
        },
        b: async () => {
          await step.run("before", () => seen.push("b"));
          await step.sleep("nap", "2h");
          return "b";
        },
        c: () => step.run("only", () => seen.push("c")),
      }),
    ),
  ).run({ n: 1 });
  expect(result).toMatchObject({ status: "completed", output: { a: 3, b: "b", c: 2 }, executions: 3 });
  expect(result.elapsedMs).toBe(2 * 3_600_000);
  expect(seen.toSorted()).toEqual(["a", "b", "c"]);
});

test("a failing branch fails the whole once the others are through; allSettled gives both", async () => {
  const seen: number[] = [];
  const work = (allSettled: boolean) =>
    make<unknown>(({ step }) => {
      const items = [1, 2, 3];
      const each = (n: number) =>
        step.run("x", () => {
          seen.push(n);
          if (n === 1) throw new NonRetryableError("one");
          return n;
        });
      return allSettled ? step.map("m", items, each, { allSettled: true }) : step.map("m", items, each);
    });
  expect(await testFunction(work(false)).run({ n: 1 })).toMatchObject({
    status: "failed",
    error: { message: "one" },
    steps: expect.arrayContaining([
      expect.objectContaining({ id: expect.stringContaining(":m:0:x:0"), status: "failed" }),
    ]),
  });
  expect(seen).toEqual([1, 2, 3]);
  const settled = await testFunction(work(true)).run({ n: 1 });
  expect(settled).toMatchObject({
    status: "completed",
    output: [
      { status: "rejected", reason: {} },
      { status: "fulfilled", value: 2 },
      { status: "fulfilled", value: 3 },
    ],
  });
});

test("map keeps to its concurrency, sleeping items included", async () => {
  let now = 0;
  let most = 0;
  const result = await testFunction(
    make(({ step }) =>
      step.map(
        "m",
        [1, 2, 3, 4, 5],
        async (n) => {
          await step.run("work", async () => {
            most = Math.max(most, ++now);
            await Promise.resolve();
            now--;
          });
          if (n < 3) await step.sleep("nap", "1m");
          return n * 2;
        },
        { concurrency: 2 },
      ),
    ),
  ).run({ n: 1 });
  expect(result.output).toEqual([2, 4, 6, 8, 10]);
  expect(most).toBe(2);
  expect(result.elapsedMs).toBe(60_000);
});

test("compensation: reverse order, at every final failure, failing ones tried again and recorded", async () => {
  const undone: string[] = [];
  const saga =
    (error: () => Error) =>
    async ({ step }: Context) => {
      await step.run("a", () => 1, { compensate: (output) => undone.push(`a${output}`) });
      await step.run("b", () => 2, {
        compensate: () => {
          throw new Error("cannot undo b");
        },
      });
      step.compensate("c", () => undone.push("c"));
      await step.run("d", () => {
        throw error();
      });
    };
  const failed = await testFunction(make(saga(() => new NonRetryableError("no")))).run({ n: 1 });
  expect(undone).toEqual(["c", "a1"]);
  expect(named(failed.steps)).toEqual([
    ["a", "completed"],
    ["b", "completed"],
    ["d", "failed"],
    ["compensate:c", "completed"],
    ["compensate:b", "failed"],
    ["compensate:a", "completed"],
  ]);
  expect(failed.steps[5]).toMatchObject({
    type: "compensate",
    compensationFor: "a",
    id: expect.stringMatching(/:compensate:a:0$/),
  });
  undone.length = 0;
  const exhausted = await testFunction(make(saga(() => new Error("again")))).run({ n: 1 });
  expect(exhausted).toMatchObject({ status: "failed", attempts: 3, compensationFailed: 1 });
  expect(undone).toEqual(["c", "a1"]);
});

test("a compensation that was stored is not repeated after a crash", async () => {
  const undone: string[] = [];
  const result = await testFunction(
    make(async ({ step }) => {
      await step.run("a", () => 1, { compensate: () => undone.push("a") });
      await step.run("b", () => 1, { compensate: () => undone.push("b") });
      throw new NonRetryableError("no");
    }),
  )
    .crashAfter("every")
    .run({ n: 1 });
  expect(undone).toEqual(["b", "a"]);
  expect(result).toMatchObject({ status: "failed", executions: 6 });
});

test("a step that takes too long fails with STEP_TIMEOUT, is told so, and is tried again", async () => {
  const signals: boolean[] = [];
  const result = await testFunction(
    make(
      ({ step, run }) =>
        step.run(
          "slow",
          ({ signal, id }) => {
            if (run.attempt === 2) return id;
            signal.addEventListener("abort", () => signals.push(signal.aborted));
            return new Promise<string>(() => {});
          },
          { timeout: 5 },
        ),
      { initialDelayMs: 7 },
    ),
  ).run({ n: 1 });
  expect(result).toMatchObject({ status: "completed", attempts: 2, elapsedMs: 7 });
  expect(result.output).toMatch(/^run_test\d+:slow:0$/);
  expect(signals).toEqual([true]);
});

test("waits: path against the trigger, literal, deadline; the event is the result", async () => {
  const waiting = make(async ({ step }) => {
    const event = await step.waitForEvent("go", { match: "data.n", timeout: "1d", onTimeout: "throw" });
    return [event.data.n, event.name];
  });
  const found = await testFunction(waiting)
    .deliver("go", { n: 8 }, { after: "1h" })
    .deliver("go", { n: 7 }, { after: "2h" })
    .run({ n: 7 });
  expect(found).toMatchObject({ output: [7, "go"], elapsedMs: 7_200_000 });
  const late = await testFunction(waiting).deliver("go", { n: 7 }, { after: "2d" }).run({ n: 7 });
  expect(late).toMatchObject({ status: "failed", attempts: 1, elapsedMs: 86_400_000 });
  expect(late.steps[0]).toMatchObject({ status: "timed_out", type: "wait_for_event" });
  const literal = make(({ step }) =>
    step.waitForEvent("go", { match: "n", matchValue: 5, payload: { ask: 1 } }),
  );
  expect((await testFunction(literal).deliver("go", { n: 5 }).run({ n: 1 })).output).toMatchObject({
    data: { n: 5 },
  });
  const asked: unknown[] = [];
  await testFunction(literal)
    .on("go", (wait) => {
      asked.push(wait);
      return { n: 1 };
    })
    .run({ n: 1 });
  expect(asked).toEqual([{ name: "go", event: "go", match: "n", matchValue: 5, payload: { ask: 1 } }]);
});

test("a wait's path of the data's own field `event` is read as on the server", async () => {
  const waiting = createFunction({ id: "f", event: "posted" }, ({ step }) =>
    step.waitForEvent("answered", { match: "event.channel", timeout: "1d" }),
  );
  const inChannel = (channel: string) => ({ event: { channel }, channel: "same" });
  const { output } = await testFunction(waiting)
    .deliver("answered", inChannel("two"), { after: "1h" })
    .deliver("answered", inChannel("one"), { after: "2h" })
    .run(inChannel("one"));
  expect(output).toMatchObject({ data: inChannel("one") });
});

test("waits for several events: the first, all of them, none", async () => {
  const waiting = make(async ({ step }) => {
    const any = await step.waitForAny("any", {
      low: { event: "go", match: "n", matchValue: 1 },
      high: { event: "go", match: "n", matchValue: 9 },
    });
    const all = await step.waitForAll("all", {
      low: { event: "go", match: "n", matchValue: 1 },
      other: { event: "go", match: "n", matchValue: 3 },
    });
    const none = await step.waitForNone("none", { any: { event: "go" } }, { timeout: "1d" });
    return [any?.name, all?.low.data.n, all?.other.data.n, none];
  });
  const test = testFunction(waiting)
    .deliver("go", { n: 9 }, { after: "1h" })
    .deliver("go", { n: 1 }, { after: "2h" })
    .deliver("go", { n: 3 }, { after: "3h" });
  const result = await test.run({ n: 7 });
  expect(result).toMatchObject({ output: ["high", 1, 3, null], elapsedMs: 27 * 3_600_000 });
});

test("children: a mock, a function run for real, one that fails without a retry, one nobody waits for", async () => {
  const child = createFunction<{ c: { n: number } }, "c", number>(
    { id: "child" },
    async ({ event, step }) => {
      await step.sleep("nap", "5s");
      return event.data.n * 2;
    },
  );
  const parent = make(async ({ step, event }) => {
    const { runId } = await step.invokeAsync(child, { input: { n: 1 } });
    const doubled: number = await step.invoke(child, { input: { n: event.data.n } });
    return [runId, doubled];
  });
  const real = await testFunction(parent).mockInvoke(child, child).run({ n: 4 });
  expect(real).toMatchObject({ output: ["run_child_child", 8], elapsedMs: 5_000 });
  const mocked = await testFunction(parent)
    .mockInvoke("child", ({ input }: { input: { n: number } }) => input.n + 1)
    .run({ n: 4 });
  expect(mocked.output).toEqual(["run_child_child", 5]);
  const failed = await testFunction(parent)
    .mockInvoke("child", () => {
      throw new Error("child broke");
    })
    .run({ n: 4 });
  expect(failed).toMatchObject({
    status: "failed",
    attempts: 1,
    error: { code: "INVOKE_FAILED", message: "step child failed: child broke", retryable: false },
  });
  await expect(testFunction(make(({ step }) => step.invoke("other"))).run({ n: 1 })).rejects.toThrow(
    "mockInvoke",
  );
});

test("results up to 4 MiB are taken, larger ones and those JSON cannot hold fail at once", async () => {
  const large = (bytes: number) =>
    testFunction(make(({ step }) => step.run("big", () => "é".repeat((bytes - 2) / 2)))).run({ n: 1 });
  expect((await large(4 * 1024 * 1024)).status).toBe("completed");
  expect(await large(4 * 1024 * 1024 + 2)).toMatchObject({
    status: "failed",
    attempts: 1,
    error: { code: "OUTPUT_TOO_LARGE" },
  });
  const loop: Record<string, unknown> = {};
  loop.self = loop;
  for (const value of [loop, 1n]) {
    expect(await testFunction(make(() => value)).run({ n: 1 })).toMatchObject({
      error: { code: "SERIALIZATION_ERROR", retryable: false },
    });
  }
});

test("ten thousand steps, entered again half way, without slowing down", async () => {
  // The work itself, whatever else this machine does.
  const before = process.cpuUsage();
  const result = await testFunction(
    make(async ({ step }) => {
      let sum = 0;
      for (let n = 0; n < 5_000; n++) sum += await step.run("s", () => n);
      await step.sleep("nap", "1d");
      for (let n = 0; n < 5_000; n++) sum += await step.run("s", () => n);
      return sum;
    }),
  ).run({ n: 1 });
  expect(result.output).toBe(5_000 * 4_999);
  expect(result.steps).toHaveLength(10_001);
  const { user, system } = process.cpuUsage(before);
  expect((user + system) / 1_000).toBeLessThan(4_000);
}, 120_000);

test("a branch that swallows its suspension, or makes an error of it, is asleep all the same", async () => {
  const seen: string[] = [];
  const result = await testFunction(
    make(({ step }) =>
      step.parallel("p", {
        swallows: async () => {
          await step.sleep("nap", "1h").catch(() => {});
          return step.run("after", () => seen.push("after")).catch(() => 0);
        },
        wraps: async () => {
          await step.sleep("nap", "1h").catch((cause) => {
            throw new Error("wrapped", { cause });
          });
          return "woke";
        },
      }),
    ),
  ).run({ n: 1 });
  expect(result).toMatchObject({ status: "completed", attempts: 1, output: { swallows: 1, wraps: "woke" } });
  expect(result.elapsedMs).toBe(3_600_000);
  expect(seen).toEqual(["after"]);
});

test("steps begun before they are awaited end no process when one of them yields or fails", async () => {
  const unheard: unknown[] = [];
  const hear = (error: unknown) => void unheard.push(error);
  process.on("unhandledRejection", hear);
  const result = await testFunction(
    make(async ({ step, run }) => {
      const left = step.sleep("left", "1m");
      const right = step.sleep("right", "1m");
      const bad = step.run("bad", () => {
        if (run.attempt === 1) throw new Error("bad");
      });
      await left;
      await right;
      await bad;
      return "through";
    }),
  ).run({ n: 1 });
  await new Promise((done) => setImmediate(done));
  process.off("unhandledRejection", hear);
  expect(result).toMatchObject({ status: "completed", output: "through", attempts: 2 });
  expect(unheard).toEqual([]);
});
