import { expect, test } from "bun:test";
import { attackEngines, type Side } from "./engines.suite.ts";

test("both stores answer a script of hostile calls alike", async () => {
  const { attempts, breaches } = await attackEngines({ seed: 1, long: false });
  expect(breaches).toEqual([]);
  expect(attempts).toBeGreaterThan(576);
}, 120_000);

test("one that answers another thing to one of them is found", async () => {
  let asked = 0;
  const steady: Side = async () => ({ status: 200, body: "{}" });
  const planted: Side = async () => ({ status: 200, body: ++asked === 300 ? '{"runs":[]}' : "{}" });
  const { breaches } = await attackEngines({ seed: 1, long: false, sides: [steady, planted] });
  expect(breaches).toHaveLength(1);
});
