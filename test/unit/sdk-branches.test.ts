import { afterEach, describe, expect, test } from "bun:test";
import { createFunction, type HandlerContext, testFunction } from "../../src/sdk/index.ts";
import type { TestResult } from "../../src/sdk/testing/test-plan.ts";

const flow = (handler: (context: HandlerContext) => unknown, options: object = {}) =>
  createFunction({ id: "flow", event: "go", ...options }, async (context) => handler(context));
const turn = () => new Promise(setImmediate);
const never = () => new Promise(() => {});

let unheard: unknown[] = [];
const hear = (error: unknown) => void unheard.push(error);
process.on("unhandledRejection", hear);
afterEach(async () => {
  await turn();
  expect(unheard).toEqual([]);
  unheard = [];
});

describe("a wait that is not met is a promise that stays open", () => {
  const ways: Record<string, (context: HandlerContext) => Promise<unknown>> = {
    async "a helper's promise is awaited later"({ step }) {
      const answer = step.waitForEvent("answer", { timeout: "1h" }).then((event) => event?.data);
      await step.run("ask", () => 1);
      return answer;
    },
    async "with finally"({ step }) {
      const napped = step.sleep("nap", "1h").finally(() => {});
      await step.run("ask", () => 1);
      await napped;
      return 7;
    },
    async "a helper tries a step again, by long delays"({ step }) {
      const retry = { maxAttempts: 2, delay: "1h" };
      const tried = (async () =>
        step.run("tried", ({ attempt }) => (attempt === 1 ? Promise.reject(1) : 7), { retry }))();
      await step.run("ask", () => 1);
      await step.sleep("nap", "1m");
      return tried;
    },
    async "a helper with a compensation behind a wait"({ step }) {
      const helper = async () => {
        await step.sleep("nap", "1h");
        return step.run("pay", () => 7, { compensate: () => {} });
      };
      const paid = helper();
      await step.sleep("other", "2h");
      return paid;
    },
  };
  for (const [name, work] of Object.entries(ways))
    test(`nobody's process ends: ${name}`, async () => {
      const test = testFunction(flow(work)).crashAfter("every");
      if (work.toString().includes("waitForEvent")) test.deliver("answer", 7);
      const result = await test.run();
      expect(result).toMatchObject({ status: "completed", output: 7, attempts: 1 });
    });

  test("nothing is thrown, and `finally` does not run at a wait", async () => {
    const seen: string[] = [];
    const result = await testFunction(
      flow(async ({ step }) => {
        try {
          await step.sleep("nap", "1h");
          return "slept";
        } catch {
          return seen.push("caught");
        } finally {
          seen.push("finally");
        }
      }),
    ).run();
    expect([result.output, seen]).toEqual(["slept", ["finally"]]);
  });

  test("work that is no step is not waited for beside a wait; what it calls is refused, and told", async () => {
    const lines: string[] = [];
    const line = (message: string) => void lines.push(message);
    const entered: number[] = [];
    const result = await testFunction(
      flow(async ({ step }) => {
        entered.push(0);
        const outside = async () => {
          for (let n = 0; n < 5; n++) await turn();
          return step.run("after", () => entered.length);
        };
        const [after] = await Promise.all([outside(), step.sleep("nap", "1h")]);
        return after;
      }),
    )
      .log({ debug: line, info: line, warn: line, error: line })
      .run();
    for (let n = 0; n < 5; n++) await turn();
    expect(result).toMatchObject({ output: 2, executions: 2 });
    expect(lines).toEqual([
      "step after was called by work that is not a step, while its run had begun to wait",
    ]);
  });
});

describe("a race has the same winner each time", () => {
  const hours = (result: TestResult) => result.elapsedMs / 3_600_000;

  test("of steps and times: the first one, and no longer than that", async () => {
    const quick = await testFunction(
      flow(({ step }) => Promise.race([step.sleep("limit", "8h"), step.run("quick", () => "quick")])),
    ).run();
    expect([quick.output, hours(quick), quick.executions]).toEqual(["quick", 0, 1]);
    const times = await testFunction(
      flow(({ step }) =>
        Promise.race([
          step.sleep("long", "8h").then(() => "long"),
          step.sleep("short", "1h").then(() => "short"),
        ]),
      ),
    ).run();
    expect([times.output, hours(times)]).toEqual(["short", 1]);
  });

  test("a time is over although a step computes, and stays over", async () => {
    const winners: unknown[] = [];
    const hang = ({ signal }: { signal: AbortSignal }) =>
      new Promise<string>((done) => signal.addEventListener("abort", () => done("cut")));
    const result = await testFunction(
      flow(async ({ step }) => {
        const asked = step.run("ask", hang);
        winners.push(await Promise.race([asked, step.sleep("limit", 5).then(() => "too late")]));
        await step.run("next", () => 1);
        return winners.at(-1);
      }),
    )
      .crashAfter("next")
      .run();
    expect(result).toMatchObject({ status: "completed", output: "too late", executions: 2 });
    expect(result.steps.map(({ name, type }) => [name, type])).toEqual([
      ["limit", "sleep"],
      ["next", "invoke"],
    ]);
  });

  test("over crashes and waits: what was stored first wins, whatever is called first", async () => {
    const winners: unknown[] = [];
    const raced = flow(async ({ step }) => {
      const after = async (name: string, turns: number) => {
        const won = await step.run(name, async () => {
          for (let n = 0; n < turns; n++) await turn();
          return name;
        });
        return won;
      };
      winners.push(await Promise.race([after("slow", 9), after("quick", 1).then((won) => won)]));
      await step.sleep("nap", "1h");
      winners.push(await Promise.any([after("later", 4), after("sooner", 1)]));
      await step.sleep("nap", "1h");
      return winners.at(-1);
    });
    await testFunction(raced).crashAfter("every").run();
    expect(new Set(winners)).toEqual(new Set(["quick", "sooner"]));
  });

  test("a step that failed first, and then came, comes then", async () => {
    const winners: unknown[] = [];
    const raced = flow(async ({ step, run }) => {
      const late = step.run("late", () =>
        run.attempt === 1 ? Promise.reject(new Error("once more")) : "late",
      );
      const early = step.run("early", () => "early");
      if (run.attempt === 1) await Promise.all([early, late]);
      winners.push(await Promise.race([late, early]));
      await late;
      await step.sleep("nap", "1h");
    });
    expect(await testFunction(raced).crashAfter("every").run()).toMatchObject({ status: "completed" });
    expect(new Set(winners)).toEqual(new Set(["early"]));
  });

  test("results of one moment are handed over one at a time", async () => {
    const winners = new Set<unknown>();
    const raced = flow(async ({ step }) => {
      // The first one has the longer way to the race.
      const first = step.run("first", () => "first").then((one) => Promise.resolve(one).then((same) => same));
      winners.add(await Promise.race([first, step.run("second", () => "second")]));
      await step.sleep("nap", "1h");
      return step.run("end", () => 1);
    });
    await testFunction(raced).crashAfter("every").run();
    expect(winners).toEqual(new Set(["first"]));
  });
});

describe("the end of the handler is the end of the execution", () => {
  test("a step that still computes is cut: signal, and no late result", async () => {
    let signal: AbortSignal | undefined;
    let finish = (_: string) => {};
    const hang = (context: { signal: AbortSignal }) => {
      ({ signal } = context);
      return new Promise<string>((done) => {
        finish = done;
      });
    };
    const result = await testFunction(
      flow(({ step }) => Promise.race([step.run("hang", hang), step.run("quick", () => "quick")])),
    ).run();
    finish("late");
    await turn();
    expect(result).toMatchObject({ status: "completed", output: "quick" });
    expect([signal?.aborted, result.steps.map(({ name }) => name)]).toEqual([true, ["quick"]]);
  });

  test("what throws does not wait for the others, but for those that are undone", async () => {
    const undone: unknown[] = [];
    const result = await testFunction(
      flow(
        ({ step }) =>
          Promise.all([
            step.run("hang", never),
            step.run("bad", () => Promise.reject(new Error("bad"))),
            step.run(
              "book",
              async () => {
                for (let n = 0; n < 5; n++) await turn();
                return "seat";
              },
              { compensate: (seat) => undone.push(seat) },
            ),
          ]),
        { retry: { maxAttempts: 1 } },
      ),
    ).run();
    expect(result).toMatchObject({ status: "failed", error: { message: "bad" } });
    expect(undone).toEqual(["seat"]);
  });

  test("a branch that fails fails the parallel, though another one waits", async () => {
    const result = await testFunction(
      flow(
        ({ step }) =>
          step.parallel("p", [
            () => step.sleep("nap", "8h"),
            () => step.run("bad", () => Promise.reject(new Error("bad"))),
            async () => {
              await turn();
              return step.run("other", () => 1);
            },
          ]),
        { retry: { maxAttempts: 1 } },
      ),
    ).run();
    expect(result).toMatchObject({ status: "failed", error: { message: "bad" }, elapsedMs: 0 });
    expect(result.steps.map(({ name }) => name).toSorted()).toEqual(["bad", "other"]);
  });
});
