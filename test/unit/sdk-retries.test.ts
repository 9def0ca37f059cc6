import { expect, test } from "bun:test";
import {
  createFunction,
  type Jsonify,
  type Logger,
  NonRetryableError,
  type StepFailedError,
  type StepRetry,
  type Steps,
  testFunction,
} from "../../src/sdk/index.ts";
import { until } from "../support/until.ts";

type Events = { go: { n: number } };

/** A function whose handler has these steps. */
const flow = <Output>(handler: (step: Steps<Events>, attempt: number) => Output | Promise<Output>) =>
  createFunction<Events, "go", Output>({ id: "f", event: "go" }, ({ step, run }) =>
    handler(step, run.attempt),
  );

/** Fails so many times; notes its tries. */
function failing(times: number, tries: number[]) {
  return ({ attempt }: { attempt: number }) => {
    tries.push(attempt);
    if (tries.length <= times) throw new Error(`no ${attempt}`);
    return "done";
  };
}

test("a step is tried again without its handler being entered again, by growing delays", async () => {
  const tries: number[] = [];
  const retry = { maxAttempts: 4, delay: "1s", backoff: 3 };
  const result = await testFunction(flow((step) => step.run("charge", failing(2, tries), { retry }))).run();
  expect(result).toMatchObject({ output: "done", attempts: 1, executions: 1, elapsedMs: 4_000 });
  expect(tries).toEqual([1, 2, 3]);
});

test("0 and undefined of a function's retry and timeout are the server's defaults in a test too", async () => {
  const broken = (options: object) =>
    testFunction(
      createFunction({ id: "f", event: "go", ...options }, () => {
        throw new Error("no");
      }),
    ).run();
  const byItself = await broken({});
  expect(byItself).toMatchObject({ status: "failed", attempts: 3, elapsedMs: 3_000 });
  const said = { attempts: 3, elapsedMs: 3_000, error: { message: "no" } };
  const retry = { maxAttempts: 0, delay: 0, backoff: 0, maxDelay: 0 };
  expect(await broken({ retry, timeout: 0 })).toMatchObject(said);
  expect(await broken({ retry: { maxAttempts: undefined, delay: undefined } })).toMatchObject(said);
});

test("a worker that dies between tries loses none, nor the time of the next one", async () => {
  const tries: number[] = [];
  const charge = flow((step) =>
    step.run("charge", failing(3, tries), { retry: { maxAttempts: 4, delay: 100 } }),
  );
  const result = await testFunction(charge).crashAfter("every").run();
  expect(result).toMatchObject({ output: "done", attempts: 1, executions: 2, elapsedMs: 700 });
  expect(tries).toEqual([1, 2, 3, 4]);
  tries.length = 0;
  // What the server never heard of is tried once more.
  await testFunction(charge).crashAfter("charge", { stored: false }).run();
  expect(tries).toEqual([1, 1, 2, 3]);
});

test("a long delay frees the worker, beside branches that sleep", async () => {
  const tries: number[] = [];
  const result = await testFunction(
    flow((step) =>
      step.parallel("both", {
        charge: () => step.run("charge", failing(1, tries), { retry: { maxAttempts: 2, delay: "1h" } }),
        // It yields last, and so first: the delay of the step goes on meanwhile.
        nap: async () => {
          for (const _ of [1, 2, 3]) await step.run("before", () => 1);
          await step.sleep("nap", "10m");
        },
      }),
    ),
  ).run();
  expect(result).toMatchObject({ status: "completed", attempts: 1, executions: 3, elapsedMs: 3_600_000 });
  expect(tries).toEqual([1, 2]);
});

test("after its last try a step has failed for good: caught it stays so, otherwise it ends the run", async () => {
  const tries: number[] = [];
  const seen: string[] = [];
  const retry = { maxAttempts: 2, delay: 0 };
  const caught = await testFunction(
    flow(async (step) => {
      try {
        await step.run("charge", failing(9, tries), { retry });
      } catch (error) {
        seen.push(`${(error as Error).name}: ${(error as StepFailedError).message}`);
      }
      await step.sleep("nap", "1h");
    }),
  ).run();
  expect(caught).toMatchObject({ status: "completed", executions: 2 });
  expect(tries).toEqual([1, 2]);
  expect(seen).toEqual(Array(2).fill("StepFailedError: step charge failed 2 times: no 2"));

  const ended = await testFunction(flow((step) => step.run("charge", failing(9, []), { retry }))).run();
  expect(ended).toMatchObject({ status: "failed", attempts: 1 });
  expect(ended.error).toEqual({
    name: "StepFailedError",
    message: "step charge failed 2 times: no 2",
    code: "STEP_FAILED",
    retryable: false,
    cause: { message: "no 2" },
  } as never);

  const final = flow((step) =>
    step.run("charge", () => Promise.reject(new NonRetryableError("stolen", { code: "STOLEN" })), { retry }),
  );
  const stolen = await testFunction(final).run();
  expect(stolen).toMatchObject({ attempts: 1, error: { message: "stolen", code: "STOLEN" } });
});

test("a step whose tries are used up is not undone, what came before it is", async () => {
  const undone: string[] = [];
  const result = await testFunction(
    flow(async (step) => {
      await step.run("seat", () => 1, { compensate: () => undone.push("seat") });
      await step.run("charge", failing(9, []), {
        retry: { maxAttempts: 2, delay: "1d" },
        compensate: () => undone.push("charge"),
      });
    }),
  ).run();
  expect(result).toMatchObject({ status: "failed", compensationFailed: 0, elapsedMs: 86_400_000 });
  expect(undone).toEqual(["seat"]);
});

test("options beyond their limits are TypeErrors that name them", async () => {
  const cases: [StepRetry | { retries: number }, string][] = [
    [{ maxAttempts: 0 }, "retry.maxAttempts must be a whole number from 1 to 100"],
    [{ maxAttempts: 1.5 }, "retry.maxAttempts"],
    [{ maxAttempts: 101 }, "retry.maxAttempts"],
    [{ delay: -1 }, "retry.delay must be from 0 to"],
    [{ delay: "400d" }, "retry.delay"],
    [{ delay: "soon" }, "not a duration"],
    [{ backoff: 0.5 }, "retry.backoff must be a number from 1 to 100"],
    [{ delay: "2h", maxDelay: "1h" }, "retry.maxDelay"],
    [{ retries: 3 }, "retry has no option retries (one of maxAttempts, delay, backoff, maxDelay)"],
  ];
  for (const [retry, message] of cases) {
    const { error } = await testFunction(
      flow((step) => step.run("charge", () => 1, { retry: retry as StepRetry })),
    ).run();
    expect([retry, error?.message]).toEqual([retry, expect.stringContaining(message)]);
  }
  const late = await testFunction(flow((step) => step.run("slow", () => 1, { timeout: "30d" }))).run();
  expect(late.error?.message).toContain("step slow: timeout must be from 1 to");
  const child = await testFunction(flow((step) => step.invoke("child", { timeout: "400d" }))).run();
  expect(child.error?.message).toContain("step child: timeout must be from 1 to");
});

test("a step within a step is told by both names; steps of parallel are none", async () => {
  const inners: ((step: Steps<Events>) => Promise<unknown>)[] = [
    (step) => step.run("inner", () => 1),
    (step) => step.sleep("inner", "1s"),
    (step) => step.waitForEvent("go", { name: "inner" }),
  ];
  for (const inner of inners) {
    const nested = await testFunction(flow((step) => step.run("outer", () => inner(step)))).run();
    expect(nested).toMatchObject({
      ...{ status: "failed", attempts: 1 },
      error: {
        code: "NESTED_STEP",
        message: expect.stringContaining("step inner was called within step outer"),
      },
    });
  }
  const beside = flow((step) =>
    Promise.all([step.run("a", () => 1), step.parallel("p", [() => step.run("b", () => 2)])]),
  );
  expect((await testFunction(beside).run()).output).toEqual([1, [2]]);
});

test("a step after its handler has returned is told, and begins nothing", async () => {
  const lines: string[] = [];
  const line = (message: string) => void lines.push(message);
  const log: Logger = { debug: line, info: line, warn: line, error: line };
  let ran = false;
  const forgetful = flow((step) => {
    setImmediate(() => void step.run("late", () => (ran = true)));
    return "returned";
  });
  const result = await testFunction(forgetful).log(log).run();
  expect(result).toMatchObject({ status: "completed", output: "returned" });
  await until(() => lines.length > 0, { about: "the late call" });
  const message = "step late was called after its handler had returned: await every step";
  expect([ran, lines]).toEqual([false, [message]]);
});

test("what a step gives first is what a replay gives", async () => {
  class Money {
    readonly cents = 5;
    toJSON() {
      return `${this.cents}c`;
    }
  }
  const values: unknown[] = [
    ...[-0, Number.NaN, undefined, "x", false, null, new Date(0), new Map([[1, 2]]), new Money()],
    ...[{ a: undefined, b: [undefined, -0, () => 1], c: Symbol("s") }, [undefined, 1], () => 1, Symbol("s")],
  ];
  const seen: unknown[][] = [];
  await testFunction(
    flow(async (step) => {
      const given: unknown[] = [];
      for (const value of values) given.push(await step.run("value", () => value));
      seen.push(given);
      await step.sleep("nap", 1);
    }),
  ).run();
  const [first, replayed] = seen;
  expect(first!.every((value, at) => Object.is(value, replayed![at]) || typeof value === "object")).toBe(
    true,
  );
  expect(first).toStrictEqual(replayed!);
});

test("results are typed as their JSON, branches know the events", async () => {
  interface Order {
    id: string;
    placedAt: Date;
    note?: string;
    ship: () => void;
    lines: { total: number; tags: Set<string>; nothing: undefined }[];
  }
  type Told = {
    id: string;
    placedAt: string;
    note?: string;
    lines: { total: number; tags: Record<never, never> }[];
  };
  const exact = <A, B>(
    _: (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false,
  ) => {};
  exact<Jsonify<Order>, Told>(true);
  exact<Jsonify<[Date, undefined, "a" | 1]>, [string, null, "a" | 1]>(true);
  exact<Jsonify<unknown>, unknown>(true);
  exact<Jsonify<void>, null>(true);
  exact<Jsonify<string | undefined>, string | null>(true);
  const child = createFunction<{ c: { n: number } }, "c", Date>(
    { id: "child", event: "c" },
    () => new Date(0),
  );
  const result = await testFunction(
    flow(async (step) => {
      const at: string = await step.run("at", () => new Date(0));
      const { waited } = await step.parallel("p", {
        waited: async (own) => (await own.waitForEvent("go"))?.data.n,
      });
      exact<typeof waited, number | undefined>(true);
      const told: string = await step.invoke(child, { input: { n: 1 } });
      // @ts-expect-error: the child's event has a number.
      step.invoke(child, { input: { n: "1" } }).catch(() => {});
      return [at, told];
    }),
  )
    .mockInvoke(child, child)
    .deliver("go", { n: 1 })
    .run();
  expect(result.output).toEqual(Array(2).fill("1970-01-01T00:00:00.000Z"));
});
