import { describe, expect, test } from "bun:test";
import { createFunction, type HandlerContext, testFunction } from "../../src/sdk/index.ts";
import { loggedLines } from "../support/logged.ts";

type Work = (context: HandlerContext, entry: number) => Promise<unknown>;

/** A function whose handler knows how often it was entered: as if its code were changed in between. */
function changing(work: Work, options: object = {}) {
  let entry = 0;
  return createFunction({ id: "changing", event: "go", ...options }, (context) => work(context, ++entry));
}
async function pause(turns: number): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
}

describe("a handler that does not come its way again", () => {
  const ways: Record<string, { work: Work; found: object[] }> = {
    "renames a step": {
      async work({ step }, entry) {
        await step.run(entry === 1 ? "charge" : "charge-card", () => 1);
        await step.sleep("nap", "1s");
      },
      found: [{ name: "charge", kind: "unreached" }],
    },
    "leaves a step out, and waits": {
      async work({ step }, entry) {
        if (entry === 1) await step.run("first", () => 1);
        await step.sleep("nap", "1s");
        if (entry > 1) await step.sleep("another", "1s");
      },
      found: [{ name: "first", kind: "unreached" }],
    },
    "comes to steps in another order": {
      async work({ step }, entry) {
        const names = entry === 1 ? ["a", "b", "c"] : ["b", "a", "c"];
        for (const name of names) await step.run(name, () => name);
        await step.sleep("nap", "1s");
      },
      found: [{ name: "a", kind: "order" }],
    },
    "runs fewer branches": {
      async work({ step }, entry) {
        await step.map("items", entry === 1 ? [1, 2, 3] : [1, 2], (n) => step.run("item", () => n));
        await step.sleep("nap", "1s");
      },
      found: [{ name: "item", kind: "unreached" }],
    },
  };
  for (const [name, { work, found }] of Object.entries(ways))
    test(`it ${name}: told, once for the function, and the run goes on`, async () => {
      const { log, lines } = loggedLines();
      const result = await testFunction(changing(work)).log(log).run();
      expect(result.status).toBe("completed");
      expect(result.nondeterminism).toMatchObject(found);
      expect(lines.filter(({ severity }) => severity === "warn")).toHaveLength(1);
    });

  test("with `fail` the run ends at its next wait, and what was done is undone", async () => {
    const done: string[] = [];
    const target = changing(
      async ({ step }, entry) => {
        const compensate = () => void done.push("undo");
        await step.run("reserve", () => done.push("reserve"), { compensate });
        await step.run(entry === 1 ? "charge" : "charge-card", () => done.push("charge"));
        await step.sleep(entry === 1 ? "nap" : "nap2", "1s");
        done.push("never");
      },
      { nondeterminism: "fail" },
    );
    const result = await testFunction(target).run();
    expect(result).toMatchObject({ status: "failed", error: { code: "NONDETERMINISM", retryable: false } });
    expect(result.nondeterminism).toMatchObject([{ name: "charge" }, { name: "nap" }]);
    expect(done).toEqual(["reserve", "charge", "charge", "undo"]);
  });

  test("at most twenty are told", async () => {
    const work: Work = async ({ step }, entry) => {
      for (let n = 0; entry === 1 && n < 30; n++) await step.run(`s${n}`, () => n);
      await step.sleep("nap", "1s");
    };
    expect((await testFunction(changing(work)).run()).nondeterminism).toHaveLength(20);
  });
});

describe("no false alarm", () => {
  const chain = async ({ step }: HandlerContext, name: string, length: number) => {
    for (let n = 0; n < length; n++)
      await step.run(`${name}${n}`, async () => {
        await pause(Math.floor(Math.random() * 6));
        return n;
      });
  };
  const ways: Record<string, (context: HandlerContext, entry: number) => Promise<unknown>> = {
    async "chains side by side, of other lengths and times"(context) {
      await Promise.all([chain(context, "a", 2), chain(context, "b", 5), chain(context, "c", 1)]);
      await context.step.sleep("nap", "1s");
      await Promise.all([chain(context, "d", 3), context.step.sleep("nap2", "1s"), chain(context, "e", 1)]);
      await Promise.all([chain(context, "f", 4), chain(context, "g", 2)]);
    },
    async "branches that sleep"({ step }) {
      await step.parallel("both", {
        slow: async () => {
          for (let n = 0; n < 3; n++) await step.sleep("s", "1s");
          return step.run("after", () => 1);
        },
        fast: async () => {
          for (let n = 0; n < 3; n++) await step.run("f", () => pause(1));
        },
      });
      await step.map("lanes", [1, 2, 3, 4, 5], (n) => step.run("x", () => pause(6 - n)), { concurrency: 2 });
      await step.sleep("end", "1s");
    },
    async "a branch that fails and is caught"({ step }) {
      const failing = step.map(
        "some",
        [0, 1, 2, 3, 4, 5],
        (n, at) =>
          at === 0
            ? step.run("bad", () => Promise.reject(new Error("bad")))
            : step.run("good", () => pause(n === 1 ? 3 : 0)),
        { concurrency: 2 },
      );
      await failing.catch(() => {});
      await step.sleep("nap", "1s");
    },
    async "a step that fails, is caught, and runs again"({ step }) {
      await step.run("bad", () => Promise.reject(new Error("bad"))).catch(() => {});
      await step.run("next", () => 1);
      await step.sleep("nap", "1s");
      await step.run("after", () => 1);
    },
    async "a race"({ step }) {
      await Promise.race([step.run("quick", () => pause(1)), step.run("slow", () => pause(4))]);
      await step.sleep("nap", "1s");
    },
    async "a step with tries of its own that are used up"({ step }) {
      const retry = { maxAttempts: 3, delay: "1h" };
      await step.run("tried", () => Promise.reject(new Error("bad")), { retry }).catch(() => {});
      await step.run("next", () => 1);
      await step.sleep("nap", "1s");
    },
    async "attempts, waits that are over, and children that fail"({ step }, entry) {
      await step.run("first", () => 1);
      if (entry === 1) throw new Error("once more");
      await step.waitForEvent("never", { timeout: "1s" });
      await step.invoke("child").catch(() => {});
      await step.run("again", () => 1).catch(() => {});
      await step.run("last", () => 1);
    },
  };
  for (const [name, work] of Object.entries(ways))
    test(name, async () => {
      const test = testFunction(changing(work, { nondeterminism: "fail" })).crashAfter("every");
      if (work.toString().includes("child"))
        test.mockInvoke("child", () => Promise.reject(new Error("no"))).failStep("again", { attempt: 2 });
      const result = await test.run();
      expect([result.status, result.nondeterminism]).toEqual(["completed", []]);
    });

  test("a new step in front of stored ones that are come to", async () => {
    const work: Work = async ({ step }, entry) => {
      await step.run("a", () => 1);
      if (entry > 1) await step.run("new", () => 1);
      await step.run("b", () => 1);
      await step.sleep("nap", "1s");
    };
    expect(await testFunction(changing(work)).run()).toMatchObject({
      status: "completed",
      nondeterminism: [],
    });
  });

  test("a run that is undone comes only as far as it was", async () => {
    const work: Work = async ({ step }) => {
      await step.run("reserve", () => 1, { compensate: () => {} });
      await step.sleep("nap", "1s");
      await step.run("charge", () => Promise.reject(new Error("no")));
    };
    const target = changing(work, { nondeterminism: "fail", retry: { maxAttempts: 2 }, onFailure: () => 1 });
    const result = await testFunction(target).crashAfter("every").run();
    expect(result).toMatchObject({ status: "failed", compensationFailed: 0, nondeterminism: [] });
    expect(result.error?.code).not.toBe("NONDETERMINISM");
  });
});
