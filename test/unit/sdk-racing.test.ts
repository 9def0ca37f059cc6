import { expect, test } from "bun:test";
import { createFunction, type HandlerContext, testFunction } from "../../src/sdk/index.ts";
import { type Chance, chanceOf } from "../support/chance.ts";
import { isNight } from "../support/night.ts";

/** One thing after the other; whoever comes to its end first wins. */
type Racer = { name: string; kind: "run" | "fails" | "sleep" | "wait"; ms: number }[];

interface Round {
  how: "race" | "any" | "map";
  racers: Racer[];
}

const handlersAsked = isNight ? 500 : 60;
const seed = Number(process.env.SVC_TEST_SEED ?? 1);

function racesOf(chance: Chance): Round[] {
  let names = 0;
  const racer = (mayFail: boolean): Racer =>
    Array.from({ length: chance.between(1, 3) }, () => {
      const kind = chance.oneOf(["run", "run", "sleep", "wait", mayFail ? "fails" : "run"] as const);
      return { kind, name: `n${names++}`, ms: chance.between(0, 4) };
    });
  return Array.from({ length: chance.between(1, 4) }, () => {
    const how = chance.oneOf(["race", "race", "any", "map"] as const);
    const racers = Array.from({ length: chance.between(1, 3) }, () => racer(how === "any"));
    // Of those that may all fail, one cannot.
    return { how, racers: [...racers, [{ kind: "sleep", name: `n${names++}`, ms: chance.between(1, 6) }]] };
  });
}

async function pause(turns: number): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
}

async function runs({ step }: HandlerContext, racer: Racer): Promise<void> {
  for (const { kind, name, ms } of racer) {
    // What it throws is stored behind its last try: else it would be tried whenever the handler is entered.
    const retry = { maxAttempts: 1 };
    if (kind === "fails") await step.run(name, () => Promise.reject(new Error(name)), { retry });
    else if (kind === "run") await step.run(name, () => pause(ms));
    else if (kind === "sleep") await step.sleep(name, ms + 1);
    else await step.waitForEvent(name, { timeout: ms + 1 });
  }
}

/** Each winner decides the name of the next step, which keeps it: another one in a later execution is a deviation. */
async function play(context: HandlerContext, rounds: readonly Round[]): Promise<string[]> {
  const won: string[] = [];
  for (const [at, { how, racers }] of rounds.entries()) {
    const branch = async (racer: Racer, number: number) => {
      await runs(context, racer);
      return number;
    };
    const winner =
      how === "map"
        ? await Promise.race([
            context.step.map(`map${at}`, racers, (racer) => runs(context, racer)).then(() => -1),
            context.step.sleep(`limit${at}`, 5).then(() => -2),
          ])
        : await Promise[how](racers.map(branch));
    const kept = await context.step.run(`won ${at} ${winner}`, () => winner);
    won.push(kept === winner ? `${winner}` : `${winner} and ${kept}`);
  }
  return won;
}

test(`of ${handlersAsked} handlers that race none is told to leave its way, killed behind every step`, async () => {
  const wrong: object[] = [];
  const ask = async (number: number) => {
    const rounds = racesOf(chanceOf(`${seed}/races/${number}`));
    const handler = createFunction(
      { id: "racing", event: "go", nondeterminism: "fail", retry: { maxAttempts: 1 } },
      (context) => play(context, rounds),
    );
    const { status, error, nondeterminism, output } = await testFunction(handler).crashAfter("every").run();
    const isRight = status === "completed" && nondeterminism.length === 0;
    if (!isRight || (output as string[]).some((one) => one.includes("and")))
      wrong.push({ number, status, error, nondeterminism, output, rounds });
  };
  for (let from = 0; from < handlersAsked; from += 20)
    await Promise.all(
      Array.from({ length: Math.min(20, handlersAsked - from) }, (_, place) => ask(from + place)),
    );
  expect(wrong).toEqual([]);
}, 120_000);
