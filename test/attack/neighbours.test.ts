import { expect, mock, test } from "bun:test";
import { CelBudget } from "../../src/kit/cel/cel.ts";
import { isNight } from "../support/night.ts";
import { engines } from "../support/server.ts";
import { attackWith, suite } from "./neighbours.suite.ts";
import { aggressors } from "./neighbours-aggressors.ts";

const attacksMax = 3;

test("no neighbour holds the house", async () => {
  const rows: string[] = [];
  const { breaches, attempts } = await suite.run({
    ...{
      seed: 1,
      long: false,
      engines: engines.filter((engine) => isNight || engine === "libsql"),
      log: (line: string) => rows.push(line),
    },
  });
  console.log(rows.join("\n"));
  expect(breaches).toEqual([]);
  expect(attempts).toBeGreaterThan(6);
}, 120_000);

if (isNight)
  test("it reports a house where filters have four times the budget and give nothing back", async () => {
    const path = "../../src/kit/breather.ts";
    const real = { ...(await import("../../src/kit/breather.ts")) };
    const { spend } = CelBudget.prototype;
    mock.module(path, () => ({ ...real, breather: () => () => undefined }));
    CelBudget.prototype.spend = function (items) {
      spend.call(this, items / 4);
    };
    try {
      const triggers = aggressors.filter(({ resource }) => resource === "triggers");
      let breaches: string[] = [];
      // What such a house does to its neighbours is near the bound on a quick machine: it is found by one of three attacks.
      for (let attacks = 0; attacks < attacksMax && breaches.length === 0; attacks++)
        breaches = await attackWith(triggers, { long: false, log: () => {}, atOnce: 1 }, "libsql");
      expect(breaches.join("\n")).toContain("developer x triggers");
    } finally {
      CelBudget.prototype.spend = spend;
      mock.module(path, () => real);
    }
  }, 120_000);
