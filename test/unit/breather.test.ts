import { describe, expect, test } from "bun:test";
import { breather, burstMs } from "../../src/kit/breather.ts";
import { CelBudget, compileCel } from "../../src/kit/cel/cel.ts";

/** Time that moves by what is computed, and by pauses. */
function thread() {
  let at = 0;
  const pauses: number[] = [];
  return {
    pauses,
    compute: (ms: number) => {
      at += ms;
    },
    clock: {
      elapsed: () => at,
      async sleep(ms: number) {
        pauses.push(ms);
        await Promise.resolve();
        at += ms;
      },
    },
  };
}

describe("computing in bursts", () => {
  test("goes on while there is time in this turn, and leaves what it took beyond that to others", async () => {
    const { clock, compute, pauses } = thread();
    const breathe = breather(clock, "env_a");
    expect(breathe()).toBeUndefined();
    compute(1);
    expect(breathe()).toBeUndefined();
    compute(burstMs + 20);
    const pause = breathe();
    expect(pause).toBeDefined();
    await pause;
    expect(pauses[0]).toBe(21);
    compute(1);
    expect(breathe()).toBeUndefined();
  });

  test("counts the last step of each piece: many that have one step each take one burst together", async () => {
    const { clock, compute } = thread();
    let done = 0;
    const work = async (tenant: string) => {
      const pause = breather(clock, tenant)();
      if (pause) await pause;
      compute(2 * burstMs);
      done++;
    };
    const all = Promise.all(Array.from({ length: 20 }, (_, n) => work(`env_${n}`)));
    expect(done).toBe(1);
    await all;
    expect(done).toBe(20);
  });

  test("lets many short steps share a burst, however late behind its pause each begins", async () => {
    const { clock, compute, pauses } = thread();
    const paused = async (breathe: () => Promise<void> | undefined) => void (await breathe());
    const step = async () => {
      await paused(breather(clock, "env_a"));
      compute(burstMs / 4);
    };
    const first = breather(clock, "env_a");
    expect(first()).toBeUndefined();
    compute(burstMs);
    await Promise.all(Array.from({ length: 40 }, step));
    // Ten bursts of four, each behind one turn.
    expect(pauses.filter((ms) => ms === 0).length).toBeLessThanOrEqual(11);
    expect(pauses.every((ms) => ms === 0)).toBe(true);
  });

  test("shares one burst a turn, tenants by turns, however many pieces one has", async () => {
    const { clock, compute } = thread();
    const order: string[] = [];
    async function work(tenant: string, steps: number) {
      const breathe = breather(clock, tenant);
      for (let step = 0; step < steps; step++) {
        compute(burstMs);
        await breathe();
        order.push(tenant);
      }
    }
    await Promise.all([...Array.from({ length: 20 }, () => work("many", 3)), work("one", 3)]);
    // Whoever comes alone waits for one turn of the others, not for twenty.
    const places = order.flatMap((tenant, at) => (tenant === "one" ? [at] : []));
    expect(places.every((place, at) => place - (places[at - 1] ?? -1) <= 4)).toBe(true);
  });
});

describe("a budget of many evaluations", () => {
  const options = { variables: ["data"], result: "bool" } as const;
  const data = { l: Array.from({ length: 900 }, (_, a) => ({ a, b: `item ${a}` })) };

  test("is spent by what was looked at, and used up by what was too much for the rest of it", () => {
    const budget = new CelBudget(2_000);
    const program = compileCel("data.l.all(x, x.a >= 0)", options);
    expect(program.run({ data }, budget)).toBe(true);
    expect(budget.left).toBe(2_000 - 901);
    expect(program.run({ data }, budget)).toBe(true);
    expect(budget.isUsedUp).toBe(false);
    expect(() => program.run({ data }, budget)).toThrow("expression cost limit exceeded");
    expect(budget.isUsedUp).toBe(true);
    budget.grant(10_000);
    expect(budget.left).toBe(2_000);
  });

  test("an evaluation that is too much by itself does not use it up", () => {
    const budget = new CelBudget(100_000);
    const wide = { l: Array.from({ length: 20_000 }, (_, a) => ({ a })) };
    expect(() => compileCel("data.l.all(x, x.a >= 0)", options).run({ data: wide }, budget)).toThrow();
    expect(budget.isUsedUp).toBe(false);
    expect(budget.left).toBeLessThan(90_001);
  });

  test("the body of a macro is done for every item, and counts", () => {
    const sixty = `data.l.exists(x, ${Array(60).fill("x.b.contains('zzz')").join(" || ")})`;
    expect(() => compileCel(sixty, options).run({ data })).toThrow("expression cost limit exceeded");
    expect(compileCel("data.l.exists(x, x.b.contains('zzz'))", options).run({ data })).toBe(false);
  });
});
